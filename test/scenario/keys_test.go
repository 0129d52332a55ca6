package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// The shared secret is changed under traffic, router by router and without a
// restart: add the new one, use it first, remove the old one. Every router stays a
// living member with its streams up, and what one learns the others know; in the end
// a router that holds only the old secret gets nowhere.
func TestSharedSecretIsRotated(t *testing.T) {
	dir := t.TempDir()
	file := func(i int) string { return filepath.Join(dir, fmt.Sprint("secret", i)) }
	write := func(i int, secrets ...string) {
		t.Helper()
		if err := os.WriteFile(file(i), []byte(strings.Join(secrets, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const old, fresh = "the-secret-of-last-year", "the-secret-of-this-year"
	for i := range 4 {
		write(i, old)
	}
	cfg := harness.BubbleConfig{Routers: 3, Engines: 2, Delay: time.Millisecond, RouterFile: func(i int, c *node.Config) {
		c.Cluster.SecretFile, c.Cluster.Insecure = file(i), false
	}}
	harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
		turn := 0
		step := func(secrets ...string) {
			t.Helper()
			for i := range b.Routers() {
				write(i, secrets...)
				for range 4 {
					time.Sleep(time.Second)
					turn++
					system := words(fmt.Sprint("key", turn), 1500)
					at := ok(t, b.Chat(turn%3, streamed(chat(system, "Where?", 4)))).Replica
					b.Settle(100 * time.Millisecond)
					if x := b.Router((turn + 1) % 3).Explain(chat(system, "Known?", 4).Body()); x.Replica != at || x.MatchedTokens == 0 {
						t.Errorf("secrets %v at router %d: the next router does not know what was learned", secrets, i)
					}
					if err := oneGroup(b, 1)(); err != nil {
						t.Errorf("secrets %v at router %d: %v", secrets, i, err)
					}
				}
			}
		}
		step(old, fresh)
		step(fresh, old)
		step(fresh)

		// Streams that come up from now on go by the new secret, too.
		b.Router(1).Kill()
		b.Router(1).Restart()
		b.Within(10*time.Second, "one group after a restart", oneGroup(b, 1))

		stranger := b.AddRouter() // with the old secret
		b.Settle(10 * time.Second)
		for _, r := range b.Routers()[:3] {
			if n := len(r.Node().Members()); n != 3 {
				t.Errorf("%s lists %d routers, one of which holds no key", r.Name, n)
			}
		}
		if x := stranger.Explain(chat(words("key1", 1500), "Known?", 4).Body()); x.MatchedTokens != 0 {
			t.Error("a router without the key has heard what others learned")
		}
		if !strings.Contains(b.Router(0).Log()+b.Router(1).Log()+b.Router(2).Log(), "refused") {
			t.Error("nobody says that it was refused")
		}
	})
}
