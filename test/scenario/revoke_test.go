package scenario

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// A key is taken out of the file: from a router's reload on, that router refuses it, and only that one; the other keys
// stay. An answer that runs meanwhile goes on.
func TestKeyIsRevokedByReloads(t *testing.T) {
	t.Parallel()
	var revoked atomic.Bool
	cfg := harness.BubbleConfig{Routers: 2, Delay: time.Millisecond, RouterFile: func(_ int, c *node.Config) {
		c.Gateway.RequireKey = true
		c.Gateway.Keys = []node.KeyConfig{keyed("kept", "a")}
		if !revoked.Load() {
			c.Gateway.Keys = append(c.Gateway.Keys, keyed("lost", "b"))
		}
	}}
	harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
		asks := func(name string, want ...int) {
			t.Helper()
			for i, status := range want {
				r := b.DoAt(i, http.MethodPost, harness.ChatPath, chat("Be brief.", "Who am I?", 3).Body(), "Authorization: Bearer sk-"+name)
				if r.Status != status {
					t.Errorf("%s at %s: %v, want %d", name, b.Router(i).Name, r, status)
				}
			}
		}
		asks("lost", 200, 200)
		running := b.OpenAt(0, http.MethodPost, harness.ChatPath, streamed(chat("Be long.", "Go on.", 300)).Body(), "Authorization: Bearer sk-lost")
		if !running.Next() {
			t.Fatal(running)
		}
		revoked.Store(true)
		for i, want := range [][]int{{401, 200}, {401, 401}} {
			if status, _, text := reload(t, b.Router(i)); status != http.StatusOK {
				t.Fatalf("reload: %d %s", status, text)
			}
			asks("lost", want...)
			asks("kept", 200, 200)
		}
		for running.Next() {
		}
		ok(t, running.Reply)
	})
}
