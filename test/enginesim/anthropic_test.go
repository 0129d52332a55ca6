package enginesim

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Errors of the Messages API have its shape on every kind, and the kind's names.
func TestMessageErrors(t *testing.T) {
	const (
		hi    = `"messages":[{"role":"user","content":"hi"}]`
		basic = `{"model":"m","max_tokens":3,` + hi
	)
	f := func(kind Kind, name, body string, status int, kindOf, message string) {
		t.Helper()
		cfg := kindConfig(kind)
		cfg.MaxModelLen, cfg.MaxBodyBytes = 200, 5000
		bubble(t, cfg, func(t *testing.T, s *sim) {
			got, b := s.post(messagesPath, body, anthropicHeader...)
			e := fields(t, b)
			inner, _ := e["error"].(jsonObject)
			if got != status || e["type"] != "error" || inner["type"] != kindOf || !strings.Contains(inner["message"].(string), message) || len(inner) != 2 {
				t.Errorf("%s on %s: %d %s, want %d %s", name, kind, got, b, status, kindOf)
			}
			if id, ok := e["request_id"]; ok != (kind == Anthropic) || ok && id == "" {
				t.Errorf("%s on %s: request id %v", name, kind, id)
			}
			if rec := s.Record(); rec.Received != 1 || rec.Executed != 0 || rec.Requests[0].Outcome != OutcomeRejected {
				t.Errorf("%s on %s: record %+v", name, kind, rec)
			}
		})
	}
	bad := map[Kind]string{VLLM: "BadRequestError", SGLang: "invalid_request_error", Anthropic: "invalid_request_error"}
	for _, k := range messageKinds {
		f(k, "no JSON", `{`, 400, bad[k], "JSON")
		f(k, "no model", `{"max_tokens":3,`+hi+`}`, 400, bad[k], "model")
		f(k, "no limit", `{"model":"m",`+hi+`}`, 400, bad[k], "max_tokens: Field required")
		f(k, "limit of zero", `{"model":"m","max_tokens":0,`+hi+`}`, 400, bad[k], "max_tokens")
		f(k, "no messages", `{"model":"m","max_tokens":3}`, 400, bad[k], "messages: Field required")
		f(k, "empty messages", `{"model":"m","max_tokens":3,"messages":[]}`, 400, bad[k], "at least one message")
		f(k, "messages of another type", `{"model":"m","max_tokens":3,"messages":"hi"}`, 400, bad[k], "messages")
		f(k, "no role", `{"model":"m","max_tokens":3,"messages":[{"content":"hi"}]}`, 400, bad[k], "messages.0.role")
		f(k, "unknown role", `{"model":"m","max_tokens":3,"messages":[{"role":"tool","content":"hi"}]}`, 400, bad[k], "messages.0.role")
		f(k, "no content", `{"model":"m","max_tokens":3,"messages":[{"role":"user"}]}`, 400, bad[k], "messages.0.content")
		f(k, "block without a type", `{"model":"m","max_tokens":3,"messages":[{"role":"user","content":[{"text":"x"}]}]}`, 400, bad[k], "messages.0.content.0.type")
		f(k, "image without a source", `{"model":"m","max_tokens":3,"messages":[{"role":"user","content":[{"type":"image"}]}]}`, 400, bad[k], "source")
		f(k, "result without its call", `{"model":"m","max_tokens":3,"messages":[{"role":"user","content":[{"type":"tool_result"}]}]}`, 400, bad[k], "tool_use_id")
		f(k, "system of another type", basic+`,"system":3}`, 400, bad[k], "system")
		f(k, "unknown tool", basic+`,"tool_choice":{"type":"tool","name":"x"},"tools":[{"name":"y","input_schema":{}}]}`, 400, bad[k], "not found")
		f(k, "choice without tools", basic+`,"tool_choice":{"type":"any"}}`, 400, bad[k], "tool_choice")
		f(k, "choice of another type", basic+`,"tool_choice":{"type":"all"}}`, 400, bad[k], "tool_choice.type")
		f(k, "thinking of another type", basic+`,"thinking":{"type":"deep"}}`, 400, bad[k], "thinking")
		f(k, "thinking without a budget", basic+`,"thinking":{"type":"enabled"}}`, 400, bad[k], "budget_tokens")
		f(k, "blank stop sequence", basic+`,"stop_sequences":[" "]}`, 400, bad[k], "stop_sequences")
		f(k, "prompt and limit too long", `{"model":"m","max_tokens":1000,`+hi+`}`, 400, bad[k], "maximum context length is 200")
	}
	f(VLLM, "unknown model", `{"model":"x","max_tokens":3,`+hi+`}`, 404, "NotFoundError", "`x`")
	f(Anthropic, "unknown model", `{"model":"x","max_tokens":3,`+hi+`}`, 404, "not_found_error", "model: x")
	f(Anthropic, "unknown field", basic+`,"rid":"1"}`, 400, "invalid_request_error", "rid: Extra inputs are not permitted")
	f(Anthropic, "small budget", basic+`,"thinking":{"type":"enabled","budget_tokens":10}}`, 400, "invalid_request_error", "1024")
	f(Anthropic, "budget above the limit", basic+`,"thinking":{"type":"enabled","budget_tokens":2000}}`, 400, "invalid_request_error", "max_tokens")
	f(Anthropic, "thoughts before a forced call", basic+`,"thinking":{"type":"adaptive"},"tool_choice":{"type":"any"},"tools":[{"name":"y","input_schema":{}}]}`,
		400, "invalid_request_error", "Thinking")
	f(Anthropic, "body too large", basic+`,"system":"`+strings.Repeat("x", 5000)+`"}`, 413, "request_too_large", "too large")
}

// What only the older version of the API takes.
func TestAnthropicVersions(t *testing.T) {
	bubble(t, kindConfig(Anthropic), func(t *testing.T, s *sim) {
		f := func(body, refusal string) {
			t.Helper()
			for _, path := range []string{messagesPath, countTokensPath} {
				for version, want := range map[string]int{version2023: 200, version2026: 400} {
					if refusal == "" {
						want = 200
					}
					got, b := s.post(path, body, "x-api-key", "k", "anthropic-version", version)
					if got != want || want == 400 && !strings.Contains(b, refusal) {
						t.Errorf("%s %s: %d %s", version, body, got, b)
					}
				}
			}
		}
		ask := func(messages, more string) string {
			return `{"model":"m","max_tokens":1,"messages":[` + messages + `]` + more + `}`
		}
		const hi = `{"role":"user","content":"hi"}`
		f(ask(hi, ``), "")
		f(ask(hi, `,"temperature":1`), "temperature: Extra inputs are not permitted")
		f(ask(hi, `,"top_p":null`), "top_p: Extra inputs are not permitted")
		f(ask(hi, `,"top_k":5`), "top_k: Extra inputs are not permitted")
		const document = `{"type":"document","source":{"type":"text","media_type":"text/plain","data":"x"}}`
		f(ask(`{"role":"user","content":[`+document+`]}`, ``), "")
		f(ask(hi+`,{"role":"assistant","content":[`+document+`]}`, ``), "assistant")
		f(ask(`{"role":"user","content":[{"type":"text","text":"x","citations":[]}]}`, ``), "")
		f(ask(`{"role":"user","content":[{"type":"text","text":"x","citations":[{"type":"char_location"}]}]}`, ``), "citations")
		f(ask(`{"role":"user","content":[{"type":"search_result","content":[{"type":"text","text":"x","citations":[{}]}]}]}`, ``), "citations")
		f(ask(hi+`,{"role":"assistant","content":[{"type":"text","text":"x","citations":[{}]}]}`, ``), "")
	})
}

// What engines ignore they ignore here.
func TestUnknownMessageFields(t *testing.T) {
	for _, kind := range []Kind{VLLM, SGLang} {
		bubble(t, kindConfig(kind), func(_ *testing.T, s *sim) {
			s.message(`{"model":"m","max_tokens":3,"messages":[{"role":"user","content":"hi"}],"rid":"1","metadata":{"user_id":"u"}}`)
		})
	}
}

// A fault's status is Anthropic's error of that status.
func TestMessageFaultStatus(t *testing.T) {
	f := func(status int, kind string) {
		t.Helper()
		bubble(t, kindConfig(Anthropic), func(t *testing.T, s *sim) {
			if err := s.SetFault(Fault{Kind: FaultStatus, Status: status, RetryAfter: 7, Count: 1}); err != nil {
				t.Fatal(err)
			}
			resp, err := s.do(context.Background(), "POST", messagesPath, hiMessage, anthropicHeader...)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			e := fields(t, string(b))
			if resp.StatusCode != status || e["type"] != "error" || e["error"].(jsonObject)["type"] != kind || e["request_id"] != resp.Header.Get("request-id") ||
				resp.Header.Get("Retry-After") != "7" {
				t.Errorf("%d: %d %s %v", status, resp.StatusCode, b, resp.Header)
			}
			s.message(hiMessage) // the fault is over
		})
	}
	f(400, "invalid_request_error")
	f(401, "authentication_error")
	f(402, "billing_error")
	f(403, "permission_error")
	f(404, "not_found_error")
	f(409, "conflict_error")
	f(413, "request_too_large")
	f(422, "invalid_request_error")
	f(429, "rate_limit_error")
	f(500, "api_error")
	f(503, "api_error")
	f(504, "timeout_error")
	f(529, "overloaded_error")
}

// A stream that fails on command ends with an error event, in the shape of its API.
func TestStreamErrorFault(t *testing.T) {
	f := func(kind Kind, path string, after, status int, tail string) {
		t.Helper()
		bubble(t, kindConfig(kind), func(t *testing.T, s *sim) {
			if err := s.SetFault(Fault{Kind: FaultStreamError, Status: status, AfterEvents: after, Count: 1}); err != nil {
				t.Fatal(err)
			}
			body := strings.TrimSuffix(hiMessage, "}") + `,"stream":true}`
			got, b := s.post(path, body, anthropicHeader...) // a body that is cut short fails the test
			if head, _, ok := strings.Cut(b, tail); got != 200 || !ok || !strings.HasSuffix(b, tail) || strings.Count(head, "\n\n") != after {
				t.Errorf("%s %s after %d: %d %s", kind, path, after, got, b)
			}
			if rec := s.Record(); rec.Requests[0].Outcome != OutcomeFault || rec.Requests[0].Events != after+1 || s.Load().Running != 0 {
				t.Errorf("%s %s after %d: %+v", kind, path, after, rec.Requests[0])
			}
			if _, b = s.post(path, body, anthropicHeader...); strings.Contains(b, "simulated failure") {
				t.Errorf("the fault is not over: %s", b)
			}
			if err := s.SetFault(Fault{Kind: FaultStreamError, Status: status, AfterEvents: after, Count: 1}); err != nil {
				t.Fatal(err)
			}
			want := status
			if want == 0 {
				want = 500
			}
			if got, b := s.post(path, hiMessage, anthropicHeader...); got != want || !strings.Contains(b, "simulated failure") {
				t.Errorf("whole: %d %s", got, b)
			}
		})
	}
	const overloaded = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"simulated failure\"}}\n\n"
	for _, after := range []int{0, 1, 2, 4} {
		f(SGLang, messagesPath, after, 529, overloaded)
		f(VLLM, messagesPath, after, 0, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"Internal Server Error\",\"message\":\"simulated failure\"}}\n\n")
	}
	for _, after := range []int{0, 1, 2} {
		f(VLLM, chatPath, after, 0, `data: {"error":{"message":"simulated failure","type":"Internal Server Error","param":null,"code":500}}`+"\n\ndata: [DONE]\n\n")
	}
	bubble(t, kindConfig(Anthropic), func(t *testing.T, s *sim) {
		if err := s.SetFault(Fault{Kind: FaultStreamError, Status: 529, AfterEvents: 4}); err != nil {
			t.Fatal(err)
		}
		events := s.messageEvents(hiMessage)
		last := events[len(events)-1]
		if len(events) != 5 || last["type"] != "error" || last["error"].(jsonObject)["type"] != "overloaded_error" || last["request_id"] == nil {
			t.Errorf("%v", events)
		}
	})
}

// Anthropic's kind has its own paths and no others, and wants its headers.
func TestAnthropicPathsAndHeaders(t *testing.T) {
	cfg := kindConfig(Anthropic)
	cfg.Adapters = []string{"a", "b"}
	bubble(t, cfg, func(t *testing.T, s *sim) {
		for _, path := range []string{"/metrics", "/health", "/version", "/server_info", "/props", "/ping"} {
			if status, b := s.get("GET", path, "", anthropicHeader...); status != 404 || !strings.Contains(b, `"type":"not_found_error"`) {
				t.Errorf("GET %s: %d %s", path, status, b)
			}
		}
		for _, path := range []string{chatPath, textPath, embeddingPath, "/tokenize"} {
			if status, b := s.post(path, hiMessage, anthropicHeader...); status != 404 {
				t.Errorf("POST %s: %d %s", path, status, b)
			}
		}
		if status, b := s.get("GET", messagesPath, "", anthropicHeader...); status != 405 || !strings.Contains(b, `"type":"error"`) {
			t.Errorf("GET: %d %s", status, b)
		}
		f := func(status int, kind string, header ...string) {
			t.Helper()
			for _, path := range []string{messagesPath, countTokensPath, modelsPath, modelsPath + "/m"} {
				method, body := "POST", hiMessage
				if strings.HasPrefix(path, modelsPath) {
					method, body = "GET", ""
				}
				if got, b := s.get(method, path, body, header...); got != status || !strings.Contains(b, kind) {
					t.Errorf("%s, %q: %d %s", path, header, got, b)
				}
			}
		}
		f(401, "authentication_error", "anthropic-version", "2023-06-01")
		f(401, "authentication_error", "anthropic-version", "2023-06-01", "Authorization", "Bearer ")
		f(401, "authentication_error", "anthropic-version", "2023-06-01", "Authorization", "Basic k")
		f(400, "header is required", "x-api-key", "k")
		f(400, "invalid_request_error", "x-api-key", "k", "anthropic-version", "1999")
		if rec := s.Record(); rec.Received != 5 || rec.Executed != 0 {
			t.Errorf("received %d, executed %d", rec.Received, rec.Executed)
		}
		f(200, "", "Authorization", "Bearer k", "anthropic-version", "2023-06-01")
		f(200, "", "x-api-key", "k", "anthropic-version", "2023-01-01")
		f(200, "", "Authorization", "bearer k", "anthropic-version", "2026-10-21")
	})
}

func TestAnthropicModels(t *testing.T) {
	cfg := kindConfig(Anthropic)
	cfg.Adapters = []string{"a", "b"}
	bubble(t, cfg, func(t *testing.T, s *sim) {
		f := func(query, ids string, more bool) {
			t.Helper()
			status, b := s.get("GET", modelsPath+query, "", anthropicHeader...)
			page := fields(t, b)
			var got []string
			for _, m := range page["data"].([]any) {
				got = append(got, m.(jsonObject)["id"].(string))
			}
			if status != 200 || strings.Join(got, " ") != ids || page["has_more"] != more {
				t.Errorf("%s: %d %s", query, status, b)
			}
			if len(got) > 0 && (page["first_id"] != got[0] || page["last_id"] != got[len(got)-1]) || len(got) == 0 && page["first_id"] != nil {
				t.Errorf("%s: %s", query, b)
			}
		}
		f("", "m a b", false)
		f("?limit=2", "m a", true)
		f("?limit=2&after_id=a", "b", false)
		f("?after_id=b", "", false)
		f("?limit=1&before_id=b", "a", true)
		f("?before_id=m", "", false)
		if status, b := s.get("GET", modelsPath+"?limit=0", "", anthropicHeader...); status != http.StatusBadRequest {
			t.Errorf("limit=0: %d %s", status, b)
		}
		_, b := s.get("GET", modelsPath+"/a", "", anthropicHeader...)
		same(t, "model", fields(t, b), jsonObject{
			"type": "model", "id": "a", "display_name": "a", "created_at": "2000-01-01T00:00:00Z", "max_input_tokens": 131072., "max_tokens": 131072.,
		})
		if status, b := s.get("GET", modelsPath+"/x", "", anthropicHeader...); status != 404 || !strings.Contains(b, "model: x") {
			t.Errorf("unknown: %d %s", status, b)
		}
	})
}

// count_tokens says how long the prompt of a message is, and executes nothing.
func TestCountTokens(t *testing.T) {
	const rest = `"system":"Be terse.","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://x/y"}},{"type":"text","text":"hi"}]}],` +
		`"tools":[{"name":"weather","input_schema":{"type":"object"}}]}`
	for _, kind := range messageKinds {
		bubble(t, kindConfig(kind), func(t *testing.T, s *sim) {
			status, b := s.post(countTokensPath, `{"model":"m",`+rest, anthropicHeader...)
			got := fields(t, b)
			if rec := s.Record(); status != 200 || rec.Received != 0 || s.Totals().Steps != 0 {
				t.Errorf("%s: %d %s, %d received", kind, status, b, rec.Received)
			}
			s.message(`{"model":"m","max_tokens":1,` + rest)
			n := float64(s.Record().Requests[0].PromptTokens)
			want := jsonObject{"input_tokens": n}
			if kind == VLLM {
				want["context_management"] = jsonObject{"original_input_tokens": n}
			}
			if same(t, string(kind), got, want); n < 576 {
				t.Errorf("%s: %v tokens with an image of 576", kind, n)
			}
			if status, b := s.post(countTokensPath, `{"model":"m"}`, anthropicHeader...); status != 400 || !strings.Contains(b, `"type":"error"`) {
				t.Errorf("%s: %d %s", kind, status, b)
			}
		})
	}
	bubble(t, kindConfig(LlamaCpp), func(t *testing.T, s *sim) {
		if status, _ := s.post(messagesPath, hiMessage); status != 404 {
			t.Errorf("llama.cpp: %d", status)
		}
	})
}
