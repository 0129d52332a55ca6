package scenario

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// In a pool that isolates tenants a new replica is warmed for each of them, though they
// say the same: its first clients of both find their prefix there, a stranger does not.
// Routers bill what clients have used, and no more.
func TestNewReplicaIsWarmedForEachTenant(t *testing.T) {
	cfg := warmPool(2, 4)
	file := cfg.PoolFile
	cfg.PoolFile = func(p *node.PoolConfig) { file(p); p.Isolation = "tenant" }
	cfg.RouterFile = func(_ int, c *node.Config) { c.Gateway.Keys = []node.KeyConfig{keyed("a", "a"), keyed("b", "b")} }
	inWarmPool(t, cfg, func(t *testing.T, b *harness.Bubble) {
		said := func(i int, key string, output int) *harness.Reply {
			c := streamed(chat(words("handbook", 4000), fmt.Sprint("Question ", i, " of ", key), output))
			return b.DoAt(i%2, http.MethodPost, harness.ChatPath, c.Body(), "Authorization: Bearer sk-"+key)
		}
		used := 0
		serve := func(n int, every time.Duration, output int) {
			for _, r := range paced(t, n, every, func(i int) *harness.Reply { return said(i, []string{"a", "b"}[i/2%2], output) }) {
				used += r.Usage().PromptTokens
			}
		}
		serve(60, 100*time.Millisecond, 20)
		late, joined := b.Engine(2), time.Now()
		if status, err := b.Router(0).Admin("POST", "/admin/v1/replicas", console.ReplicaRequest{Pool: harness.Pool, URL: late.URL()}, nil); err != nil || status != 200 {
			t.Fatalf("add: %d %v", status, err)
		}
		serve(120, 60*time.Millisecond, 80)
		warm, clients := requestsAt(late, joined)
		salts, firsts := map[string]bool{}, map[string]bool{}
		for _, w := range warm {
			salts[saltIn(w.Body)] = true
		}
		if len(warm) != 2 || len(salts) != 2 || salts[""] {
			t.Errorf("%d prompts warmed it, with the salts %v: want one for each tenant", len(warm), salts)
		}
		for _, c := range clients {
			salt := saltIn(c.Body)
			if cached := 100 * c.CachedTokens / c.PromptTokens; !firsts[salt] && cached < 80 {
				t.Errorf("the first client with the salt %s found %d %% cached", salt, cached)
			}
			firsts[salt] = true
		}
		if len(firsts) != 2 {
			t.Errorf("clients of %d tenants came", len(firsts))
		}
		if r := ok(t, said(0, "nobody", 1)); r.Usage().PromptTokensDetails.CachedTokens != 0 {
			t.Errorf("a stranger found %d tokens cached", r.Usage().PromptTokensDetails.CachedTokens)
		} else {
			used += r.Usage().PromptTokens
		}
		if n := billed(t, b); n != used {
			t.Errorf("%d tokens are billed, clients have used %d", n, used)
		}
		noContent(t, b)
	})
}

var salted = regexp.MustCompile(`"cache_salt":"([0-9a-f]{32})"`)

// saltIn is the salt of a request's body; empty: none.
func saltIn(body []byte) string {
	if m := salted.FindSubmatch(body); m != nil {
		return string(m[1])
	}
	return ""
}

// billed sums the prompt tokens of clients over all routers, by their metrics.
func billed(t *testing.T, b *harness.Bubble) (sum int) {
	t.Helper()
	for _, r := range b.Routers() {
		var text string
		if status, err := r.Admin("GET", "/metrics", nil, &text); err != nil || status != 200 {
			t.Fatalf("metrics: %d %v", status, err)
		}
		for line := range strings.Lines(text) {
			if rest, found := strings.CutPrefix(line, `hearsay_tokens_total{pool="`+harness.Pool+`",type="input"} `); found {
				var n float64
				if _, err := fmt.Sscan(rest, &n); err != nil {
					t.Fatal(err)
				}
				sum += int(n)
			}
		}
	}
	return sum
}
