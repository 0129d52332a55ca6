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
	t.Parallel()
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

		write(0) // by mistake
		b.Settle(3 * time.Second)
		warned(t, b.Router(0), "cluster.secret_file can't be used")
		write(0, fresh)
		b.Settle(3 * time.Second)
		if list := warnings(t, b.Router(0)); strings.Contains(list, "secret_file") {
			t.Errorf("still warns: %s", list)
		}

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

// A secret appended to a line without an end would make one of both, which no other
// router has: it is not taken. One that replaces all others is, and warned of in the
// log once and in status as long as somebody may lack it.
func TestSecretsThatCutARouterOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(i int) string { return filepath.Join(dir, fmt.Sprint("secret", i)) }
	write := func(i int, text string) {
		t.Helper()
		if err := os.WriteFile(file(i), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const old, fresh = "the-secret-of-last-year", "the-secret-of-this-year"
	for i := range 3 {
		write(i, old)
	}
	cfg := harness.BubbleConfig{Routers: 3, Delay: time.Millisecond, RouterFile: func(i int, c *node.Config) {
		c.Cluster.SecretFile, c.Cluster.Insecure = file(i), false
	}}
	harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
		silent := func(r *harness.Router) {
			t.Helper()
			if list := warnings(t, r); strings.Contains(list, "secret") {
				t.Errorf("%s warns: %s", r.Name, list)
			}
		}
		write(1, old+fresh+"\n")
		b.Settle(20 * time.Second)
		warned(t, b.Router(1), "can't be used, so the shared keys stay as they were: a line of "+file(1)+" holds a secret in use (")
		if err := oneGroup(b, 1)(); err != nil {
			t.Error(err)
		}
		write(1, old+"\n"+fresh+"\n")
		b.Settle(5 * time.Second)
		silent(b.Router(1))

		const cut = "none of the secrets in use until now is in the file any more: routers that still have only those refuse this one"
		write(0, fresh+"\n")
		b.Settle(3 * time.Second)
		warned(t, b.Router(0), "cluster.secret_file: "+cut)
		b.Settle(40 * time.Second)
		warned(t, b.Router(0), "cluster.secret_file: "+cut)
		if n := strings.Count(b.Router(0).Log(), cut); n != 1 {
			t.Errorf("the log says it %d times", n)
		}
		write(0, old+"\n"+fresh+"\n")
		b.Settle(20 * time.Second)
		silent(b.Router(0))

		for turn, next := range []string{"the-secret-of-next-year", "the-secret-of-the-year-after"} {
			for i := range 3 { // all at once: cut off for a moment only
				write(i, next)
			}
			b.Settle(3 * time.Second)
			warned(t, b.Router(2), cut)
			b.Settle(time.Minute)
			for _, r := range b.Routers() {
				silent(r)
			}
			if n := strings.Count(b.Router(2).Log(), cut); n != turn+1 {
				t.Errorf("the log says it %d times at change %d", n, turn+1)
			}
		}
		if err := oneGroup(b, 1)(); err != nil {
			t.Error(err)
		}
	})
}
