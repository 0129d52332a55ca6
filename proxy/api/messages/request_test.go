package messages

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
)

// request translates a body for an engine and fails the test if that can't be done.
func request(t *testing.T, body string, engine state.EngineKind) (string, Asked) {
	t.Helper()
	out, asked, err := Request(nil, []byte(body), Options{Engine: engine})
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if !json.Valid(out) {
		t.Fatalf("%s: became no JSON: %s", body, out)
	}
	if _, err := api.Parse(api.Chat, out); err != nil {
		t.Fatalf("%s: became %s: %v", body, out, err)
	}
	return string(out), asked
}

// TestRequest has what is said behind model and max_tokens on the left, and what becomes of it on the right.
func TestRequest(t *testing.T) {
	with := func(engine state.EngineKind, in, messages, rest string) {
		t.Helper()
		got, _ := request(t, `{"model":"m","max_tokens":9,`+in+`}`, engine)
		limit := `"max_tokens":9`
		if engine == state.EngineOpenAI {
			limit = `"max_completion_tokens":9`
		}
		if before, after, ok := strings.Cut(rest, "|"); ok {
			limit, rest = before+","+limit, after
		}
		if rest != "" {
			rest = "," + rest
		}
		if want := `{"model":"m","messages":[` + messages + `],` + limit + rest + `}`; got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
	f := func(in, messages, rest string) { t.Helper(); with(state.EngineAuto, in, messages, rest) }
	const hi, chat = `"messages":[{"role":"user","content":"hi"}]`, `{"role":"user","content":"hi"}`

	// Messages.
	f(hi, chat, "")
	f(`"system":"be \u0062rief",`+hi, `{"role":"system","content":"be \u0062rief"},`+chat, "")
	f(`"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b\n"}],`+hi, `{"role":"system","content":"a\nb\n"},`+chat, "")
	f(`"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1;"},{"type":"text","text":"a"}],`+hi, `{"role":"system","content":"a"},`+chat, "")
	f(`"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1;"}],`+hi, chat, "")
	f(`"system":null,`+hi, chat, "")
	f(`"messages":[{"role":"user","content":[{"type":"text","text":"h\ud83ci","cache_control":{"type":"ephemeral"}}]}]`, `{"role":"user","content":"h\ud83ci"}`, "")
	f(`"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`,
		`{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, "")
	f(`"messages":[{"role":"user","content":[]}]`, `{"role":"user","content":""}`, "")
	f(`"messages":[{"role":"user","content":"a"},{"role":"system","content":[{"type":"text","text":"s"}]},{"role":"user","content":"b"}]`,
		`{"role":"user","content":"a"},{"role":"system","content":"s"},{"role":"user","content":"b"}`, "")

	// Images.
	f(`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image\/png","data":"AA\/B=="}},{"type":"text","text":"?"}]}]`,
		`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image\/png;base64,AA\/B=="}},{"type":"text","text":"?"}]}`, "")
	f(`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://x/y"}}]}]`,
		`{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y"}}]}`, "")

	// Tools called, and what they returned.
	const spaced = `{ "q" : "a\"b\\",` + "\n\t" + `"é":[1.0, 1e2] }`
	quoted, _ := json.Marshal(spaced)
	f(`"messages":[{"role":"assistant","content":[{"type":"text","text":"let "},{"type":"tool_use","id":"c1","name":"f","input":`+spaced+`},{"type":"text","text":"me"},{"type":"tool_use","id":"c2","name":"g","input":{}}]}]`,
		`{"role":"assistant","content":"let me","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":`+string(quoted)+`}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]}`, "")
	f(`"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f"}]}]`,
		`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}`, "")
	f(`"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"42"},{"type":"tool_result","tool_use_id":"c2","is_error":true,"content":[{"type":"text","text":"no"},{"type":"text","text":"way"}]},{"type":"tool_result","tool_use_id":"c3"},{"type":"text","text":"go on"}]}]`,
		`{"role":"tool","tool_call_id":"c1","content":"42"},{"role":"tool","tool_call_id":"c2","content":"Error: no\nway"},{"role":"tool","tool_call_id":"c3","content":""},{"role":"user","content":"go on"}`, "")
	f(`"messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"it"},{"type":"image","source":{"type":"url","url":"u"}}]}]}]`,
		`{"role":"tool","tool_call_id":"c1","content":"it"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}},{"type":"text","text":"see"}]}`, "")
	f(`"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":null}]}]`, `{"role":"tool","tool_call_id":"c1","content":""}`, "")

	// Thinking, and a turn that goes on.
	const thought = `"messages":[{"role":"assistant","content":[{"type":"redacted_thinking","data":"x"},{"type":"thinking","thinking":"hm","signature":"s"},{"type":"tool_use","id":"c","name":"f","input":{}}]}]`
	const called = `"content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	with(state.EngineVLLM, thought, `{"role":"assistant","reasoning":"hm",`+called, "")
	with(state.EngineSGLang, thought, `{"role":"assistant","reasoning_content":"hm",`+called, "")
	with(state.EngineOpenAI, thought, `{"role":"assistant",`+called, "")
	const goesOn = `"messages":[{"role":"assistant","content":"The answer is ("}]`
	with(state.EngineVLLM, goesOn, `{"role":"assistant","content":"The answer is ("}`, `"continue_final_message":true,"add_generation_prompt":false|`)
	with(state.EngineLlamaCpp, goesOn, `{"role":"assistant","content":"The answer is ("}`, "")
	with(state.EngineOpenAI, goesOn, `{"role":"assistant","content":"The answer is ("}`, "")
	with(state.EngineVLLM, `"messages":[{"role":"assistant","content":[]}]`, `{"role":"assistant","content":""}`, "")
	with(state.EngineVLLM, `"messages":[{"role":"assistant","content":""}]`, `{"role":"assistant","content":""}`, "")
	with(state.EngineVLLM, `"messages":[{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":""}]}]`, `{"role":"assistant","content":"a"}`, `"continue_final_message":true,"add_generation_prompt":false|`)
	with(state.EngineVLLM, `"messages":[{"role":"assistant","content":"a"},{"role":"user","content":"b"}]`, `{"role":"assistant","content":"a"},{"role":"user","content":"b"}`, "")

	// Everything else.
	f(hi+`,"stream":true`, chat, `"stream":true`)
	f(hi+`,"stream":false,"temperature":null,"top_p":0.90,"top_k":5,"stop_sequences":["a","\n"],"metadata":{"user_id":"u","x":1}`, chat, `"top_p":0.90,"top_k":5,"stop":["a","\n"],"user":"u"`)
	f(hi+`,"temperature":1.0,"stop_sequences":[],"metadata":{"user_id":null}`, chat, `"temperature":1.0`)
	f(hi+`,"tools":[{"name":"f","description":"d","input_schema":{"type":"object" },"cache_control":{},"strict":true},{"type":"custom","name":"g","input_schema":{}}],"tool_choice":{"type":"auto"}`, chat,
		`"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object" },"strict":true}},{"type":"function","function":{"name":"g","parameters":{}}}],"tool_choice":"auto"`)
	const tools, functions = `,"tools":[{"name":"f","input_schema":{}}],"tool_choice":`, `"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":`
	f(hi+tools+`{"type":"any","disable_parallel_tool_use":true}`, chat, functions+`"required","parallel_tool_calls":false`)
	f(hi+tools+`{"type":"tool","name":"f","disable_parallel_tool_use":false}`, chat, functions+`{"type":"function","function":{"name":"f"}}`)
	f(hi+tools+`{"type":"none"}`, chat, functions+`"none"`)
	f(hi+`,"tools":[],"tool_choice":{"type":"auto"}`, chat, "")
	f(hi+`,"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}}`, chat,
		`"response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":true,"schema":{"type":"object"}}},"reasoning_effort":"low"`)
	f(hi+`,"thinking":{"type":"enabled","budget_tokens":2000},"cache_control":{"type":"ephemeral"},"service_tier":"auto","mcp_servers":[],"container":null`, chat, "")
	f(hi+`,"cache_salt" : "s" ,"chat_template_kwargs":{"enable_thinking":false},"extra":{"deep":[1,{"x":null}]}`, chat,
		`"cache_salt" : "s","chat_template_kwargs":{"enable_thinking":false},"extra":{"deep":[1,{"x":null}]}`)
	with(state.EngineOpenAI, hi, chat, "")
}

func TestRequestSaysWhatTheAnswerNeeds(t *testing.T) {
	f := func(rest string, want Asked) {
		t.Helper()
		if _, got := request(t, "\xEF\xBB\xBF"+`{"model":"caf\u00e9","max_tokens":1,"messages":[{"role":"user","content":""}]`+rest+`}`, ""); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", rest, got, want)
		}
	}
	f("", Asked{Model: "café"})
	f(`,"stream":true,"stop_sequences":["\n","b"]`, Asked{Model: "café", Stream: true, Stops: []string{"\n", "b"}})
	f(`,"thinking":{"type":"enabled","budget_tokens":1024}`, Asked{Model: "café", Thinking: true})
	f(`,"thinking":{"type":"adaptive"}`, Asked{Model: "café", Thinking: true})
	f(`,"thinking":{"type":"adaptive","display":"omitted"}`, Asked{Model: "café"})
	f(`,"thinking":{"type":"disabled"}`, Asked{Model: "café"})
}

func TestBadRequests(t *testing.T) {
	f := func(body, param string) {
		t.Helper()
		before := []byte("kept")
		out, _, err := Request(before, []byte(body), Options{})
		var e *api.Error
		if !errors.As(err, &e) || e.Status != 400 || e.Param != param || len(e.Message) < 20 || !bytes.Equal(out, before) {
			t.Errorf("%s: %q, %+v, want param %s", body, out, e, param)
		}
		if e != nil && !strings.Contains(e.Message, param) {
			t.Errorf("%s: the message does not name the field: %s", body, e.Message)
		}
	}
	f(``, "")
	f(`{`, "")
	f(`[]`, "")
	f(`null`, "")
	f(`{} {}`, "")
	f(`{"messages":[{"role":"user","content":"`+"\xff"+`"}]}`, "")
	f(strings.Repeat(`{"a":`, 600)+"1"+strings.Repeat("}", 600), "")
	f(`{"max_tokens":1,"messages":[]}`, "model")
	f(`{"model":1,"max_tokens":1,"messages":[]}`, "model")
	f(`{"model":"m","max_tokens":1}`, "messages")
	f(`{"model":"m","max_tokens":1,"messages":[]}`, "messages")
	f(`{"model":"m","max_tokens":1,"messages":"x"}`, "messages")
	f(`{"model":"m","model":"n","max_tokens":1,"messages":[]}`, "model")
	f(`{"model":"m","max_tokens":1,"messages":[null]}`, "messages[0].role")

	one := func(rest, param string) {
		t.Helper()
		f(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}],`+rest+`}`, param)
	}
	f(`{"model":"m","messages":[{"role":"user","content":"x"}]}`, "max_tokens")
	for _, limit := range []string{"0", "-1", "1.5", `"9"`, "null", "1e2"} {
		f(`{"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":`+limit+`}`, "max_tokens")
	}
	one(`"stream":"true"`, "stream")
	one(`"temperature":"hot"`, "temperature")
	one(`"top_k":[]`, "top_k")
	one(`"stop_sequences":"x"`, "stop_sequences")
	one(`"stop_sequences":["x",1]`, "stop_sequences[1]")
	one(`"metadata":{"user_id":1}`, "metadata.user_id")
	one(`"thinking":{"type":"deep"}`, "thinking.type")
	one(`"thinking":true`, "thinking.type")
	one(`"n":3`, "n")
	one(`"stop":"x"`, "stop")
	one(`"container":"c"`, "container")
	one(`"mcp_servers":[{}]`, "mcp_servers")
	one(`"output_config":{"format":{"type":"text"}}`, "output_config.format")
	one(`"output_config":{"effort":3}`, "output_config.effort")
	one(`"system":1`, "system")
	one(`"system":[{"type":"text","text":"a"},{"type":"image"}]`, "system[1]")
	one(`"tools":{}`, "tools")
	one(`"tools":[1]`, "tools[0]")
	one(`"tools":[{"name":"f","input_schema":{}},{"type":"web_search_20250305","name":"web_search"}]`, "tools[1].type")
	one(`"tools":[{"name":"f"}]`, "tools[0].input_schema")
	one(`"tools":[{"input_schema":{}}]`, "tools[0].name")
	one(`"tools":[{"name":"f","input_schema":{},"description":1}]`, "tools[0].description")
	one(`"tool_choice":{"type":"any"}`, "tool_choice")
	one(`"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool"}`, "tool_choice.name")
	one(`"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"some"}`, "tool_choice.type")
	one(`"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"auto","disable_parallel_tool_use":1}`, "tool_choice.disable_parallel_tool_use")

	second := func(role, content, param string) {
		t.Helper()
		f(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"},{"role":"`+role+`","content":`+content+`}]}`, "messages[1]"+param)
	}
	second("developer", `"x"`, ".role")
	second("user", `null`, ".content")
	second("user", `["x"]`, ".content[0]")
	second("user", `[{"text":"x"}]`, ".content[0].type")
	second("user", `[{"type":"text"}]`, ".content[0].text")
	second("user", `[{"type":"text","text":"a"},{"type":"document","source":{}}]`, ".content[1]")
	second("user", `[{"type":"thinking","thinking":"a"}]`, ".content[0]")
	second("user", `[{"type":"image","source":{"type":"file","file_id":"f"}}]`, ".content[0].source.type")
	second("user", `[{"type":"image","source":{"type":"url"}}]`, ".content[0].source.url")
	second("user", `[{"type":"image","source":{"type":"base64","media_type":"image/png"}}]`, ".content[0].source.data")
	second("user", `[{"type":"image","source":{"type":"base64","media_type":"image/png;x=\"","data":""}}]`, ".content[0].source.media_type")
	second("user", `[{"type":"tool_result","content":"x"}]`, ".content[0].tool_use_id")
	second("user", `[{"type":"tool_result","tool_use_id":"c","content":7}]`, ".content[0].content")
	second("user", `[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"x"},{"type":"search_result"}]}]`, ".content[0].content[1]")
	second("user", `[{"type":"tool_result","tool_use_id":"c","content":[{"type":"image","source":{"type":"url","url":1}}]}]`, ".content[0].content[0].source.url")
	second("assistant", `[{"type":"tool_use","id":"c","name":"f","input":"x"}]`, ".content[0].input")
	second("assistant", `[{"type":"tool_use","name":"f","input":{}}]`, ".content[0].id")
	second("assistant", `[{"type":"image","source":{"type":"url","url":"u"}}]`, ".content[0]")
	second("assistant", `[{"type":"server_tool_use","id":"x","name":"web_search","input":{}}]`, ".content[0]")
	second("system", `[{"type":"image"}]`, ".content[0]")
}

func TestMalformedBodiesAreTheClientsOffsets(t *testing.T) {
	_, _, err := Request(nil, []byte("\xEF\xBB\xBF{x"), Options{})
	if err == nil || !strings.Contains(err.Error(), "at byte 4") {
		t.Errorf("got %v", err)
	}
}
