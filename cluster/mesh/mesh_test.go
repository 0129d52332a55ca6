package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var secret = []byte("0123456789abcdef0123456789abcdef")

// node is one router's mesh in a test, and what it saw.
type node struct {
	*Mesh
	t      *testing.T
	id     state.RouterID
	log    *logBuffer
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	got    []string // "from:payload"
	events []string
	block  chan struct{} // handlers wait for it to close, when not nil
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type options struct {
	n     *simnet.Net
	host  string
	id    state.RouterID
	boot  state.BootID
	tweak func(*Config)
	early func(*node)
}

// start runs a mesh on a host of the network until the test's bubble ends.
func start(t *testing.T, o options) *node {
	t.Helper()
	h := o.n.Host(o.host)
	l, err := h.Listen("tcp", ":7947")
	if err != nil {
		t.Fatal(err)
	}
	if o.id == "" {
		o.id = state.RouterID(o.host)
	}
	if o.boot == 0 {
		o.boot = state.BootID(time.Now().UnixNano())
	}
	x := &node{t: t, id: o.id, log: &logBuffer{}, done: make(chan struct{})}
	cfg := Config{
		Self: o.id, Boot: o.boot, Name: o.host, Cluster: "default", Scheme: "1", Secret: [][]byte{secret},
		Listener: l,
		Dial:     func(ctx context.Context, a string) (net.Conn, error) { return h.DialContext(ctx, "tcp", a) },
		Log:      zerolog.New(x.log), Registerer: prometheus.NewPedanticRegistry(),
	}
	if o.tweak != nil {
		o.tweak(&cfg)
	}
	if x.Mesh, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	x.Handle(wire.KindRows, func(from state.RouterID, _ state.BootID, b []byte) {
		x.mu.Lock()
		block := x.block
		x.got = append(x.got, fmt.Sprintf("%s:%s", from, b))
		x.mu.Unlock()
		if block != nil {
			<-block
		}
	})
	x.OnUp(func(id state.RouterID, b state.BootID) { x.event("up", id, b) })
	x.OnDown(func(id state.RouterID, b state.BootID) { x.event("down", id, b) })
	if o.early != nil {
		o.early(x)
	}
	ctx, cancel := context.WithCancel(context.Background())
	x.cancel = cancel
	go func() {
		defer close(x.done)
		if err := x.Run(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", x.id, err)
		}
	}()
	t.Cleanup(x.stop)
	return x
}

func (x *node) stop() {
	x.cancel()
	<-x.done
}

func (x *node) event(what string, id state.RouterID, _ state.BootID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.events = append(x.events, what+" "+string(id))
}

func (x *node) received() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]string(nil), x.got...)
}

func (x *node) seen() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.Join(x.events, ", ")
}

func (x *node) peers(ids ...string) {
	want := map[state.RouterID]string{}
	for _, id := range ids {
		want[state.RouterID(id)] = id + ":7947"
	}
	x.SetPeers(want)
}

func (x *node) status(id string) PeerStatus {
	for _, s := range x.Status() {
		if s.ID == state.RouterID(id) {
			return s
		}
	}
	return PeerStatus{}
}

// within waits in virtual time until ok, for at most d.
func within(t *testing.T, d time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > d {
			t.Fatalf("not within %v: %s", d, what)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

// pairOf starts r1 and r2, each wanting the other.
func pairOf(t *testing.T, n *simnet.Net, tweak func(*Config)) (a, b *node) {
	a = start(t, options{n: n, host: "r1", tweak: tweak})
	b = start(t, options{n: n, host: "r2", tweak: tweak})
	a.peers("r2")
	b.peers("r1")
	return a, b
}

func both(a, b *node) func() bool {
	return func() bool { return a.Up(b.id) && b.Up(a.id) }
}

func bubble(t *testing.T, f func(t *testing.T, n *simnet.Net)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, simnet.New(1)) })
}

func TestFramesArriveInOrderBothWays(t *testing.T) {
	f := func(name string, tweak func(*Config)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *simnet.Net) {
				n.SetDefault(simnet.Link{Delay: 5 * time.Millisecond, Jitter: 5 * time.Millisecond})
				a, b := pairOf(t, n, tweak)
				within(t, time.Second, "streams up", both(a, b))
				for i := range 500 {
					if !a.Send("r2", wire.KindRows, fmt.Append(nil, i)) || !b.Send("r1", wire.KindRows, fmt.Append(nil, i)) {
						t.Fatal("not taken")
					}
				}
				big := strings.Repeat("x", 1<<20)
				a.Send("r2", wire.KindRows, []byte(big))
				within(t, time.Second, "frames", func() bool { return len(a.received()) == 500 && len(b.received()) == 501 })
				for i := range 500 {
					if want := fmt.Sprint("r1:", i); b.received()[i] != want {
						t.Fatalf("frame %d is %q", i, b.received()[i])
					}
				}
				if b.received()[500] != "r1:"+big {
					t.Error("the large frame came otherwise")
				}
				if st := a.status("r2"); !st.Up || !st.Dialled || st.BytesOut < 1<<20 || st.Name != "r2" {
					t.Errorf("status %+v", st)
				}
				if b.status("r1").Dialled {
					t.Error("the higher id dialled")
				}
				within(t, 2*time.Second, "rtt", func() bool { return a.status("r2").RTT >= 10*time.Millisecond })
			})
		})
	}
	f("sealed", nil)
	f("plain", func(c *Config) { c.Secret = nil })
	f("several keys", func(c *Config) {
		other := bytes.Repeat([]byte("k"), 32)
		if c.Self == "r1" {
			c.Secret = [][]byte{other, secret} // mid-rotation
		}
	})
}

func TestUnreachableThenThere(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		a := start(t, options{n: n, host: "r1"})
		a.peers("r2")
		n.Host("r2")
		time.Sleep(time.Minute)
		if st := a.status("r2"); st.Up || st.Err == "" {
			t.Errorf("status %+v", st)
		}
		if a.Send("r2", wire.KindRows, nil) {
			t.Error("sent to nobody")
		}
		b := start(t, options{n: n, host: "r2"})
		within(t, 3*time.Second, "stream up", both(a, b))
		b.stop()
		within(t, 3*time.Second, "stream down", func() bool { return !a.Up("r2") })
		if got := a.seen(); got != "up r2, down r2" {
			t.Errorf("events: %s", got)
		}
	})
}

func TestHigherIDDialsWhenTheLowerOneCannot(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		b := start(t, options{n: n, host: "r2"})
		a := start(t, options{n: n, host: "r1", tweak: func(c *Config) {
			c.Dial = func(context.Context, string) (net.Conn, error) { return nil, errors.New("firewall") }
		}})
		a.peers("r2")
		b.peers("r1")
		took := within(t, 6*time.Second, "streams up", both(a, b))
		if took < 3*time.Second || !b.status("r1").Dialled {
			t.Errorf("after %v, %+v", took, b.status("r1"))
		}
	})
}

func TestAPeerThatDialsInIsTakenBeforeItIsWanted(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		a := start(t, options{n: n, host: "r1"})
		b := start(t, options{n: n, host: "r2"})
		a.peers("r2")
		within(t, time.Second, "streams up", both(a, b))
		b.peers("r1")
		time.Sleep(time.Second)
		b.SetPeers(nil)
		a.SetPeers(nil)
		within(t, time.Second, "streams down", func() bool { return !a.Up("r2") && !b.Up("r1") })
		time.Sleep(10 * time.Second)
		if len(a.Status())+len(b.Status()) != 0 {
			t.Errorf("peers left: %+v %+v", a.Status(), b.Status())
		}
		a.peers("r2")
		b.peers("r1")
		within(t, time.Second, "streams up again", both(a, b))
	})
}

func TestCutIsNoticedAndHealed(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		a, b := pairOf(t, n, nil)
		within(t, time.Second, "streams up", both(a, b))
		n.Cut("r1", "r2")
		within(t, 2500*time.Millisecond, "noticed on both sides", func() bool { return !a.Up("r2") && !b.Up("r1") })
		time.Sleep(10 * time.Minute)
		n.Heal("r1", "r2")
		took := within(t, 5*time.Second, "healed", both(a, b))
		t.Logf("streams up %v after healing", took)
		n.CutOneWay("r2", "r1")
		within(t, 5*time.Second, "one-way cut noticed on both sides", func() bool { return !a.Up("r2") && !b.Up("r1") })
	})
}

func TestRestartedPeerReplacesItsFormerSelf(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		a, b := pairOf(t, n, nil)
		within(t, time.Second, "streams up", both(a, b))
		n.Cut("r1", "r2") // r1 does not see r2 die
		n.Host("r2").Crash()
		b.stop()
		n.Host("r2").Restart()
		n.HealAll()
		b2 := start(t, options{n: n, host: "r2", boot: 99})
		b2.peers("r1")
		within(t, 5*time.Second, "new boot up", func() bool { return a.status("r2").Boot == 99 && b2.Up("r1") })
		if l := b2.Refusals(); len(l) != 0 {
			t.Errorf("refused: %+v", l)
		}
	})
}
