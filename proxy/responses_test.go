package proxy

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
)

const (
	respAsk    = `{"model":"llama","instructions":"Be terse.","input":"Hello there"}`
	respStream = `{"model":"llama","stream":true,"input":[{"role":"user","content":"Hello there"}]}`
	respItem   = `{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hi","annotations":[]}]}`
	respUsage  = `"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":12}`
)

// respBody is a response as an engine writes it.
func respBody(status, output, usage string) string {
	return `{"id":"resp_1","object":"response","created_at":1,"error":null,"model":"llama","output":[` + output + `],"previous_response_id":null,"status":"` + status + `",` + usage + `}`
}

// typed is an event of Responses.
func typed(kind, fields string) string {
	return "event: " + kind + "\ndata: {\"type\":\"" + kind + "\"," + fields + "}\n\n"
}

// respEvents is a whole stream.
func respEvents() []string {
	return []string{
		typed("response.created", `"sequence_number":0,"response":`+respBody("in_progress", "", `"usage":null`)),
		typed("response.in_progress", `"sequence_number":1,"response":`+respBody("in_progress", "", `"usage":null`)),
		typed("response.output_item.added", `"sequence_number":2,"output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","status":"in_progress","content":[]}`),
		typed("response.output_text.delta", `"sequence_number":3,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hi"`),
		typed("response.output_item.done", `"sequence_number":4,"output_index":0,"item":`+respItem),
		typed("response.completed", `"sequence_number":5,"response":`+respBody("completed", respItem, respUsage)),
	}
}

// tagOf is the tag that the rig's router gives ids of a replica whose start is not known.
func tagOf(replica string) string { return api.Tag{Owner: api.OwnerOf("chat", replica)}.String() }

// tagged is an engine's answer as the client sees it.
func tagged(s, replica string) string {
	return strings.ReplaceAll(s, `"resp_1"`, `"resp_1`+tagOf(replica)+`"`)
}

func (g *rig) respond(body string, fields ...string) reply {
	g.t.Helper()
	return g.do(post("/v1/responses", body, fields...))
}

func TestResponsesTravelAsTheyAre(t *testing.T) {
	over(t, func(t *testing.T, w wire) {
		whole := respBody("completed", respItem, respUsage)
		g := newRig(t, w, handlers(func(_ *engine, in *incoming) bool {
			if in.URL.Path != "/v1/responses" {
				return in.write(jsonAnswer(404, `{"detail":"Not Found"}`)) == nil
			}
			if strings.Contains(string(in.body), `"stream":true`) {
				return streams(respEvents()...)(nil, in)
			}
			return in.write(jsonAnswer(200, whole)) == nil
		}))
		if r := g.respond(respAsk); r.StatusCode != 200 || r.body != tagged(whole, "e1") || r.err != nil {
			t.Errorf("got %d %s, %v", r.StatusCode, r.body, r.err)
		}
		if r := g.respond(respStream); r.body != tagged(strings.Join(respEvents(), ""), "e1") || r.err != nil {
			t.Errorf("got %s, %v", r.body, r.err)
		}
		if got := g.engines[0].bodies; got[0] != respAsk || got[1] != respStream {
			t.Errorf("the engine got %q", got)
		}
		until(t, "nothing in flight", func() bool { return g.inFlight() == 0 })
		for kind, want := range map[string]float64{"input": 18, "cached": 8, "output": 6} {
			if n := g.metric("hearsay_tokens_total", "type", kind); n != want {
				t.Errorf("%v %s tokens", n, kind)
			}
		}
		if n := g.metric("hearsay_usage_records_total", "source", "reported"); n != 2 {
			t.Errorf("%v records", n)
		}
		if s := g.reports.take(); s != "e1 served, e1 served" {
			t.Errorf("reports %q", s)
		}
	})
}

// A past response is found by its own id, as the client got it or as its engine knows it.
func TestPicksAreFoundByResponse(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(func(_ *engine, in *incoming) bool {
			if strings.Contains(string(in.body), `"stream":true`) {
				return streams(strings.ReplaceAll(strings.Join(respEvents(), ""), "resp_1", "resp_2"))(nil, in)
			}
			return in.write(jsonAnswer(200, respBody("completed", respItem, respUsage))) == nil
		}))
		g.respond(respAsk, "x-request-id: whole")
		g.respond(respStream, "x-request-id: stream")
		f := func(id, request string) {
			t.Helper()
			if p := g.srv.Picks().Of(id); len(p) != 1 || p[0].RequestID != request {
				t.Errorf("%s: %+v", id, p)
			}
		}
		f("resp_1", "whole")
		f("resp_1"+tagOf("e1"), "whole")
		f("resp_2"+tagOf("e1"), "stream")
		if p := g.srv.Picks().Of("resp_3"); len(p) != 0 {
			t.Errorf("resp_3: %+v", p)
		}
		if p := g.srv.Picks().Of(""); len(p) != 0 {
			t.Errorf("no id: %+v", p)
		}
	})
}

// The model is asked for and shown by its two names, in a body and in every event.
func TestResponsesAreRenamed(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		up := func(s string) string { return strings.ReplaceAll(s, `"model":"llama"`, `"model":"org/up"`) }
		whole := respBody("completed", respItem, respUsage)
		g := newRig(t, w, handlers(func(_ *engine, in *incoming) bool {
			if strings.Contains(string(in.body), `"stream":true`) {
				return streams(up(strings.Join(respEvents(), "")))(nil, in)
			}
			return in.write(jsonAnswer(200, up(whole))) == nil
		}), func(_ *Config, s *poolSpec) { s.UpstreamModel = "org/up" })
		fast := func(s string) string { return strings.ReplaceAll(s, `"model":"llama"`, `"model":"fast"`) }
		if r := g.respond(fast(respAsk)); r.body != fast(tagged(whole, "e1")) {
			t.Errorf("got %s", r.body)
		}
		if r := g.respond(fast(respStream)); r.body != fast(tagged(strings.Join(respEvents(), ""), "e1")) {
			t.Errorf("got %s", r.body)
		}
		if got := g.engines[0].bodies; got[0] != up(respAsk) || got[1] != up(respStream) {
			t.Errorf("the engine got %q", got)
		}
	})
}

// Events that only announce an answer are no answer: what fails behind them is tried
// elsewhere, and no time limit of an answer under way is theirs.
func TestAnnouncementsAreNoAnswer(t *testing.T) {
	all := strings.Join(respEvents(), "")
	announce := strings.Join(respEvents()[:2], "")
	inBubble(t, func(t *testing.T, w wire) {
		f := func(name string, first func(*engine, *incoming) bool) {
			t.Helper()
			g := newRig(t, w, handlers(first, streams(all)))
			if r := g.respond(respStream); r.StatusCode != 200 || r.body != tagged(all, "e2") || r.err != nil {
				t.Errorf("%s: %d %s, %v", name, r.StatusCode, r.body, r.err)
			}
			if s := g.reports.take(); s != "e1 failed, e2 served" {
				t.Errorf("%s: reports %q", name, s)
			}
			g.stop()
		}
		f("reset", then(streamHead+chunk(announce), reset))
		f("an error", streams(announce, typed("error", `"sequence_number":2,"code":"server_error","message":"m","param":null`)))
		f("vLLM's error", streams(announce, errorEvent))
		f("nothing more", streams(announce))
		f("nothing", streams())

		// Prefill takes longer than an answer may pause.
		slow := func(_ *engine, in *incoming) bool {
			_ = in.write(streamHead + chunk(announce))
			time.Sleep(20 * time.Second)
			return in.write(chunk(strings.Join(respEvents()[2:], ""))+lastChunk) == nil
		}
		g := newRig(t, w, handlers(slow))
		began := time.Now()
		if r := g.respond(respStream); r.body != tagged(all, "e1") || r.err != nil {
			t.Errorf("slow: %s, %v", r.body, r.err)
		}
		if d := time.Since(began); d < 20*time.Second || g.metric("hearsay_time_to_first_token_seconds") != 1 {
			t.Errorf("slow: %v", d)
		}
		families, err := g.reg.Gather()
		must(t, err)
		for _, x := range families {
			if x.GetName() == "hearsay_time_to_first_token_seconds" {
				if s := x.GetMetric()[0].GetHistogram().GetSampleSum(); s < 20 {
					t.Errorf("time to first token %v s", s)
				}
			}
		}
		g.stop()
		// In the background the id is wanted at once.
		g = newRig(t, w, handlers(then(streamHead+chunk(announce), reset), streams(all)))
		if r := g.respond(strings.Replace(respStream, "{", `{"background":true,`, 1)); !strings.HasPrefix(r.body, tagged(announce, "e1")) || r.err == nil {
			t.Errorf("background: %s, %v", r.body, r.err)
		}
	})
}

// A stream that breaks ends with an event of the API's own, whose number follows.
func TestBrokenResponses(t *testing.T) {
	over(t, func(t *testing.T, w wire) {
		head := strings.Join(respEvents()[:4], "")
		f := func(name string, h func(*engine, *incoming) bool, outcome string) {
			t.Helper()
			g := newRig(t, w, handlers(h, h))
			r := g.respond(respStream)
			rest, ok := strings.CutPrefix(r.body, tagged(head, "e1"))
			want := "event: error\ndata: {\"type\":\"error\",\"code\":\"upstream_error\",\"message\":\"The model's replica failed while answering. Try again.\",\"param\":null,\"sequence_number\":4}\n\n"
			if !ok || rest != want || r.err == nil {
				t.Errorf("%s: got %q, %v", name, r.body, r.err)
			}
			until(t, "nothing in flight", func() bool { return g.inFlight() == 0 })
			if s := g.reports.take(); s != outcome {
				t.Errorf("%s: reports %q", name, s)
			}
			g.stop()
		}
		if _, ok := w.(sim); ok {
			f("reset", then(streamHead+chunk(head), reset), "e1 failed")
		}
		f("cut", then(streamHead+chunk(head), nil), "e1 failed")
		f("within an event", then(streamHead+chunk(head+"event: response.comp"), nil), "e1 failed")
		f("ended in order without an end", streams(head), "e1 failed")
		last := respEvents()[5]
		f("within the last event", then(sseHead+"Connection: close\r\n\r\n"+head+last[:len(last)-20], nil), "e1 failed")
		f("within the last event, ended in order", streams(head+last[:len(last)-20]), "e1 failed")
		f("until close", then(sseHead+"Connection: close\r\n\r\n"+head, nil), "e1 failed")
	})
}

// Every way a stream can end by the API.
func TestEndsOfResponses(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		head := strings.Join(respEvents()[:4], "")
		f := func(end, outcome string, tokens float64) {
			t.Helper()
			g := newRig(t, w, handlers(then(streamHead+chunk(head+end), silence)))
			began := time.Now()
			if r := g.respond(respStream); r.body != tagged(head+end, "e1") {
				t.Errorf("%s: got %q, %v", end, r.body, r.err)
			}
			if d := time.Since(began); d > 8*time.Second {
				t.Errorf("%s: took %v", end, d)
			}
			until(t, "nothing in flight", func() bool { return g.inFlight() == 0 })
			if s := g.reports.take(); s != outcome {
				t.Errorf("%s: reports %q", end, s)
			}
			if n := g.metric("hearsay_tokens_total", "type", "input"); n != tokens {
				t.Errorf("%s: %v tokens", end, n)
			}
			g.stop()
		}
		last := func(kind, body string) string { return typed(kind, `"sequence_number":4,"response":`+body) }
		f(last("response.completed", respBody("completed", respItem, respUsage)), "e1 served", 9)
		f(last("response.incomplete", respBody("incomplete", respItem, respUsage)), "e1 served", 9)
		failed := strings.Replace(respBody("failed", "", respUsage), `"error":null`, `"error":{"code":"server_error","message":"m"}`, 1)
		f(last("response.failed", failed), "e1 failed", 9)
		f(last("response.failed", strings.Replace(failed, "server_error", "invalid_prompt", 1)), "e1 rejected", 9)
		// The name alone in the data, as proxies leave it.
		nameless := "data: {\"type\":\"response.completed\",\"response\":" + respBody("completed", respItem, respUsage) + "}\n\n"
		f(nameless, "e1 served", 9)
	})
}

// A response that failed is an answer: it has an id, and what it says is for the client.
func TestWholeResponseThatFailed(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		failed := strings.Replace(respBody("failed", "", respUsage), `"error":null`, `"error":{"code":"server_error","message":"m"}`, 1)
		g := newRig(t, w, handlers(says(jsonAnswer(200, failed)), says(jsonAnswer(200, good))))
		if r := g.respond(respAsk); r.StatusCode != 200 || r.body != tagged(failed, "e1") {
			t.Errorf("got %d %s", r.StatusCode, r.body)
		}
		g.stop()
		g = newRig(t, w, handlers(says(jsonAnswer(200, `{"error":{"message":"m","code":500}}`)), says(jsonAnswer(200, respBody("completed", respItem, respUsage)))))
		if r := g.respond(respAsk); r.StatusCode != 200 || r.body != tagged(respBody("completed", respItem, respUsage), "e2") {
			t.Errorf("got %d %s", r.StatusCode, r.body)
		}
	})
}

// Comments go out while a response is waited for, also behind its announcements, which
// the client gets once there is an answer.
func TestHeartbeatsOfResponses(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		announce, rest := strings.Join(respEvents()[:2], ""), strings.Join(respEvents()[2:], "")
		slow := func(_ *engine, in *incoming) bool {
			_ = in.write(streamHead + chunk(announce))
			time.Sleep(3500 * time.Millisecond)
			return in.write(chunk(rest)+lastChunk) == nil
		}
		beat := func(_ *Config, s *poolSpec) { s.Heartbeat = time.Second }
		g := newRig(t, w, handlers(slow), beat)
		if r := g.respond(respStream); r.body != strings.Repeat(comment, 3)+tagged(announce+rest, "e1") || r.err != nil {
			t.Errorf("got %q, %v", r.body, r.err)
		}
		g.stop()
		g = newRig(t, w, handlers(func(_ *engine, in *incoming) bool {
			time.Sleep(1500 * time.Millisecond)
			return in.write(jsonAnswer(400, `{"error":{"message":"bad","type":"invalid_request_error","code":400}}`)) == nil
		}), beat)
		r := g.respond(respStream)
		if ok, _ := regexp.MatchString(`^: waiting\n\nevent: error\ndata: {"type":"error",.*"message":"bad".*"sequence_number":0}\n\n$`, r.body); !ok {
			t.Errorf("got %q", r.body)
		}
	})
}

// A client that leaves takes its request with it, in every phase.
func TestClientLeavesAResponse(t *testing.T) {
	over(t, func(t *testing.T, w wire) {
		for _, sent := range []int{0, 2, 4} {
			head := ""
			if sent > 0 {
				head = streamHead + chunk(strings.Join(respEvents()[:sent], ""))
			}
			g := newRig(t, w, handlers(then(head, silence)))
			c := g.conn()
			_, err := c.Write([]byte(post("/v1/responses", respStream)))
			must(t, err)
			until(t, "it is there", func() bool { n, _ := g.engines[0].seen(); return n == 1 })
			_ = c.Close()
			until(t, "the engine saw the close", func() bool { _, n := g.engines[0].seen(); return n == 1 })
			until(t, "nothing in flight", func() bool { return g.inFlight() == 0 })
			g.stop()
		}
	})
}

// The next turn, sent whole, finds the marks of the answer: streamed or not.
func TestAnswersOfResponsesAreRemembered(t *testing.T) {
	long := strings.Repeat("word and ", 200)
	item := strings.Replace(respItem, "Hi", long, 1)
	call := `{"id":"fc_1","type":"function_call","status":"completed","call_id":"c1","name":"weather","arguments":"{\"place\":\"` + long + `\"}"}`
	body := respBody("completed", item+","+call, respUsage)
	inBubble(t, func(t *testing.T, w wire) {
		f := func(name, ask string, h func(*engine, *incoming) bool) {
			t.Helper()
			g := newRig(t, w, handlers(h), func(cfg *Config, _ *poolSpec) { cfg.Core.Picker = nil })
			if r := g.respond(ask); r.StatusCode != 200 {
				t.Fatalf("%s: %d %s", name, r.StatusCode, r.body)
			}
			until(t, "nothing in flight", func() bool { return g.inFlight() == 0 })
			next := `{"model":"llama","input":[{"role":"user","content":"Hello there"},{"role":"assistant","content":"` + long + `"},` + call +
				`,{"type":"function_call_output","call_id":"c1","output":"sunny"}]}`
			x, err := g.srv.Core().Explain(t.Context(), "/v1/responses", []byte(next))
			must(t, err)
			if x.MatchedTokens < 3*x.PromptTokens/4 {
				t.Errorf("%s: %d of %d tokens matched", name, x.MatchedTokens, x.PromptTokens)
			}
			g.stop()
		}
		f("whole", strings.Replace(respStream, `"stream":true,`, "", 1), says(jsonAnswer(200, body)))
		f("streamed", respStream, streams(append(respEvents()[:4], typed("response.completed", `"sequence_number":4,"response":`+body))...))
	})
}
