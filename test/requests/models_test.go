package requests

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func TestB32ModelNames(t *testing.T) {
	odd := []string{"org/Name:v1.2", `a"b`, "line\nbreak", "caf\u00e9 \U0001f600", "../up", "a%2fb"}
	g := one(t, pool(func(p *node.PoolConfig) { p.Aliases = odd }))
	for _, v := range []string{"", `"model":null,`, `"model":7,`, `"model":{},`, `"model":[],`, `"model":"",`, `"model":true,`} {
		g.chat(`{`+v+`"messages":[]}`).refused(t, v, 400, "")
	}
	strangers := []string{
		"x", "Llama", "LLAMA", " llama", "llama ", "llama\n", "org/llama", "llama:latest", "..", "../llama", "llama%2f", "%2e%2e", "a\r\nX-Evil: 1", `"`, "\\", "\u0000", "' OR 1=1 --", "llama\u200b",
		strings.Repeat("x", 10<<10), strings.Repeat("\u00e9", 5<<10),
	}
	for _, name := range strangers {
		r := g.chat(`{"model":` + quoted(name) + `,"messages":[]}`)
		r.refused(t, name[:min(len(name), 20)], 404, "model_not_found")
		if len(r.body) > 600 {
			t.Errorf("the answer repeats %d bytes", len(r.body))
		}
		if r.Header.Get("X-Evil") != "" {
			t.Error("a name became a header")
		}
	}
	if n := len(g.calls()); n != 0 {
		t.Errorf("%d calls", n)
	}
	for _, name := range odd {
		r := g.chat(`{"model":` + quoted(name) + `,"messages":[]}`)
		if r.StatusCode != 200 || g.last().path() != chatPath || string(g.last().body) != `{"model":"llama","messages":[]}` {
			t.Errorf("%q: %d, the engine got %q at %s", name, r.StatusCode, g.last().body, g.last().path())
		}
		r = g.do(get("/v1/models/" + url.PathEscape(name)))
		if name != "../up" && (r.StatusCode != 200 || !strings.Contains(r.body, `"id":`+quoted(name))) {
			t.Errorf("show %q: %d %s", name, r.StatusCode, r.body)
		}
	}
	g.stop()
	for line := range strings.Lines(g.log.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a log line is torn: %q", line)
		}
		if strings.Contains(line, "OR 1=1") {
			t.Errorf("a stranger's name is logged: %q", line)
		}
	}
}

// Engines are asked by the name they know, and clients see the one they used, in a body
// and in every chunk of a stream.
func TestC72AliasesInBothDirections(t *testing.T) {
	const theirs = "../models/x.gguf"
	answer := func(c *call) bool {
		named := func(s string) string { return strings.ReplaceAll(s, `"id":"c1"`, `"id":"c1","model":"`+theirs+`"`) }
		switch {
		case !strings.Contains(string(c.body), `"model":"`+theirs+`"`):
			return c.write(jsonAnswer(404, `{"error":{"message":"no such model","type":"NotFoundError","code":404}}`))
		case c.path() == embedPath:
			return c.write(jsonAnswer(200, `{"object":"list","data":[{"embedding":[`+strings.Repeat("0.5,", 4000)+`1]}],"model":"`+theirs+`","usage":{"prompt_tokens":3}}`))
		case c.path() == messagesPath && strings.Contains(string(c.body), `"stream":true`):
			return c.write(events(strings.ReplaceAll(strings.Join(messageEvents, ""), `"claude"`, `"`+theirs+`"`)))
		case c.path() == messagesPath:
			return c.write(jsonAnswer(200, strings.ReplaceAll(message, `"claude"`, `"`+theirs+`"`)))
		case strings.Contains(string(c.body), `"stream":true`):
			all := named(role + word + finish + usageChunk + done)
			return c.write(events(all[:50], all[50:51], all[51:200], all[200:]))
		}
		return c.write(jsonAnswer(200, strings.Replace(good, `"model":"llama"`, `"model":"`+theirs+`"`, 1)))
	}
	for _, engine := range []string{"openai", "anthropic"} {
		paths := []string{chatPath, embedPath, messagesPath}
		if engine == "anthropic" {
			paths = paths[2:]
		}
		g := start(t, []func(*call) bool{answer}, pool(func(p *node.PoolConfig) { p.UpstreamModel, p.Engine = theirs, engine }))
		for _, path := range paths {
			for _, name := range []string{"fast", "llama"} {
				for _, stream := range []bool{false, true} {
					if stream && path == embedPath {
						continue
					}
					r := g.post(path, fmt.Sprintf(`{"model":%q,"stream":%v,"max_tokens":3,"messages":[],"input":"x"}`, name, stream), version)
					if path == messagesPath && engine == "openai" {
						r = g.post(path, strings.Replace(askMessage, `"llama"`, fmt.Sprintf(`%q,"stream":%v`, name, stream), 1), version)
					}
					what := fmt.Sprint(engine, path, name, stream)
					if r.StatusCode != 200 || r.err != nil || !strings.Contains(r.body, `"model":"`+name+`"`) {
						t.Errorf("%s: %d %.300s %v", what, r.StatusCode, r.body, r.err)
					}
					if strings.Contains(r.body, theirs) {
						t.Errorf("%s: the client sees %.300s", what, r.body)
					}
				}
			}
		}
		g.stop()
	}
	// Without another name in play, an answer is not touched.
	g := start(t, []func(*call) bool{says(jsonAnswer(200, strings.Replace(good, "llama", theirs, 1)))})
	if r := g.chat(ask); !strings.Contains(r.body, theirs) {
		t.Errorf("the client got %s", r.body)
	}
}

// ask asks the admin API.
func (g *router) ask(method, path, body string) (int, string) {
	g.t.Helper()
	req, err := http.NewRequest(method, "http://"+g.admin+path, strings.NewReader(body))
	must(g.t, err)
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	must(g.t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	must(g.t, err)
	return resp.StatusCode, string(b)
}

// series counts the router's samples, and checks that they can be read.
func (g *router) series() (n int, text string) {
	g.t.Helper()
	text = g.metrics()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	must(g.t, err)
	for name, f := range families {
		if strings.HasPrefix(name, "hearsay_") {
			n += len(f.Metric)
		}
	}
	return n, text
}

func TestC64LabelsFromStrangers(t *testing.T) {
	t.Parallel() // waits for a leader
	g := one(t)
	until(t, "a leader", func() bool { return g.metric("hearsay_raft_leader") == 1 })
	ask := func(name, user string) string {
		return post(chatPath, fmt.Sprintf(`{"model":%s,"user":%s,"messages":[]}`, quoted(name), quoted(user)))
	}
	c := g.dial()
	send := func(requests []string, status int) {
		t.Helper()
		must(t, c.SetDeadline(time.Now().Add(patience)))
		go func() { _, _ = io.WriteString(c.Conn, strings.Join(requests, "")) }()
		for range requests {
			if r := c.reply(); r.StatusCode != status {
				t.Fatalf("%d %q", r.StatusCode, r.body)
			}
		}
	}
	send([]string{ask("x", "u")}, 404)
	send([]string{ask("llama", "u")}, 200)
	before, _ := g.series()
	odd := []string{`a"b`, "new\nline", strings.Repeat("x", 10<<10), "\U0001f600", " ", "{pool=\"chat\"}", "\\"}
	for i := range 40 / min(heavy, 10) {
		var batch []string
		for k := range 500 {
			name := fmt.Sprintf("stranger-%d-%d", i, k)
			if k%50 == 0 {
				name = odd[(i+k/50)%len(odd)]
			}
			batch = append(batch, ask(name, name))
		}
		send(batch, 404)
	}
	send([]string{ask("llama", "someone"), ask("fast", `odd"user`)}, 200)
	after, text := g.series()
	if after > before+2 {
		t.Errorf("%d series became %d", before, after)
	}
	if strings.Contains(text, "stranger") || strings.Contains(text, "someone") {
		t.Error("a client's word is a label")
	}
	if n := g.metric("hearsay_requests_total", `pool="unknown"`, `code="404"`); n != float64(20_000/min(heavy, 10)+1) {
		t.Errorf("%v requests for unknown models counted", n)
	}
	if n := g.metric("hearsay_requests_total", `pool="chat"`, `code="200"`); n != 3 {
		t.Errorf("%v requests of the real model counted of 3", n)
	}
}

func TestC64SeriesOfTheDeparted(t *testing.T) {
	t.Parallel() // waits for a leader
	g := one(t)
	until(t, "ready", func() bool { return g.do(get("/readyz")).StatusCode == 200 && g.metric("hearsay_raft_leader") == 1 })
	if r := g.chat(ask); r.StatusCode != 200 {
		t.Fatalf("%d", r.StatusCode)
	}
	counted := g.metric("hearsay_picks_total")
	mine := strings.TrimPrefix(g.engines[0].url, "http://")
	others := func() (n int) {
		for line := range strings.Lines(g.metrics()) {
			if strings.Contains(line, `replica="`) && !strings.Contains(line, mine) {
				n++
			}
		}
		return n
	}
	before, _ := g.series()
	// Nothing listens there.
	for i := range 50 {
		status, body := g.ask("POST", "/admin/v1/replicas", fmt.Sprintf(`{"pool":"chat","url":"http://127.0.0.1:%d"}`, i+1))
		if status != 200 {
			t.Fatalf("add: %d %s", status, body)
		}
	}
	until(t, "50 more are shown", func() bool { return others() >= 50 })
	for i := range 50 {
		status, body := g.ask("DELETE", "/admin/v1/replicas/"+url.PathEscape(fmt.Sprintf("127.0.0.1:%d", i+1)), "")
		if status != 200 {
			t.Fatalf("remove: %d %s", status, body)
		}
	}
	until(t, "their series are gone", func() bool { return others() == 0 })
	// Labels come up meanwhile, those of scaling among them; one series of each of the
	// 50 would be more.
	if after, _ := g.series(); after > before+30 {
		t.Errorf("%d series before, %d after", before, after)
	}
	if n := g.metric("hearsay_picks_total"); n < counted {
		t.Errorf("a counter went from %v to %v", counted, n)
	}
	if r := g.chat(ask); r.StatusCode != 200 {
		t.Errorf("afterwards: %d", r.StatusCode)
	}
}

// Unique prompts fill the sketches to their budget and no further, and go with their
// replica. make bench-memory shows it over a million prompts.
func TestC63UniquePrompts(t *testing.T) {
	t.Parallel() // waits for a leader
	g := one(t, pool(func(p *node.PoolConfig) { p.Replicas = nil }))
	until(t, "a leader", func() bool { return g.metric("hearsay_raft_leader") == 1 })
	if status, body := g.ask("POST", "/admin/v1/replicas", `{"pool":"chat","url":"`+g.engines[0].url+`"}`); status != 200 {
		t.Fatalf("add: %d %s", status, body)
	}
	c := g.dial()
	shared := strings.Repeat("shared ", 30)[:200]
	round := func(from int) {
		for i := range 700 / heavy {
			unique := strings.Repeat(fmt.Sprintf("%d ", from+i*i), 400+i)
			if r := c.do(post(chatPath, `{"model":"llama","messages":[{"role":"user","content":"`+shared+unique+`"}]}`)); r.StatusCode != 200 {
				t.Fatalf("%d %q", r.StatusCode, r.body)
			}
		}
	}
	round(0)
	one, entries := g.metric("hearsay_sketch_bytes"), g.metric("hearsay_sketch_entries")
	round(1e6)
	two, budget := g.metric("hearsay_sketch_bytes"), g.metric("hearsay_sketch_budget_bytes")
	if entries < 700/heavy || two < one || two > budget {
		t.Errorf("%v entries; %v bytes, then %v, of a budget of %v", entries, one, two, budget)
	}
	// What is known of a replica goes with it.
	status, body := g.ask("DELETE", "/admin/v1/replicas/"+url.PathEscape(strings.TrimPrefix(g.engines[0].url, "http://")), "")
	if status != 200 {
		t.Fatalf("remove: %d %s", status, body)
	}
	until(t, "its entries are gone", func() bool { return g.metric("hearsay_sketch_entries") == 0 })
}
