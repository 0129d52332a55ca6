package cases

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

// fallbackPool is a pool named q whose model is n.
func fallbackPool(engines ...*engine) node.PoolConfig {
	p := pool(engines...)
	p.Name, p.Model, p.UpstreamModel, p.Aliases = "q", "n", "theirs", nil
	return p
}

// named answers as a model of another name, so that it shows what clients see.
func named(name string) func(*got) bool {
	return func(g *got) bool {
		rename := func(s string) string { return strings.ReplaceAll(s, `"model":"m"`, `"model":"`+name+`"`) }
		if strings.Contains(g.body, `"stream":true`) {
			return streams(rename(role), rename(token("Hi")), rename(finish), usage, done)(g)
		}
		return says(reply(200, rename(good)))(g)
	}
}

// falls checks that a request to model m is answered by pool q, in m's name.
func falls(t *testing.T, r *router, q *engine, reason string) {
	t.Helper()
	for _, body := range []string{ask, askStream} {
		metric := func() float64 {
			return r.metric("hearsay_fallbacks_total", `pool="p"`, `to="q"`, `reason="`+reason+`"`)
		}
		before, served := metric(), r.metric("hearsay_requests_total", `pool="p"`, `code="200"`)
		q.forget()
		a := r.chat(body, "x-hearsay-debug: 1")
		if a.StatusCode != 200 || a.err != nil || !strings.Contains(a.body, `"model":"m"`) || strings.Contains(a.body, "theirs") {
			t.Fatalf("%s: %d %.300s %v", reason, a.StatusCode, a.body, a.err)
		}
		if got := a.Header.Get("x-hearsay-pool"); got != "q" {
			t.Errorf("%s: the headers name pool %q", reason, got)
		}
		if n := len(q.requests()); n != 1 || !strings.Contains(q.requests()[0].body, `"model":"theirs"`) {
			t.Errorf("%s: %d requests, %.200s", reason, n, q.requests()[0].body)
		}
		within(t, time.Second, "counted", func() bool {
			return metric() == before+1 && r.metric("hearsay_requests_total", `pool="p"`, `code="200"`) == served+1
		})
	}
}

// For every reason another pool answers, and nothing is counted at either afterwards.
func TestFallbackForEveryReason(t *testing.T) {
	t.Parallel()
	f := func(reason string, spoil func(p *node.PoolConfig, e *engine)) {
		t.Run(reason, func(t *testing.T) {
			e, other := newEngine(t, healthy), newEngine(t, named("theirs"))
			other.model = "theirs"
			p := pool(e)
			p.Fallback, p.Breaker = []string{"q"}, node.BreakerConfig{Failures: 1000, Open: time.Second, MaxEjected: 1}
			spoil(&p, e)
			r := start(t, setup{}, p, fallbackPool(other))[0]
			until(t, "read", func() bool { return e.readings() > 0 || len(p.Replicas) == 0 || e.refuses })
			if p.Breaker.Failures == 1 {
				r.chat(ask)
				until(t, "ejected", func() bool { return r.is(e, "ejected") })
			}
			falls(t, r, other, reason)
			if len(p.Replicas) > 0 {
				settled(t, []*router{r}, e)
			}
			settled(t, []*router{r}, other)
			if n := r.metric("hearsay_shed_total"); n != 0 {
				t.Errorf("%v were refused", n)
			}
		})
	}
	f("no_replicas", func(p *node.PoolConfig, _ *engine) { p.Replicas = nil })
	f("failed", func(_ *node.PoolConfig, e *engine) { e.answer = says(reply(500, oops)) })
	f("busy", func(_ *node.PoolConfig, e *engine) {
		e.answer = says(reply(429, strings.Replace(full, "503", "429", 1), "Retry-After: 30"))
	})
	f("unreachable", func(_ *node.PoolConfig, e *engine) { e.refuses = true; e.stop() })
	f("none_eligible", func(p *node.PoolConfig, e *engine) {
		e.answer = says(reply(500, oops))
		p.Breaker.Failures, p.Breaker.Open = 1, time.Hour
	})
}

// What the client did wrong is not asked twice, nor what has begun; and of pools that
// can't serve either the last one's word counts.
func TestFallbackWhereItIsNoUse(t *testing.T) {
	t.Parallel()
	e, other := newEngine(t, says(reply(400, tooLong))), newEngine(t, named("theirs"))
	p := pool(e)
	p.Fallback = []string{"q", "r"}
	third := fallbackPool()
	third.Name, third.Model = "r", "o"
	r := start(t, setup{}, p, fallbackPool(other), third)[0]
	if a := r.chat(ask); a.StatusCode != 400 || a.body != tooLong {
		t.Errorf("a client's mistake: %d %s", a.StatusCode, a.body)
	}
	e.becomes(func(g *got) bool { g.stream(role, token("Hi")); return false })
	r.chat(askStream).brokenOff(t, "begun", role+token("Hi"))
	if n := len(other.requests()); n != 0 {
		t.Errorf("%d requests at the other pool", n)
	}
	e.becomes(says(reply(503, full)))
	other.becomes(says(reply(503, full, "Retry-After: 7")))
	a := r.chat(ask)
	if a.StatusCode != 503 || !strings.Contains(a.body, "error") || a.Header.Get("Retry-After") == "" {
		t.Errorf("nobody can: %d %v %s", a.StatusCode, a.Header, a.body)
	}
	if n := r.metric("hearsay_fallbacks_total", `pool="p"`); n != 2 {
		t.Errorf("%v fallbacks", n)
	}
	settled(t, []*router{r}, e, other)
}

// Another model's vectors and tokens are no substitute.
func TestFallbackOfTextAlone(t *testing.T) {
	t.Parallel()
	e, other := newEngine(t, says(reply(500, oops))), newEngine(t, healthy)
	p := pool(e)
	p.Fallback, p.Breaker.Failures = []string{"q"}, 1000
	r := start(t, setup{}, p, fallbackPool(other))[0]
	for _, path := range []string{"/v1/embeddings", "/tokenize", "/v1/rerank"} {
		s := r.send(strings.Replace(post(`{"model":"m","input":"Hi","prompt":"Hi"}`), "/v1/chat/completions", path, 1))
		if a := s.rest(); a.StatusCode < 500 {
			t.Errorf("%s: %d %s", path, a.StatusCode, a.body)
		}
	}
	if n := len(other.requests()); n != 0 {
		t.Errorf("%d requests at the other pool", n)
	}
	settled(t, []*router{r}, e, other)
}

// What another pool's engine does not have is not what the client did wrong: the pool's
// own word is told.
func TestFallbackThatLacksWhatIsAsked(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403, 404, 405, 501, 400} {
		e := newEngine(t, says(reply(429, strings.Replace(full, "503", "429", 1), "Retry-After: 7")))
		other := newEngine(t, says(reply(status, `{"error":{"message":"not here","code":null}}`)))
		p := pool(e)
		p.Fallback = []string{"q"}
		r := start(t, setup{}, p, fallbackPool(other))[0]
		a := r.chat(ask)
		want := 429
		if status == 400 {
			want = 400 // of the request itself
		}
		if a.StatusCode != want || (want == 429) != (a.Header.Get("Retry-After") != "") || (want == 429) == strings.Contains(a.body, "not here") {
			t.Errorf("%d of another pool: %d %v %s", status, a.StatusCode, a.Header, a.body)
		}
		if n := len(other.requests()); n != 1 {
			t.Errorf("the other pool was asked %d times", n)
		}
		settled(t, []*router{r}, e, other)
	}
}

// Fallbacks of fallbacks are not followed.
func TestFallbackIsOneLevel(t *testing.T) {
	t.Parallel()
	other, last := newEngine(t, says(reply(500, oops))), newEngine(t, healthy)
	p, q, s := pool(), fallbackPool(other), fallbackPool(last)
	p.Fallback, q.Fallback = []string{"q"}, []string{"s"}
	s.Name, s.Model = "s", "s"
	r := start(t, setup{}, p, q, s)[0]
	if a := r.chat(ask); a.StatusCode != 500 || len(last.requests()) != 0 {
		t.Errorf("%d, %d requests two levels down", a.StatusCode, len(last.requests()))
	}
	settled(t, []*router{r}, other, last)
}

// A message goes in the form that the other pool's engines take, also where it has been
// translated for the first pool's, and comes back as a message in the first one's name.
func TestFallbackOfMessages(t *testing.T) {
	t.Parallel()
	const message = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hello there"}]}`
	const native = `{"id":"msg_1","type":"message","role":"assistant","model":"theirs","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":3}}`
	send := func(r *router) answer {
		t.Helper()
		s := r.send(strings.Replace(post(message, "anthropic-version: 2023-06-01"), "/v1/chat/completions", "/v1/messages", 1))
		defer func() { _ = s.conn.Close() }()
		return s.rest()
	}
	f := func(from, to string, answer func(*got) bool, path, field string) {
		t.Helper()
		e, other := newEngine(t, says(reply(500, oops))), newEngine(t, answer)
		p, q := pool(e), fallbackPool(other)
		p.Engine, q.Engine, p.Fallback = from, to, []string{"q"}
		r := start(t, setup{}, p, q)[0]
		a := send(r)
		if a.StatusCode != 200 || !strings.Contains(a.body, `"type":"message"`) || !strings.Contains(a.body, `"model":"m"`) {
			t.Errorf("%s to %s: %d %s", from, to, a.StatusCode, a.body)
		}
		g := other.requests()
		if len(g) != 1 || g[0].path() != path || !strings.Contains(g[0].body, field) || !strings.Contains(g[0].body, `"model":"theirs"`) {
			t.Errorf("%s to %s: the other got %+v", from, to, g)
		}
		settled(t, []*router{r}, e, other)
	}
	f("vllm", "anthropic", says(reply(200, native)), "/v1/messages", `"max_tokens":9`)
	f("anthropic", "vllm", named("theirs"), "/v1/chat/completions", `"max_tokens":9`)
	f("vllm", "openai", named("theirs"), "/v1/chat/completions", `"max_completion_tokens":9`)
}

// Engines that count no messages are not asked to: they would say that there is no such
// path.
func TestFallbackOfCounts(t *testing.T) {
	t.Parallel()
	e, other := newEngine(t, says(reply(500, oops))), newEngine(t, says(reply(404, `{"detail":"Not Found"}`)))
	p := pool(e)
	p.Engine, p.Fallback = "anthropic", []string{"q"}
	r := start(t, setup{}, p, fallbackPool(other))[0]
	s := r.send(strings.Replace(post(`{"model":"m","messages":[{"role":"user","content":"Hi"}]}`), "/v1/chat/completions", "/v1/messages/count_tokens", 1))
	defer func() { _ = s.conn.Close() }()
	if a := s.rest(); a.StatusCode != 500 || len(other.requests()) != 0 {
		t.Errorf("%d %s, %d requests at the other pool", a.StatusCode, a.body, len(other.requests()))
	}
	settled(t, []*router{r}, e, other)
}

// A pool whose replicas have roles takes over, and gives up what it took where it fails.
func TestFallbackWithRoles(t *testing.T) {
	t.Parallel()
	e, prefill, decode := newEngine(t, says(reply(500, oops))), newEngine(t, strictPrefill(filledKV)), newEngine(t, named("theirs"))
	p, q := pool(e), legPool("vllm", []*engine{prefill}, []*engine{decode})
	q.Name, q.Model, q.UpstreamModel, q.Aliases = "q", "n", "theirs", nil
	prefill.model, decode.model = "theirs", "theirs"
	p.Fallback = []string{"q"}
	r := start(t, setup{}, p, q)[0]
	a := r.chat(legChat("roles", ""))
	if a.StatusCode != 200 || !strings.Contains(a.body, `"model":"m"`) || len(prefill.requests()) != 1 || len(decode.requests()) != 1 {
		t.Errorf("%d %.200s, %d prefills, %d decodes", a.StatusCode, a.body, len(prefill.requests()), len(decode.requests()))
	}
	settled(t, []*router{r}, e, prefill, decode)

	// And the other way round: the legs that failed are given up.
	back := newEngine(t, named("theirs"))
	decode.becomes(says(reply(500, oops)))
	q.Name, q.Model, q.Fallback = "p", "m", []string{"q"}
	r = start(t, setup{}, q, fallbackPool(back))[0]
	if a := r.chat(legChat("other way", "")); a.StatusCode != 200 || len(back.requests()) != 1 {
		t.Errorf("%d %.200s, %d requests", a.StatusCode, a.body, len(back.requests()))
	}
	settled(t, []*router{r}, prefill, decode, back)
}

// Pools' fallbacks are checked when they are loaded.
func TestFallbackConfiguration(t *testing.T) {
	f := func(want string, fallbacks ...string) {
		t.Helper()
		c := node.Defaults()
		for i, to := range fallbacks {
			name := string(rune('a' + i))
			p := node.PoolConfig{Name: name, Model: "model-" + name}
			if to != "" {
				p.Fallback = strings.Split(to, ",")
			}
			c.Pools = append(c.Pools, p)
		}
		c.Finish()
		got := fmt.Sprint(c.Validate())
		if want == "" && strings.Contains(got, "fallback") || !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %q", fallbacks, got, want)
		}
	}
	f("", "b,c", "c", "")
	f(`pools[0].fallback[0]: "x" is no pool`, "x", "")
	f(`"a" is the pool itself`, "a")
	f(`stands twice`, "b,b", "")
	f("a -> b -> a", "b", "a")
	f("a -> b -> c -> a", "b", "c", "a,b")
	f("b -> c -> b", "b", "c", "b")
}
