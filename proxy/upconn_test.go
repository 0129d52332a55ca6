package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// Waiting between reads loses nothing and changes no order, and nothing is held
// for reading while there is nothing to read.
func TestWaitsAndReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := strings.Repeat("0123456789", rapid.IntRange(0, 4000).Draw(t, "tens"))
		in := &pieces{want, append(rapid.SliceOfN(rapid.IntRange(1, 3*waitSize), 0, 50).Draw(t, "pieces"), len(want)+1)}
		c := &upConn{Conn: script{Reader: in}}
		var got strings.Builder
		p := make([]byte, rapid.IntRange(200, 16<<10).Draw(t, "read"))
		for {
			if c.wait(); c.pending() == 0 && c.err == nil {
				t.Fatal("waited for nothing")
			}
			n, err := c.reader().Read(p)
			got.Write(p[:n])
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if got.String() != want {
			t.Fatalf("got %d bytes of %d", got.Len(), len(want))
		}
	})
}

// blocking is a connection that knows how much room a read brought that it blocks in.
type blocking struct {
	net.Conn
	room *atomic.Int64
}

func (b blocking) Read(p []byte) (int, error) {
	b.room.Store(int64(len(p)))
	n, err := b.Conn.Read(p)
	b.room.Store(0)
	return n, err
}

// While a router waits for a replica, in whatever phase, it holds no buffers for
// what may come.
func TestWaitingStreamsHoldNoBuffers(t *testing.T) {
	over(t, func(t *testing.T, w wire) {
		var room atomic.Int64
		step := make(chan struct{})
		g := newRig(t, w, handlers(func(_ *engine, in *incoming) bool {
			for _, s := range []string{streamHead, chunk(role), chunk(word), chunk(strings.Repeat(word, 400)), chunk(word), chunk(done) + lastChunk} {
				<-step
				if in.write(s) != nil {
					return false
				}
			}
			return true
		}), func(cfg *Config, _ *poolSpec) {
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				c, err := dial(ctx, addr)
				return blocking{c, &room}, err
			}
		})
		c := g.conn()
		_, err := io.WriteString(c, post("/v1/chat/completions", askStream))
		must(t, err)
		waits := func(where string) {
			t.Helper()
			until(t, "waiting "+where, func() bool { return room.Load() != 0 })
			if n := room.Load(); n > waitSize {
				t.Errorf("%s: waits with room for %d bytes", where, n)
			}
		}
		var resp *http.Response
		reads := func(s string) {
			t.Helper()
			b := make([]byte, len(s))
			if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != s {
				t.Errorf("got %q, want %q, %v", b, s, err)
			}
		}
		waits("for a head")
		step <- struct{}{}
		waits("for the first event")
		step <- struct{}{}
		resp, err = http.ReadResponse(bufio.NewReader(c), nil)
		must(t, err)
		reads(role)
		waits("for the second event")
		step <- struct{}{}
		reads(word)
		waits("for a large event")
		step <- struct{}{}
		reads(strings.Repeat(word, 400))
		step <- struct{}{} // what came last did not fit into what was waited with
		reads(word)
		waits("behind a large event")
		close(step)
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != done {
			t.Errorf("the end: %q, %v", b, err)
		}
	})
}
