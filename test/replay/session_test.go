package replay

import (
	"encoding/json"
	"net/http"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/test/traces"
)

func TestUnreportedCacheIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{cached: -1}
		r := run(t, t.Context(), serve(t, e.ServeHTTP), Config{Source: every(time.Second, 2, 1)})
		if r.HitRate != nil || r.UsageReports != 2 || r.CachedReports != 0 {
			t.Errorf("hit rate %v of %d reports", r.HitRate, r.UsageReports)
		}
	})
}

func TestSessionsCarryTheAnswersReallyGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, err := traces.Agents(traces.AgentsConfig{
			Sessions: 1, Turns: traces.Range{Min: 3, Max: 3}, OutputTokens: traces.Range{Min: 3, Max: 3}, Tools: 2,
			Think: time.Millisecond, RealAnswers: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		e := &engine{ttft: 5 * time.Second} // far slower than the trace plans with
		r := run(t, t.Context(), serve(t, e.ServeHTTP), Config{Source: src, SendSession: true, IgnoreEOS: true})
		if r.OK != 3 || r.HeldTurns != 2 || r.Lateness.Max != 0 {
			t.Fatalf("ok %d, held %d, late %v: %v", r.OK, r.HeldTurns, r.Lateness.Max, r.ErrorExamples)
		}
		last := e.bodies[2]
		if len(last.Messages) != 6 || last.Messages[2].Content != "w0 w1 w2 " || last.Messages[4].Content != "w0 w1 w2 " {
			t.Errorf("last turn is %+v", last.Messages)
		}
		if len(last.Tools) != 2 || !last.IgnoreEOS {
			t.Errorf("%d tools, ignore_eos %v", len(last.Tools), last.IgnoreEOS)
		}
		if got := e.header[0].Get("x-session-id"); got != "replay-1" {
			t.Errorf("session header is %q", got)
		}
	})
}

func TestAFailedTurnLeavesItsStandIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, err := traces.Agents(traces.AgentsConfig{Sessions: 1, Turns: traces.Range{Min: 2, Max: 2}, RealAnswers: true})
		if err != nil {
			t.Fatal(err)
		}
		e, first := &engine{}, true
		r := run(t, t.Context(), serve(t, func(w http.ResponseWriter, r *http.Request) {
			if first {
				first = false
				http.Error(w, `{"error":{"message":"full"}}`, http.StatusTooManyRequests)
				return
			}
			e.ServeHTTP(w, r)
		}), Config{Source: src})
		if r.OK != 1 || r.ErrorsByKind["http_429"] != 1 || r.ErrorExamples["http_429"] != "full" {
			t.Fatalf("ok %d, errors %v %v", r.OK, r.ErrorsByKind, r.ErrorExamples)
		}
		if m := e.bodies[0].Messages; len(m) != 4 || len(m[2].Content) < 50 {
			t.Errorf("second turn is %+v", m)
		}
	})
}

func TestBothEndpointsGetWholeBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{}
		var paths []string
		n := serve(t, func(w http.ResponseWriter, r *http.Request) {
			paths = append(paths, r.URL.Path)
			e.ServeHTTP(w, r)
		})
		run(t, t.Context(), n, Config{Source: every(time.Second, 1, 7), APIKey: "secret"})
		run(t, t.Context(), n, Config{Source: every(time.Second, 1, 7), Endpoint: Completions})
		want := string(traces.Text{}.Append(nil, 0, 20))
		chat, plain := e.bodies[0], e.bodies[1]
		if paths[0] != "/v1/chat/completions" || paths[1] != "/v1/completions" {
			t.Errorf("paths are %v", paths)
		}
		for _, b := range e.bodies {
			if b.Model != "m" || b.MaxTokens != 7 || !b.Stream || !b.StreamOptions.IncludeUsage || b.IgnoreEOS {
				t.Errorf("body is %+v", b)
			}
		}
		if len(chat.Messages) != 1 || chat.Messages[0].Content != want || plain.Prompt != want {
			t.Errorf("prompts are %+v and %q", chat.Messages, plain.Prompt)
		}
		if e.header[0].Get("Authorization") != "Bearer secret" || e.header[1].Get("Authorization") != "" {
			t.Error("the key is not sent as configured")
		}
	})
}

func TestEqualSeedsSendEqualBodies(t *testing.T) {
	bodies := func() (all []string) {
		trace, err := traces.Open(traces.MooncakeConversation, traces.OpenConfig{Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		defer trace.Close()
		for range 50 {
			r, err := trace.Next()
			if err != nil {
				t.Fatal(err)
			}
			body := appendBody(nil, r, &Config{Model: "a \"quoted\" model", Endpoint: Chat})
			if !json.Valid(body) {
				t.Fatalf("body is no JSON: %.200s", body)
			}
			all = append(all, string(body))
		}
		return all
	}
	if a, b := bodies(), bodies(); !reflect.DeepEqual(a, b) {
		t.Error("bodies differ")
	}
}
