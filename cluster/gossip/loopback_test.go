package gossip

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/cluster/mesh"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// Two routers over real sockets and real time.
func TestLoopbackSockets(t *testing.T) {
	type side struct {
		store  *state.Store
		index  *sketch.Index
		gossip *Gossip
		addr   string
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); running.Wait() })
	dialer := net.Dialer{}
	dial := func(ctx context.Context, a string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", a) }
	start := func(id state.RouterID, boot state.BootID, join ...string) side {
		var s side
		clock := state.NewClock(boot, time.Now())
		s.store = state.NewStore(state.Config{Self: id, Clock: clock, Pools: []state.PoolSpec{{Name: "p", Model: "m"}}})
		s.store.SetReplicas(state.SourceStatic, "p", []state.Replica{{ID: replica(0)}})
		s.index = sketch.New(sketch.Config{Clock: clock, Slots: s.store.SlotOf})
		ml, err := net.Listen("tcp", "127.0.0.1:0")
		must(err)
		gl, gp := port(t)
		m, err := mesh.New(mesh.Config{
			Self: id, Boot: boot, Cluster: "c", Scheme: "1", Secret: [][]byte{secret}, Listener: ml, Dial: dial, Log: zerolog.Nop(),
		})
		must(err)
		s.gossip, err = New(Config{
			Self: id, Cluster: "c", Scheme: "1", Secret: [][]byte{secret}, MeshAddr: ml.Addr().String(),
			Packets: gp, Listener: gl, Dial: dial, Join: join, Log: zerolog.Nop(),
		}, s.store, s.index, m)
		must(err)
		s.gossip.Attach(m)
		running.Go(func() { _ = m.Run(ctx) })
		running.Go(func() {
			if err := s.gossip.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		s.addr = gl.Addr().String()
		return s
	}
	a := start("r1", 1)
	b := start("r2", 2, a.addr)
	poll := func(what string, ok func() bool) {
		t.Helper()
		ticker := time.NewTicker(2 * time.Millisecond)
		defer ticker.Stop()
		bound := time.After(20 * time.Second)
		for !ok() {
			select {
			case <-ticker.C:
			case <-bound:
				t.Fatalf("never: %s", what)
			}
		}
	}
	poll("streams", func() bool {
		m := a.gossip.Members()
		return len(m) == 2 && m[1].Stream && b.gossip.Members()[0].Stream
	})
	select {
	case <-b.gossip.Ready():
	case <-time.After(20 * time.Second):
		t.Fatal("never ready")
	}
	ticket := a.store.Begin(a.store.View().Replica(replica(0)), 100)
	poll("row", func() bool { return b.store.View().Replica(replica(0)).Others.InFlight == 1 })
	ticket.End()
	poll("end", func() bool { return b.store.View().Replica(replica(0)).Others.InFlight == 0 })
	now := time.Now()
	marks := []prefix.Mark{{Hash: 7, ASCII: 400}}
	p := b.index.Place(replica(0), marks, []int32{100}, now)
	p.First(now)
	p.End(now)
	poll("sketch", func() bool {
		dst := make([]sketch.Match, 1)
		a.index.Lookup(dst, marks, []state.Slot{a.store.SlotOf(replica(0))}, time.Now())
		return dst[0].Live == 1
	})
}

// port opens the same loopback port for streams and datagrams.
func port(t *testing.T) (net.Listener, net.PacketConn) {
	t.Helper()
	for range 50 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p, err := net.ListenPacket("udp", l.Addr().String())
		if err == nil {
			return l, p
		}
		_ = l.Close()
	}
	t.Fatal("no port free for both")
	return nil, nil
}
