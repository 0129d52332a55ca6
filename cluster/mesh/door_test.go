package mesh

import (
	"net"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/simnet"
)

// A host that opens connections without end and says nothing on them keeps no router
// out, though each of its connections holds a place until the handshake's time is over.
func TestOneSilentHostKeepsNobodyOut(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		a := start(t, options{n: n, host: "r1"})
		b := start(t, options{n: n, host: "r2"})
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			var open []net.Conn
			defer func() {
				for _, c := range open {
					_ = c.Close()
				}
			}()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(250 * time.Microsecond): // far more than there are places, each for 2 s
				}
				if c, err := n.Host("x").Dial("tcp", []string{"r1:7947", "r2:7947"}[i%2]); err == nil {
					open = append(open, c)
				}
			}
		}()
		defer func() {
			close(stop)
			<-done
		}()
		time.Sleep(2500 * time.Millisecond) // all places that it gets are taken until 4 s
		a.peers("r2")
		b.peers("r1")
		within(t, time.Second, "a stream beside the silent ones", both(a, b))
	})
}

func TestDoorCountsByHost(t *testing.T) {
	d := newDoor()
	for range maxOfOneHost {
		if !d.enter("a") {
			t.Fatal("closed too early")
		}
	}
	if d.enter("a") || !d.enter("b") {
		t.Error("a host is bounded by others, or not at all")
	}
	for range maxOfOneHost - 1 {
		d.enter("c")
	}
	if d.enter("d") {
		t.Error("all together are not bounded")
	}
	d.leave("a")
	if !d.enter("d") || d.enter("a") { // its place has been taken
		t.Error("a place that is free is not given")
	}
	for range maxOfOneHost - 1 {
		d.leave("a")
	}
	if _, known := d.from["a"]; known || d.all != maxHandshakes-maxOfOneHost+1 {
		t.Errorf("%d places, %v", d.all, d.from)
	}
}
