package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

func TestCalls(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		n.SetDefault(simnet.Link{Delay: time.Millisecond})
		hang := make(chan struct{})
		var serving atomic.Int32
		a := start(t, options{n: n, host: "r1"})
		b := start(t, options{n: n, host: "r2", early: func(x *node) {
			x.HandleCall(func(ctx context.Context, from state.RouterID, method string, payload []byte) ([]byte, error) {
				switch method {
				case "echo":
					return append([]byte(from+":"), payload...), nil
				case "hang":
					serving.Add(1)
					select {
					case <-hang:
					case <-ctx.Done():
					}
					return nil, nil
				}
				return nil, errors.New("no such method")
			})
		}})
		a.peers("r2")
		ctx := t.Context()
		if _, err := a.Call(ctx, "r9", "echo", nil); !errors.Is(err, ErrNotConnected) {
			t.Errorf("call to nobody: %v", err)
		}
		within(t, time.Second, "streams up", both(a, b))
		big := bytes.Repeat([]byte("p"), wire.MaxFrame-1000)
		for _, p := range [][]byte{nil, []byte("x"), big[:len(big)-4<<10]} {
			got, err := a.Call(ctx, "r2", "echo", p)
			if err != nil || string(got) != "r1:"+string(p) {
				t.Errorf("echo of %d bytes: %d, %v", len(p), len(got), err)
			}
		}
		if _, err := a.Call(ctx, "r2", "echo", big); err == nil {
			t.Error("an answer past the bound came")
		}
		if _, err := a.Call(ctx, "r2", "echo", make([]byte, wire.MaxFrame)); !errors.Is(err, ErrBusy) {
			t.Errorf("call past the bound: %v", err)
		}
		var ce *CallError
		if _, err := a.Call(ctx, "r2", "nonsense", nil); !errors.As(err, &ce) || ce.Message != "no such method" {
			t.Errorf("error of the peer: %v", err)
		}
		if _, err := b.Call(ctx, "r1", "echo", nil); !errors.As(err, &ce) {
			t.Errorf("call to a router that serves none: %v", err)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := a.Call(short, "r2", "hang", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("call out of time: %v", err)
		}
		// Bounded: one hangs already; the rest of the slots, then busy.
		lost := make(chan error, maxServing)
		for range maxServing - 1 {
			go func() { _, err := a.Call(ctx, "r2", "hang", nil); lost <- err }()
		}
		within(t, time.Second, "all slots taken", func() bool { return serving.Load() == maxServing })
		if _, err := a.Call(ctx, "r2", "echo", nil); !errors.Is(err, ErrBusy) {
			t.Errorf("call past the slots: %v", err)
		}
		n.Host("r2").Crash()
		for range maxServing - 1 {
			if err := <-lost; !errors.Is(err, ErrLost) {
				t.Errorf("call on a lost stream: %v", err)
			}
		}
		close(hang)
	})
}

func TestLayers(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		open := func(x *node) (net.Listener, func(context.Context, string) (net.Conn, error)) { return x.Layer('R') }
		a := start(t, options{n: n, host: "r1"})
		b := start(t, options{n: n, host: "r2"})
		l, _ := open(b)
		_, dial := open(a)
		got := make(chan string, 1)
		go func() {
			c, err := l.Accept()
			if err != nil {
				got <- err.Error()
				return
			}
			defer c.Close()
			s, err := io.ReadAll(c)
			got <- fmt.Sprint(c.(*LayerConn).Peer, string(s), err)
		}()
		c, err := dial(t.Context(), "r2:7947")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(c, strings.NewReader(strings.Repeat("raft", 1<<16))); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		if s := <-got; s != "r1"+strings.Repeat("raft", 1<<16)+"<nil>" {
			t.Errorf("got %d bytes: %.40q", len(s), s)
		}
		_, other := a.Layer('X')
		var r *RefusedError
		if _, err := other(t.Context(), "r2:7947"); !errors.As(err, &r) || r.Reason != ReasonProto || !r.Remote {
			t.Errorf("layer that is not served: %v", err)
		}
		stray := start(t, options{n: n, host: "r3", tweak: func(c *Config) { c.Secret = [][]byte{bytes.Repeat([]byte("q"), 20)} }})
		_, strayDial := open(stray)
		if _, err := strayDial(t.Context(), "r2:7947"); !errors.As(err, &r) || r.Reason != ReasonSecret {
			t.Errorf("dial with another secret: %v", err)
		}
		b.stop()
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept after the end: %v", err)
		}
	})
}
