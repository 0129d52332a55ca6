package messages

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/hearsay-llm/hearsay/proxy/api"
)

const used = `"usage":{"prompt_tokens":9,"completion_tokens":3}`

func TestResponse(t *testing.T) {
	asked := Asked{Model: `fa"st`, Thinking: true, Stops: []string{"\n", "END"}}
	family := api.Inclusive
	// The choice's members on the left; the content, what follows it, and the usage on the right.
	all := func(body, id, content, stop, usage string) {
		t.Helper()
		got, err := Response([]byte("x"), []byte(body), asked, family)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			return
		}
		want := `x{"id":"` + id + `","type":"message","role":"assistant","model":"fa\"st","content":[` + content + `],"stop_reason":` + stop + `,"usage":{` + usage + `}}`
		if string(got) != want {
			t.Errorf("%s\n got %s\nwant %s", body, got, want)
		}
		if !json.Valid(got[1:]) {
			t.Errorf("%s: no JSON: %s", body, got)
		}
	}
	f := func(choice, content, stop string) {
		t.Helper()
		all(`{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,`+choice+`}],`+used+`}`, "chatcmpl-1", content, stop, `"input_tokens":9,"output_tokens":3`)
	}
	const end = `"end_turn","stop_sequence":null`
	f(`"message":{"role":"assistant","content":"h\u00e9 \ud83c"},"finish_reason":"stop"`, `{"type":"text","text":"h\u00e9 \ud83c"}`, end)
	f(`"message":{"content":""},"finish_reason":"stop"`, ``, end)
	f(`"message":{"content":null},"finish_reason":null`, ``, end)
	f(`"message":{"content":"a"},"finish_reason":"length"`, `{"type":"text","text":"a"}`, `"max_tokens","stop_sequence":null`)
	f(`"message":{"content":"a"},"finish_reason":"content_filter"`, `{"type":"text","text":"a"}`, `"refusal","stop_sequence":null`)
	f(`"message":{"content":null,"refusal":"no"},"finish_reason":"stop"`, `{"type":"text","text":"no"}`, `"refusal","stop_sequence":null`)
	f(`"message":{"content":"a"},"finish_reason":"stop","stop_reason":"\n"`, `{"type":"text","text":"a"}`, `"stop_sequence","stop_sequence":"\n"`)
	f(`"message":{"content":"a"},"finish_reason":"stop","matched_stop":"END"`, `{"type":"text","text":"a"}`, `"stop_sequence","stop_sequence":"END"`)
	f(`"message":{"content":"a"},"finish_reason":"stop","stop_reason":"<|im_end|>"`, `{"type":"text","text":"a"}`, end)
	f(`"message":{"content":"a"},"finish_reason":"stop","stop_reason":128009,"matched_stop":2`, `{"type":"text","text":"a"}`, end)
	f(`"message":{"content":"a","reasoning_content":"hm"},"finish_reason":"stop"`, `{"type":"thinking","thinking":"hm","signature":"unsigned"},{"type":"text","text":"a"}`, end)
	f(`"message":{"content":"a","reasoning":"hm","reasoning_content":null},"finish_reason":"stop"`, `{"type":"thinking","thinking":"hm","signature":"unsigned"},{"type":"text","text":"a"}`, end)

	// Calls.
	const use = `"tool_use","stop_sequence":null`
	f(`"message":{"content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\": \"x\\ny\"}"}},{"id":"c2","function":{"name":"g","arguments":""}}]},"finish_reason":"tool_calls"`,
		`{"type":"tool_use","id":"c1","name":"f","input":{"a": "x\ny"}},{"type":"tool_use","id":"c2","name":"g","input":{}}`, use)
	call := func(arguments, input string) {
		t.Helper()
		f(`"message":{"content":"so","tool_calls":[{"function":{"name":"f","arguments":`+arguments+`}}]},"finish_reason":"stop"`,
			`{"type":"text","text":"so"},{"type":"tool_use","id":"toolu_chatcmpl-1_0","name":"f","input":`+input+`}`, use)
	}
	call(`"null"`, `{}`)
	call(`null`, `{}`)
	call(`" {} "`, ` {} `)
	call(`{"a":1}`, `{"a":1}`)
	call(`"{\"a\": tr"`, `{"INVALID_JSON":"{\"a\": tr"}`)
	call(`"[1]"`, `{"INVALID_JSON":"[1]"}`)
	call(`"{} {}"`, `{"INVALID_JSON":"{} {}"}`)

	// What is around the choice.
	one := func(rest, id, usage string) {
		t.Helper()
		all("\xEF\xBB\xBF"+`{"choices":[{"message":{"content":"a"},"finish_reason":"stop"},{"message":{"content":"b"}}]`+rest+`}`, id, `{"type":"text","text":"a"}`, end, usage)
	}
	asked.ID = "r1" // it goes before the engine's
	one(`,"id":"i"`, "r1", `"input_tokens":0,"output_tokens":0`)
	one(``, "r1", `"input_tokens":0,"output_tokens":0`)
	one(`,"id":"","usage":null,"error":null`, "r1", `"input_tokens":0,"output_tokens":0`)
	asked.ID = ""
	one(`,"id":"i","usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}`, "i", `"input_tokens":1,"cache_read_input_tokens":8,"output_tokens":3`)
	one(`,"id":"i","usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}`, "i", `"input_tokens":9,"cache_read_input_tokens":0,"output_tokens":3`)
	one(`,"id":"i","usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":null}`, "i", `"input_tokens":9,"output_tokens":3`)
	family = api.LlamaCpp
	one(`,"id":"i","usage":{"prompt_tokens":9,"completion_tokens":3},"timings":{"cache_n":7,"prompt_n":2,"predicted_n":3}`, "i", `"input_tokens":2,"cache_read_input_tokens":7,"output_tokens":3`)
	family = api.Inclusive

	asked.Thinking = false
	f(`"message":{"content":"a","reasoning_content":"hm"},"finish_reason":"stop"`, `{"type":"text","text":"a"}`, end)
}

func TestNoAnswers(t *testing.T) {
	f := func(body string, status int, message string) {
		t.Helper()
		out, err := Response([]byte("x"), []byte(body), Asked{}, api.Inclusive)
		var e *api.Error
		if !errors.As(err, &e) || e.Status != status || string(out) != "x" || message != "" && e.Message != message {
			t.Errorf("%s: %s, %+v, want %d %s", body, out, e, status, message)
		}
	}
	for _, body := range []string{
		``, `[]`, `{`, `{}`, `{"choices":[]}`, `{"choices":{}}`, `{"choices":[1]}`, `{"choices":[{"message":{"content":[]}}]}`,
		`{"choices":[{"message":{"tool_calls":[{"function":{"arguments":"{}"}}]}}]}`, `{"choices":[{"message":{"tool_calls":["x"]}}]}`,
		`{"choices":[{"message":{"content":"a"},"finish_reason":"abort"}]}`, `{"choices":[{"message":{"content":"a"}}]} x`,
	} {
		f(body, 502, "")
	}
	f(`{"error":{"message":"too hot","type":"BadRequestError","code":400}}`, 400, "too hot")
	f(`{"object":"error","message":"too hot","type":"BadRequestError","code":400}`, 400, "too hot")
	f(`{"error":{"message":"at 10.0.0.7","code":500}}`, 502, "")
}

func TestErrors(t *testing.T) {
	f := func(status int, body string, want int, kind, message string) {
		t.Helper()
		e := Error(status, []byte(body))
		var got struct {
			Type  string
			Error struct{ Type, Message string }
		}
		if err := json.Unmarshal(e.AppendAnthropic(nil), &got); err != nil || got.Type != "error" || e.Status != want || got.Error.Type != kind {
			t.Errorf("%d %s: %d %+v, %v, want %d %s", status, body, e.Status, got, err, want, kind)
		}
		if message != "" && got.Error.Message != message {
			t.Errorf("%d %s: says %s", status, body, got.Error.Message)
		}
		if got.Error.Message == "" {
			t.Errorf("%d %s: says nothing", status, body)
		}
	}
	const said = `{"error":{"message":"said","type":"t","code":"c"}}`
	f(400, said, 400, "invalid_request_error", "said")
	f(401, said, 401, "authentication_error", "said")
	f(402, said, 402, "billing_error", "said")
	f(403, said, 403, "permission_error", "said")
	f(404, said, 404, "not_found_error", "said")
	f(413, said, 413, "request_too_large", "said")
	f(422, `{"detail":"said"}`, 422, "invalid_request_error", "said")
	f(429, said, 429, "rate_limit_error", "said")
	f(500, said, 502, "api_error", "The model's replica failed while answering. Try again.")
	f(502, `<html>`, 502, "api_error", "")
	f(503, said, 503, "overloaded_error", "The model's replica is overloaded. Try again later.")
	f(529, said, 529, "overloaded_error", "The model's replica is overloaded. Try again later.")
	f(504, said, 504, "timeout_error", "")
	f(400, `not JSON`, 400, "invalid_request_error", "The model's engine refused the request.")
	f(0, `{"error":{"message":"said","code":429}}`, 429, "rate_limit_error", "said")
	f(0, `{"error":{"message":"said","code":503}}`, 503, "overloaded_error", "")
	f(0, `{"error":"said"}`, 502, "api_error", "")
	const long = "This model's maximum context length is 8 tokens."
	f(400, `{"error":{"message":"`+long+`","type":"BadRequestError","code":400}}`, 400, "invalid_request_error", "prompt is too long: "+long)
	f(400, `{"error":{"message":"m","code":"context_length_exceeded"}}`, 400, "invalid_request_error", "prompt is too long: m")
	f(400, `{"error":{"message":"m","type":"exceed_context_size_error"}}`, 400, "invalid_request_error", "prompt is too long: m")
	f(400, `{"error":{"message":"Prompt is too long","code":"context_length_exceeded"}}`, 400, "invalid_request_error", "Prompt is too long")
	f(500, `{"error":{"message":"`+long+`"}}`, 502, "api_error", "The model's replica failed while answering. Try again.")
}
