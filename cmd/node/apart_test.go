package node

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/mesh"
	"github.com/hearsay-llm/hearsay/state"
)

// A router with a stream is asked for its cluster's id until it has one, and is
// refused when that is another one.
func TestClustersAreToldApart(t *testing.T) {
	answer := make(chan string, 3)
	addrs := map[state.RouterID]string{}
	start := func(self state.RouterID, boot state.BootID, id func() string) *mesh.Mesh {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addrs[self] = ln.Addr().String()
		m, err := mesh.New(mesh.Config{
			Self: self, Boot: boot, Cluster: "c", Scheme: scheme, ID: id, Listener: ln,
			Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", addr)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		m.HandleCall(func(_ context.Context, _ state.RouterID, method string, _ []byte) ([]byte, error) {
			if method != callCluster {
				return nil, errors.New("unknown method")
			}
			return []byte(<-answer), nil
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		return m
	}
	var theirs atomic.Value
	theirs.Store("")
	n := &Node{mesh: start("a", 1, func() string { return "one" })}
	start("b", 2, func() string { return theirs.Load().(string) })
	n.mesh.SetPeers(map[state.RouterID]string{"b": addrs["b"]})
	for range 500 {
		if n.mesh.Up("b") {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	f := func(id string, unnamed int, refused string) {
		t.Helper()
		theirs.Store(id)
		answer <- id
		n.askCluster(t.Context(), "b")
		if l := n.mesh.Unnamed(); len(l) != unnamed {
			t.Errorf("answer %q: unnamed %v", id, l)
		}
		for range 500 {
			if n.mesh.Refused("b") == refused {
				return
			}
			<-time.After(10 * time.Millisecond)
		}
		t.Errorf("answer %q: refused for %q, want %q", id, n.mesh.Refused("b"), refused)
	}
	f("", 1, "")
	f("one", 0, "")
	f("two", 0, mesh.ReasonClusterID)
}
