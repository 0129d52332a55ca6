package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/hearsay-llm/hearsay/state"
)

// vLLM is asked for its load; what it says is passed on, and stays from the client.
func TestLoadComesWithAnswers(t *testing.T) {
	const header = `endpoint-load-metrics: JSON {"named_metrics": {"kv_cache_usage_perc": 0.25, "num_requests_waiting": 7.0}}`
	f := func(name string, kind state.EngineKind, ranks int, answer string, want string) {
		t.Helper()
		inBubble(t, func(t *testing.T, w wire) {
			asked, heard := "", ""
			g := newRig(t, w, handlers(func(_ *engine, in *incoming) bool {
				asked = in.Header.Get("endpoint-load-metrics-format")
				return in.write(answer) == nil
			}), func(cfg *Config, spec *poolSpec) {
				spec.Engine, spec.DPRanks = kind, ranks
				cfg.Core.Loads = func(r *state.ReplicaView, _ time.Time, kv, waiting float64) {
					heard += fmt.Sprint(r.ID, " ", kv, " ", waiting)
				}
			})
			r := g.chat(ask, "endpoint-load-metrics-format: TEXT")
			if r.StatusCode != 200 || r.Header.Get("endpoint-load-metrics") != "" {
				t.Errorf("%s: %d, %v", name, r.StatusCode, r.Header)
			}
			if wants := kind == state.EngineVLLM && ranks < 2; (asked == "JSON") != wants || !wants && asked != "" {
				t.Errorf("%s: asked for %q", name, asked)
			}
			if heard != want {
				t.Errorf("%s: heard %q, want %q", name, heard, want)
			}
		})
	}
	f("vllm", state.EngineVLLM, 0, jsonAnswer(200, good, header), "e1 0.25 7")
	f("vllm that says nothing", state.EngineVLLM, 0, jsonAnswer(200, good), "")
	f("vllm that says nonsense", state.EngineVLLM, 0, jsonAnswer(200, good, "endpoint-load-metrics: JSON {"), "")
	f("another engine", state.EngineSGLang, 0, jsonAnswer(200, good, header), "")
	f("one rank of several", state.EngineVLLM, 2, jsonAnswer(200, good, header), "")
}

// Each rank is asked for by header, and for SGLang in the body too, where it wins
// over what a client wrote.
func TestRanksAreAskedFor(t *testing.T) {
	f := func(name string, kind state.EngineKind, ask string, inBody bool) {
		t.Helper()
		inBubble(t, func(t *testing.T, w wire) {
			var header, body []string
			g := newRig(t, w, handlers(func(_ *engine, in *incoming) bool {
				header = append(header, in.Header.Get("X-Data-Parallel-Rank"))
				body = append(body, string(in.body))
				return in.write(jsonAnswer(503, "{}")) == nil
			}), func(_ *Config, spec *poolSpec) { spec.Engine, spec.DPRanks, spec.RetryAttempts = kind, 2, 2 })
			g.chat(ask, "X-Data-Parallel-Rank: 9")
			if len(header) != 2 || header[0] != "0" || header[1] != "1" {
				t.Fatalf("%s: ranks %q", name, header)
			}
			for i, b := range body {
				if !gjson.Valid(b) {
					t.Errorf("%s: %s", name, b)
				}
				last := gjson.Result{} // as Python reads it
				gjson.Parse(b).ForEach(func(k, v gjson.Result) bool {
					if k.Str == "data_parallel_rank" {
						last = v
					}
					return true
				})
				if last.Exists() != inBody || inBody && last.Int() != int64(i) {
					t.Errorf("%s: attempt %d has %s", name, i, b)
				}
			}
		})
	}
	f("vllm", state.EngineVLLM, ask, false)
	f("sglang", state.EngineSGLang, ask, true)
	f("sglang, streamed", state.EngineSGLang, askStream, true)
	f("sglang, spaces at the end", state.EngineSGLang, ask+" \n", true)
	f("sglang, a client's own", state.EngineSGLang, strings.TrimSuffix(ask, "}")+`,"data_parallel_rank":7}`, true)
}

// What failed at one rank is tried at another process, and at a sibling only when
// there is none.
func TestRetryLeavesTheProcess(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(says(jsonAnswer(500, "{}")), says(jsonAnswer(200, good))),
			func(_ *Config, spec *poolSpec) { spec.DPRanks, spec.RetryAttempts = 2, 2 })
		if r := g.chat(ask); r.StatusCode != 200 {
			t.Errorf("status %d: %s", r.StatusCode, g.reports.take())
		}
		if got := g.reports.take(); got != "e1#0 failed, e2#0 served" {
			t.Errorf("tried: %s", got)
		}
	})
}
