package proxy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// A request that goes on from a response goes to the replica that keeps it, whatever the
// picker prefers, and is told there by the id it has there.
func TestFollowUpsGoToTheirOwner(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		echo := func(e *engine, in *incoming) bool {
			var ask struct {
				Previous *string `json:"previous_response_id"`
			}
			must(t, json.Unmarshal(in.body, &ask))
			previous, err := json.Marshal(ask.Previous)
			must(t, err)
			return in.write(jsonAnswer(200, `{"id":"resp_`+e.name+`","object":"response","output":[],"previous_response_id":`+string(previous)+`,"status":"completed"}`)) == nil
		}
		g := newRig(t, w, handlers(echo, echo, echo))
		for _, e := range []string{"e3", "e2", "e1"} {
			id := "resp_" + e + tagOf(e)
			r := g.respond(`{ "model":"llama", "previous_response_id" : "`+id+`" ,"input":"More"}`, "X-Hearsay-Debug: 1")
			if r.StatusCode != 200 || r.Header.Get("x-hearsay-replica") != e {
				t.Fatalf("%s: %d %s at %s", e, r.StatusCode, r.body, r.Header.Get("x-hearsay-replica"))
			}
			if want := `{"id":"` + id + `","object":"response","output":[],"previous_response_id":"` + id + `","status":"completed"}`; r.body != want {
				t.Errorf("got  %s\nwant %s", r.body, want)
			}
		}
		for i, e := range g.engines {
			if want := `{ "model":"llama", "previous_response_id" : "resp_` + e.name + `" ,"input":"More"}`; len(e.bodies) != 1 || e.bodies[0] != want {
				t.Errorf("e%d got %q", i+1, e.bodies)
			}
		}
		// One that drains serves what only it can serve.
		g.store.SetDrain("e2", true, "")
		if r := g.respond(`{"model":"llama","previous_response_id":"resp_e2` + tagOf("e2") + `","input":"x"}`); r.StatusCode != 200 {
			t.Errorf("draining: %d %s", r.StatusCode, r.body)
		}
	})
}

// refusal is an error body.
type refusalBody struct {
	Error struct {
		Message, Type string
		Code, Param   *string
	}
}

func refused(t *testing.T, name string, r reply, status int, code, param string) {
	t.Helper()
	var b refusalBody
	if err := json.Unmarshal([]byte(r.body), &b); err != nil {
		t.Errorf("%s: %v in %q", name, err, r.body)
		return
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	if r.StatusCode != status || text(b.Error.Code) != code || text(b.Error.Param) != param || b.Error.Message == "" {
		t.Errorf("%s: %d %s, want %d %q for %q", name, r.StatusCode, r.body, status, code, param)
	}
}

func TestFollowUpsWhoseOwnerIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(says(jsonAnswer(200, respBody("completed", respItem, respUsage))), says(jsonAnswer(200, good))))
		follow := func(id string) reply {
			return g.respond(`{"model":"llama","previous_response_id":"` + id + `","input":"x"}`)
		}
		const code, param = "previous_response_not_found", "previous_response_id"
		refused(t, "unknown replica", follow("resp_1"+tagOf("e9")), 404, code, param)
		refused(t, "no tag", follow("resp_1"), 404, code, param)
		refused(t, "empty", follow(""), 404, code, param)
		refused(t, "no string", g.respond(`{"model":"llama","previous_response_id":7,"input":"x"}`), 400, "", param)
		if n, _ := g.engines[0].seen(); n != 0 {
			t.Errorf("%d requests", n)
		}
		// The process is another one.
		started := func(at float64) {
			r := state.UnknownReading("e1")
			r.OK, r.Started, r.Reader, r.At = true, at, "r1", g.store.Clock().Stamp(time.Now())
			g.store.ApplyReading(r)
			time.Sleep(time.Millisecond)
		}
		started(1.7e9 + 0.25)
		var made struct{ ID string }
		must(t, json.Unmarshal([]byte(g.respond(respAsk).body), &made))
		if r := follow(made.ID); r.StatusCode != 200 {
			t.Errorf("its own process: %d %s", r.StatusCode, r.body)
		}
		started(1.7e9 + 10)
		refused(t, "restarted", follow(made.ID), 404, code, param)
		if r := follow("resp_1" + tagOf("e1")); r.StatusCode != 200 {
			t.Errorf("made when its start was not known: %d %s", r.StatusCode, r.body)
		}
		// Nothing listens there any more.
		g.engines[0].stop()
		time.Sleep(10 * time.Second) // connections that are kept are given up
		refused(t, "unreachable", follow("resp_1"+tagOf("e1")), 404, code, param)
		if n, _ := g.engines[1].seen(); n != 0 {
			t.Errorf("another replica got %d requests", n)
		}
	})
}

// A replica that is there and says no is heard: only it can serve the request.
func TestFollowUpsHearTheirOwnersWords(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		f := func(answer string, status int, want string) {
			t.Helper()
			g := newRig(t, w, handlers(says(jsonAnswer(200, good)), says(answer)))
			r := g.respond(`{"model":"llama","previous_response_id":"resp_1` + tagOf("e2") + `","input":"x"}`)
			if r.StatusCode != status || !strings.Contains(r.body, want) {
				t.Errorf("got %d %s, want %d %s", r.StatusCode, r.body, status, want)
			}
			if n, _ := g.engines[0].seen(); n != 0 {
				t.Errorf("another replica got %d requests", n)
			}
			g.stop()
		}
		f(jsonAnswer(404, `{"error":{"message":"Response with id 'resp_1' not found.","type":"invalid_request_error","param":"response_id","code":404}}`), 404, `"code":"previous_response_not_found"`)
		f(jsonAnswer(404, `{"object":"error","message":"Response with id 'resp_1' not found.","param":"response_id","code":404}`), 404, `"param":"previous_response_id"`)
		f(jsonAnswer(404, `{"error":{"message":"The model does not exist.","code":404}}`), 404, "The model does not exist.")
		f(jsonAnswer(429, `{"error":{"message":"slow","code":429}}`, "Retry-After: 7"), 429, "slow")
		f(jsonAnswer(500, `{"error":{"message":"bad","code":500}}`), 500, "bad")
	})
}

func TestWhatOnlySomeEnginesCanDo(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		f := func(kind state.EngineKind, n int, body string, status int, param string) {
			t.Helper()
			h := says(jsonAnswer(200, respBody("completed", respItem, respUsage)))
			g := newRig(t, w, handlers(h, h)[:n], func(_ *Config, s *poolSpec) { s.Engine = kind })
			r := g.respond(body)
			if status == 200 {
				if r.StatusCode != 200 {
					t.Errorf("%s %s: %d %s", kind, body, r.StatusCode, r.body)
				}
				if got := g.engines[0].bodies; len(got) != 1 || got[0] != body {
					t.Errorf("%s %s: the engine got %q", kind, body, got)
				}
				if kind == state.EngineOpenAI && r.body != respBody("completed", respItem, respUsage) {
					t.Errorf("%s: the answer was changed: %s", kind, r.body)
				}
			} else {
				var b refusalBody
				must(t, json.Unmarshal([]byte(r.body), &b))
				if r.StatusCode != status || b.Error.Param == nil || *b.Error.Param != param {
					t.Errorf("%s %s: %d %s", kind, body, r.StatusCode, r.body)
				}
			}
			g.stop()
		}
		const (
			background   = `{"model":"llama","input":"x","background":true}`
			conversation = `{"model":"llama","input":"x","conversation":"conv_1"}`
			previous     = `{"model":"llama","input":"x","previous_response_id":"resp_1"}`
			nulls        = `{"model":"llama","input":"x","previous_response_id":null,"conversation":null,"background":null}`
		)
		f(state.EngineVLLM, 2, background, 200, "")
		f(state.EngineSGLang, 2, background, 200, "")
		f(state.EngineLlamaCpp, 2, background, 400, "background")
		f(state.EngineOpenAI, 2, background, 200, "")
		f(state.EngineVLLM, 1, conversation, 400, "conversation")
		f(state.EngineOpenAI, 2, conversation, 200, "")
		f(state.EngineOpenAI, 2, previous, 200, "")
		f(state.EngineVLLM, 1, previous, 200, "")
		f(state.EngineVLLM, 2, previous, 404, "previous_response_id")
		f(state.EngineVLLM, 2, nulls, 200, "")
		f(state.EngineAnthropic, 1, respAsk, 400, "model")
		f(state.EngineOpenAI, 2, `{"model":"llama","input":"x","previous_response_id":"resp_1`+tagOf("e1")+`"}`, 200, "") // of a router behind this one
	})
}

// What is kept is had, deleted and cancelled where it is, by its id alone.
func TestStoredResponses(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		whole := respBody("completed", respItem, respUsage)
		h := func(e *engine, in *incoming) bool {
			switch {
			case in.Method == "DELETE":
				return in.write(jsonAnswer(200, `{"id":"resp_1","object":"response.deleted","deleted":true}`)) == nil
			case strings.HasSuffix(in.URL.Path, "/input_items"):
				return in.write(jsonAnswer(200, `{"object":"list","data":[{"id":"resp_1"}],"first_id":"resp_1"}`)) == nil
			case in.URL.Query().Get("stream") == "true":
				return streams(respEvents()[2:]...)(e, in)
			case in.Method == "POST":
				return in.write(jsonAnswer(400, `{"error":{"message":"Cannot cancel a synchronous response.","type":"invalid_request_error","param":"response_id","code":400}}`)) == nil
			}
			return in.write(jsonAnswer(200, strings.Replace(whole, `"previous_response_id":null`, `"previous_response_id":"resp_0"`, 1))) == nil
		}
		g := newRig(t, w, handlers(h, h))
		at := "/v1/responses/resp_1" + tagOf("e2")
		f := func(method, path string, status int, want string) {
			t.Helper()
			r := g.do(method + " " + path + " HTTP/1.1\r\nHost: r\r\nContent-Length: 0\r\n\r\n")
			if r.StatusCode != status || !strings.Contains(r.body, want) || r.err != nil {
				t.Errorf("%s %s: %d %s, %v, want %d %s", method, path, r.StatusCode, r.body, r.err, status, want)
			}
		}
		f("GET", at, 200, strings.Replace(tagged(whole, "e2"), `"previous_response_id":null`, `"previous_response_id":"resp_0`+tagOf("e2")+`"`, 1))
		f("GET", at+"?stream=true&starting_after=1&evil=1%0d%0aX:", 200, tagged(strings.Join(respEvents()[2:], ""), "e2"))
		f("DELETE", at, 200, `{"id":"resp_1`+tagOf("e2")+`","object":"response.deleted","deleted":true}`)
		f("GET", at+"/input_items?limit=5", 200, `{"object":"list","data":[{"id":"resp_1"}],"first_id":"resp_1"}`)
		f("POST", at+"/cancel", 400, "Cannot cancel")
		f("PUT", at, 405, "method_not_allowed")
		f("GET", at+"/cancel", 405, "method_not_allowed")
		f("GET", "/v1/responses", 405, "method_not_allowed")
		f("GET", "/v1/responses/", 404, "unknown_url")
		f("GET", at+"/else", 404, "unknown_url")
		f("POST", "/v1/responses/compact", 404, "unknown_url")
		f("GET", "/v1/responses/resp_1", 404, "response_not_found")
		f("GET", "/v1/responses/resp_1"+tagOf("e9"), 404, "response_not_found")
		f("GET", "/v1/responses/re%20sp"+tagOf("e2"), 404, "response_not_found")
		if n, _ := g.engines[0].seen(); n != 0 {
			t.Errorf("e1 got %d requests", n)
		}
		if got, want := fmt.Sprint(g.engines[1].paths), "[/v1/responses/resp_1 /v1/responses/resp_1 /v1/responses/resp_1 /v1/responses/resp_1/input_items /v1/responses/resp_1/cancel]"; got != want {
			t.Errorf("e2 was asked for %s", got)
		}
		// They were counted when they were made.
		if n := g.metric("hearsay_tokens_total"); n != 0 {
			t.Errorf("%v tokens", n)
		}
		if n := g.metric("hearsay_time_to_first_token_seconds"); n != 0 {
			t.Errorf("%v times to first token", n)
		}
		until(t, "nothing in flight", func() bool { return g.inFlight() == 0 })
	})
}

// A response that is kept is shown in the pool's name where its model is the pool's, and in
// its own where it is an adapter.
func TestStoredResponsesNameTheirModel(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		model := "org/up"
		up := func(s string) string { return strings.ReplaceAll(s, `"model":"llama"`, `"model":"`+model+`"`) }
		g := newRig(t, w, handlers(func(e *engine, in *incoming) bool {
			if in.URL.RawQuery != "" {
				return streams(up(strings.Join(respEvents(), "")))(e, in)
			}
			return in.write(jsonAnswer(200, up(respBody("completed", respItem, respUsage)))) == nil
		}), func(_ *Config, s *poolSpec) { s.UpstreamModel = "org/up" })
		for _, f := range [][2]string{{"org/up", "llama"}, {"a1", "a1"}} {
			model = f[0]
			for _, query := range []string{"", "?stream=true"} {
				r := g.do("GET /v1/responses/resp_1" + tagOf("e1") + query + " HTTP/1.1\r\nHost: r\r\n\r\n")
				if n := strings.Count(r.body, `"model":"`+f[1]+`"`); r.StatusCode != 200 || n == 0 || n != strings.Count(r.body, `"model":`) {
					t.Errorf("%s: %d %s", f[0], r.StatusCode, r.body)
				}
			}
		}
	})
}

// A response that is kept is whole, or is no answer, also where only the connection's end
// ends it; it is asked for without a body or a length of one.
func TestStoredResponsesUntilClose(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		whole := respBody("completed", respItem, respUsage)
		f := func(sent string, status int, want, outcome string) {
			t.Helper()
			g := newRig(t, w, handlers(func(_ *engine, in *incoming) bool {
				if len(in.Header.Values("Content-Length")) != 0 {
					t.Errorf("the engine got %v", in.Header)
				}
				_ = in.write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + sent)
				return false
			}))
			r := g.do("GET /v1/responses/resp_1" + tagOf("e1") + " HTTP/1.1\r\nHost: r\r\n\r\n")
			if r.StatusCode != status || !strings.Contains(r.body, want) {
				t.Errorf("%d %s, want %d %s", r.StatusCode, r.body, status, want)
			}
			until(t, "nothing in flight", func() bool { return g.inFlight() == 0 })
			if s := g.reports.take(); s != outcome {
				t.Errorf("reports %q", s)
			}
			g.stop()
		}
		f(whole, 200, tagged(whole, "e1"), "e1 served")
		f(whole[:len(whole)-9], 502, "upstream_error", "e1 failed")
	})
}

// What a follow-up goes on from is in no body: what an engine says of the whole prompt
// teaches nothing of texts, and nothing of it was predicted.
func TestFollowUpsTeachNoRatio(t *testing.T) {
	text := strings.Repeat("four words of text ", 200)
	inBubble(t, func(t *testing.T, w wire) {
		twice := strings.Replace(respUsage, `"input_tokens":9`, `"input_tokens":2500`, 1)
		g := newRig(t, w, handlers(says(jsonAnswer(200, respBody("completed", respItem, twice)))))
		estimate := func() int {
			x, err := g.srv.Core().Explain(t.Context(), "/v1/responses", []byte(`{"model":"llama","input":"`+text+`"}`))
			must(t, err)
			return x.PromptTokens
		}
		before := estimate()
		for range 30 {
			if r := g.respond(`{"model":"llama","previous_response_id":"resp_1` + tagOf("e1") + `","input":"` + text + `"}`); r.StatusCode != 200 {
				t.Fatal(r.body)
			}
		}
		if n := estimate(); n != before {
			t.Errorf("%d tokens, %d before", n, before)
		}
		if n := g.metric("hearsay_tokens_total", "type", "cached"); n != 120 {
			t.Errorf("%v cached tokens counted", n)
		}
		if n := g.metric("hearsay_reported_cached_tokens_total"); n != 0 {
			t.Errorf("%v cached tokens set against none predicted", n)
		}
	})
}
