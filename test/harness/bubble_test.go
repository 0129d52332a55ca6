package harness

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/test/enginesim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func hello(stream bool) Chat {
	return Chat{Messages: []Message{{"user", "Hello."}}, MaxTokens: 50, Stream: stream}
}

func TestBubbleServesAndEndsClean(t *testing.T) {
	f := func(name string, cfg BubbleConfig) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			InBubble(t, cfg, func(t *testing.T, b *Bubble) {
				for i := range b.Routers() {
					for _, stream := range []bool{false, true} {
						r := b.Chat(i, hello(stream))
						if !r.OK() || r.Text() == "" || r.TTFT() <= 0 || r.ID == "" || b.Find(r.Replica) == nil {
							t.Errorf("stream %v: %v", stream, r)
						}
					}
				}
				b.Idle(time.Second)
			})
		})
	}
	f("one router", BubbleConfig{})
	f("many on a bad network", BubbleConfig{
		Routers: 5, Engines: 3, Delay: 5 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.05, Seed: 7,
	})
	f("nothing shared", BubbleConfig{Routers: 2, NoSharing: true})
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	f("with a shared secret", BubbleConfig{
		Routers: 3, RouterFile: func(_ int, c *node.Config) { c.Cluster.SecretFile, c.Cluster.Insecure = secret, false },
	})
	f("changed files", BubbleConfig{
		Policy:     "round_robin",
		PoolFile:   func(p *node.PoolConfig) { p.Aliases = []string{"other"} },
		RouterFile: func(_ int, c *node.Config) { c.Cluster.Name = "mine" },
		EachEngine: func(_ int, c *enginesim.Config) { c.Speed = 2 },
	})
}

// What a kill leaves behind: reset connections, refused dials, the disk as it was,
// and nothing more from the dead.
func TestKilledRouterIsGoneAtOnce(t *testing.T) {
	InBubble(t, BubbleConfig{Routers: 2}, func(t *testing.T, b *Bubble) {
		s := b.Open(0, hello(true).Body())
		if !s.Next() {
			t.Fatal(s.Reply)
		}
		id := b.Router(0).ID()
		b.Router(0).Kill()
		killed := time.Now()
		for s.Next() {
		}
		if !errors.Is(s.Err, syscall.ECONNRESET) || time.Since(killed) > time.Millisecond {
			t.Errorf("the client saw %v after %v", s.Err, time.Since(killed))
		}
		if r := b.Chat(0, hello(false)); !errors.Is(r.Err, syscall.ECONNREFUSED) {
			t.Errorf("a new client saw %v", r.Err)
		}
		sent := b.Net.Host("r0").Traffic()
		b.Settle(time.Minute)
		if now := b.Net.Host("r0").Traffic(); now.StreamOut != sent.StreamOut || now.PacketOut != sent.PacketOut {
			t.Errorf("the dead router sent: %+v, then %+v", sent, now)
		}
		if n := len(b.Alive()); n != 1 {
			t.Errorf("%d routers run", n)
		}
		b.Router(0).Restart()
		b.WaitReady()
		if b.Router(0).ID() != id {
			t.Error("its disk was lost")
		}
		b.Router(0).Kill()
		b.Router(0).Wipe()
		b.Router(0).Restart()
		b.WaitReady()
		if b.Router(0).ID() == id {
			t.Error("its disk was not wiped")
		}
	})
}

func TestStoppedRouterLeavesInOrder(t *testing.T) {
	InBubble(t, BubbleConfig{Routers: 3}, func(t *testing.T, b *Bubble) {
		s := b.Open(0, hello(true).Body())
		s.Next()
		done := make(chan error)
		go func() { done <- b.Router(0).Stop() }()
		for s.Next() {
		}
		if !s.OK() {
			t.Errorf("a stream was not drained: %v", s.Reply)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		b.Within(2*time.Second, "the others know", func() error {
			if n := b.Router(1).members("alive"); n != 2 {
				return errors.New("still counted")
			}
			return nil
		})
	})
}

func TestKilledEngineIsGoneAndComesBackEmpty(t *testing.T) {
	InBubble(t, BubbleConfig{}, func(t *testing.T, b *Bubble) {
		e := b.Engine(0)
		long := hello(false)
		long.Messages[0].Content = strings.Repeat("Hello again. ", 500)
		if r := b.Chat(0, long); !r.OK() {
			t.Fatal(r)
		}
		e.Kill()
		if _, err := b.Net.Host("client").DialContext(context.Background(), "tcp", e.Name+enginePort); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial: %v", err)
		}
		if r := b.Chat(0, long); r.Status < 500 {
			t.Errorf("without an engine: %v", r)
		}
		e.Start()
		b.WaitReady()
		b.Within(time.Minute, "served again", func() error {
			if r := b.Chat(0, long); !r.OK() {
				return r.Err
			}
			return nil
		})
		r := b.Chat(0, long)
		if !r.OK() {
			t.Fatal(r)
		}
	})
}

func TestClientClosesAndResets(t *testing.T) {
	InBubble(t, BubbleConfig{}, func(t *testing.T, b *Bubble) {
		for _, leave := range []func(*Stream){(*Stream).Close, (*Stream).Reset} {
			s := b.Open(0, hello(true).Body())
			s.Next()
			leave(s)
			if s.Next() || s.Err == nil || errors.Is(s.Err, io.EOF) {
				t.Errorf("it goes on: %v", s.Reply)
			}
			b.Idle(time.Second)
		}
	})
}

func TestPartitionCutsRoutersFromEachOtherOnly(t *testing.T) {
	InBubble(t, BubbleConfig{Routers: 2}, func(t *testing.T, b *Bubble) {
		b.Partition([]int{0}, []int{1})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if c, err := b.Net.Host("r0").DialContext(ctx, "tcp", "r1"+apiPort); err == nil {
			_ = c.Close()
			t.Error("r0 reaches r1")
		}
		for i := range 2 {
			if r := b.Chat(i, hello(true)); !r.OK() {
				t.Error(r)
			}
		}
		b.Net.HealAll()
		b.Cut("client", "r0")
		if r := b.Chat(0, hello(true)); r.Err == nil {
			t.Error("the client reaches r0")
		}
		b.Heal("client", "r0")
		if r := b.Chat(0, hello(true)); !r.OK() {
			t.Error(r)
		}
	})
}
