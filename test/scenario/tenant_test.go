package scenario

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/proxy"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// keyed is the key sk-NAME of a tenant.
func keyed(name, tenant string) node.KeyConfig {
	sum := sha256.Sum256([]byte("sk-" + name))
	return node.KeyConfig{Name: name, Tenant: tenant, Hash: node.KeyHash("sha256:" + hex.EncodeToString(sum[:]))}
}

// In a pool that isolates tenants nothing that one has had cached serves another: not by
// what routers think, not in the engine, and not by a salt of one's own. Keys of one
// tenant share it, on any router.
func TestTenantsShareNoCache(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"tenant", "none"} {
		harness.InBubble(t, harness.BubbleConfig{
			Routers: 2, Delay: time.Millisecond,
			PoolFile: func(p *node.PoolConfig) { p.Isolation = isolation },
			RouterFile: func(_ int, c *node.Config) {
				c.Gateway.Keys = []node.KeyConfig{keyed("a1", "a"), keyed("a2", "a"), keyed("b", "b")}
			},
		}, func(t *testing.T, b *harness.Bubble) {
			body := chat(words("shared", 1500), "Who are you?", 4).Body()
			// f asks with a key and says how much of the prompt the router and the engine
			// knew, in per cent.
			f := func(i int, key, salt string) (thought, found int) {
				t.Helper()
				body := body
				if salt != "" {
					body = []byte(strings.Replace(string(body), "{", `{"cache_salt":"`+salt+`",`, 1))
				}
				r := ok(t, b.DoAt(i, http.MethodPost, harness.ChatPath, body, "Authorization: Bearer sk-"+key))
				u := r.Usage()
				b.Settle(200 * time.Millisecond)
				return 100 * r.Matched() / u.PromptTokens, 100 * u.PromptTokensDetails.CachedTokens / u.PromptTokens
			}
			const all = 60 // per cent: what routers think is an estimate at first
			if thought, found := f(0, "a1", ""); thought != 0 || found != 0 {
				t.Fatalf("%s: the first one: %d %%, %d %%", isolation, thought, found)
			}
			if thought, found := f(1, "a2", ""); thought < all || found < all {
				t.Errorf("%s: another key of the tenant, at another router: %d %% expected, %d %% found", isolation, thought, found)
			}
			explained := func(tenant string) int {
				t.Helper()
				x, err := b.Router(1).Node().Explain(t.Context(), tenant, harness.ChatPath, body)
				if err != nil {
					t.Fatal(err)
				}
				return 100 * x.(proxy.Explanation).MatchedTokens / x.(proxy.Explanation).PromptTokens
			}
			if n := explained("a"); n < all {
				t.Errorf("%s: explained for the tenant: %d %%", isolation, n)
			}
			if isolation == "none" {
				for _, key := range []string{"b", "nobody"} {
					if thought, found := f(0, key, ""); thought < all || found < all {
						t.Errorf("not isolated: %s: %d %%, %d %%", key, thought, found)
					}
				}
				return
			}
			for _, tenant := range []string{"", "b"} {
				if n := explained(tenant); n != 0 {
					t.Errorf("explained for %q: %d %%", tenant, n)
				}
			}
			if _, err := b.Router(1).Node().Explain(t.Context(), "a1", harness.ChatPath, body); err == nil {
				t.Error("explained for a tenant that nobody is")
			}
			// A stranger who knows what the engine was sent for the tenant gains nothing.
			sent := b.Engine(0).Record().Requests
			theirs := saltIn(sent[len(sent)-1].Body)
			if theirs == "" {
				t.Fatal("the engine was sent no salt")
			}
			for _, salt := range []string{"", "mine", theirs} {
				for _, key := range []string{"b", "nobody"} {
					thought, found := f(0, key, salt)
					if first := salt == ""; first && (thought != 0 || found != 0) || !first && (thought < all || found < all) {
						t.Errorf("%s with the salt %q: %d %% expected, %d %% found", key, salt, thought, found)
					}
				}
			}
		})
	}
}
