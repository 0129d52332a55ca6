package cases

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

// respond posts to /v1/responses; its answer's id, if it has one.
func (r *router) respond(t *testing.T, fields string) (a answer, id string) {
	t.Helper()
	s := r.send(strings.Replace(post(`{"model":"m","input":"Hi"`+fields+`}`), "/v1/chat/completions", "/v1/responses", 1))
	a = s.rest()
	var doc struct{ ID string }
	_ = json.Unmarshal([]byte(a.body), &doc)
	return a, doc.ID
}

// A response that another pool made is gone on from there, by the name of the pool that
// was asked, and nowhere else; what has to go on from a replica is asked of no other pool.
func TestFallbackOfResponses(t *testing.T) {
	t.Parallel()
	const made = `{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"theirs","output":[],"usage":{"input_tokens":9,"output_tokens":3,"total_tokens":12}}`
	answers := says(reply(200, made))
	e, other, third := newEngine(t, says(reply(500, oops))), newEngine(t, answers), newEngine(t, answers)
	other.model, third.model = "theirs", "theirs"
	p := pool(e)
	p.Fallback = []string{"c", "q"}
	p.Breaker = node.BreakerConfig{Failures: 1000}
	claude := fallbackPool()
	claude.Name, claude.Model, claude.Engine = "c", "claude", "anthropic"
	r := start(t, setup{}, p, fallbackPool(other, third), claude)[0]
	a, id := r.respond(t, "")
	if a.StatusCode != 200 || !strings.HasPrefix(id, "resp_1_") || !strings.Contains(a.body, `"model":"m"`) {
		t.Fatalf("%d %s", a.StatusCode, a.body)
	}
	owner, another := other, third
	if len(other.requests()) == 0 {
		owner, another = third, other
	}
	e.forget()
	another.forget()
	for range 8 {
		if a, _ := r.respond(t, `,"previous_response_id":"`+id+`"`); a.StatusCode != 200 || !strings.Contains(a.body, `"model":"m"`) {
			t.Fatalf("follow-up: %d %s", a.StatusCode, a.body)
		}
	}
	if n := len(e.requests()) + len(another.requests()); n != 0 || len(owner.requests()) != 9 {
		t.Errorf("%d follow-ups at others, %d at the owner", n, len(owner.requests())-1)
	}
	if g := owner.requests()[8]; !strings.Contains(g.body, `"previous_response_id":"resp_1"`) || !strings.Contains(g.body, `"model":"theirs"`) {
		t.Errorf("the owner got %s", g.body)
	}

	// The pool itself makes one; when its replica fails then, nobody else has it.
	e.becomes(answers)
	_, id = r.respond(t, "")
	e.becomes(says(reply(500, oops)))
	owner.forget()
	another.forget()
	if a, _ := r.respond(t, `,"previous_response_id":"`+id+`"`); a.StatusCode < 500 {
		t.Errorf("a follow-up whose replica fails: %d %s", a.StatusCode, a.body)
	}
	if n := len(owner.requests()) + len(another.requests()); n != 0 {
		t.Errorf("%d requests at another pool", n)
	}
	settled(t, []*router{r}, e, other, third)
}

// A commercial pool's responses have no tag: what goes on from one goes there, by the name
// of the pool that was asked.
func TestFollowUpsOfACommercialFallback(t *testing.T) {
	t.Parallel()
	const made = `{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"theirs","output":[],"usage":{"input_tokens":9,"output_tokens":3,"total_tokens":12}}`
	e, second, other := newEngine(t, says(reply(500, oops))), newEngine(t, says(reply(500, oops))), newEngine(t, says(reply(200, made)))
	other.model = "theirs"
	p, q := pool(e, second), fallbackPool(other)
	p.Fallback, q.Engine = []string{"q"}, "openai"
	r := start(t, setup{}, p, q)[0]
	a, id := r.respond(t, "")
	if a.StatusCode != 200 || id != "resp_1" {
		t.Fatalf("%d %s", a.StatusCode, a.body)
	}
	e.becomes(healthy)
	e.forget()
	if a, _ := r.respond(t, `,"previous_response_id":"`+id+`"`); a.StatusCode != 200 || !strings.Contains(a.body, `"model":"m"`) || len(e.requests()) != 0 {
		t.Errorf("follow-up: %d %s, %d at another pool", a.StatusCode, a.body, len(e.requests()))
	}
	settled(t, []*router{r}, e, second, other)
}
