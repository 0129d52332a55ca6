package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/state/prefix"
)

func parse(t testing.TB, ep Endpoint, body string) Request {
	t.Helper()
	r, err := Parse(ep, []byte(body))
	if err != nil {
		t.Fatalf("parse %.80q: %v", body, err)
	}
	return r
}

func TestEndpointsOfPaths(t *testing.T) {
	f := func(path string, want Endpoint) {
		t.Helper()
		if got := EndpointOf(path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	f("/v1/chat/completions", Chat)
	f("/v1/completions", Completions)
	f("/v1/embeddings", Embeddings)
	f("/v1/models", Models)
	f("/v1/models/org/name", Models)
	f("/v1/chat/completions/", Other)
	f("/v1/modelsx", Other)
	f("/v1/rerank", Other)
	f("", Other)
}

func TestAWholeChatRequest(t *testing.T) {
	body := ` {"model":"org/a:b","messages":[{"role":"user","content":"x"}],"tools":[{"t":1}],"functions":[],"stream":true,` +
		`"stream_options":{"include_usage":true,"continuous_usage_stats":true},"max_tokens":5,"max_completion_tokens":7,"n":2,` +
		`"user":"u\u00e9","cache_salt":"s","priority":-3,"chat_template_kwargs":{"enable_thinking":false},"chat_template":"t",` +
		`"documents":[1],"reasoning_effort":"low","top_k":1,"extra":{"model":"no","stream":"no","deep":[1,{"x":null}]}}` + "\n"
	r := parse(t, Chat, body)
	if r.Model != "org/a:b" || !r.Stream || !r.IncludeUsage || r.MaxTokens != 7 || r.N != 2 || r.User != "ué" || r.CacheSalt != "s" || r.Priority != -3 || !r.HasPriority {
		t.Fatalf("got %+v", r)
	}
	want := prefix.Input{
		Checked: true, Kind: prefix.Chat, Template: []byte(`"t"`), TemplateArgs: []byte(`{"enable_thinking":false}`), ReasoningEffort: []byte(`"low"`), Documents: []byte(`[1]`),
		Tools: []byte(`[{"t":1}]`), Functions: []byte(`[]`), Messages: []byte(`[{"role":"user","content":"x"}]`),
	}
	if got := r.Input([]byte(body)); !reflect.DeepEqual(got, want) {
		t.Fatalf("input %s", fmt.Sprintf("%+v", got))
	}
}

func TestPromptsAreLocated(t *testing.T) {
	f := func(ep Endpoint, body string, kind prefix.Kind, prompt string) {
		t.Helper()
		r := parse(t, ep, body)
		if in := r.Input([]byte(body)); in.Kind != kind || string(in.Prompt) != prompt {
			t.Errorf("%s: kind %d, prompt %q", body, in.Kind, in.Prompt)
		}
	}
	f(Completions, `{"model":"m","prompt":"x"}`, prefix.Completion, `"x"`)
	f(Completions, `{"model":"m","prompt": ["x" , "y"] }`, prefix.Completion, `["x" , "y"]`)
	f(Completions, `{"model":"m","prompt":[1,2]}`, prefix.Completion, `[1,2]`)
	f(Completions, `{"model":"m","prompt":[[1],[2]],"input":"no"}`, prefix.Completion, `[[1],[2]]`)
	f(Completions, `{"model":"m","prompt":""}`, prefix.Completion, `""`)
	f(Completions, `{"model":"m","prompt":[]}`, prefix.Completion, `[]`)
	f(Completions, `{"model":"m","prompt":["x",1,[2]]}`, prefix.Completion, `["x",1,[2]]`)
	f(Embeddings, `{"model":"m","input":["x"],"prompt":"no","encoding_format":"base64"}`, prefix.Embedding, `["x"]`)
	f(Chat, `{"model":"m","prompt":1,"prompt":2,"input":1,"input":2}`, prefix.Chat, "")
	f(Other, `{"model":"m","messages":1,"messages":2,"n":"x","tools":1}`, 0, "")
	f(Other, `{}`, 0, "")
}

func TestAWholeResponsesRequest(t *testing.T) {
	body := `{"model":"m","input":[{"role":"user","content":"x"}],"instructions":"i","previous_response_id":"resp_1","conversation":{"id":"c"},"prompt":{"id":"p"},` +
		`"reasoning":{"summary":"auto","effort":"low"},"tools":[{"t":1}],"max_output_tokens":9,"stream":true,"user":"u","functions":1,"messages":1,"system":1,"n":"no"}`
	r := parse(t, Responses, body)
	if r.MaxTokens != 9 || !r.Stream || r.N != 1 || r.User != "u" {
		t.Fatalf("got %+v", r)
	}
	want := prefix.Input{
		Checked: true, Kind: prefix.Responses, Prompt: []byte(`[{"role":"user","content":"x"}]`), Instructions: []byte(`"i"`), Previous: []byte(`"resp_1"`),
		Conversation: []byte(`{"id":"c"}`), Reference: []byte(`{"id":"p"}`), ReasoningEffort: []byte(`"low"`), Tools: []byte(`[{"t":1}]`),
	}
	if got := r.Input([]byte(body)); !reflect.DeepEqual(got, want) {
		t.Fatalf("input %s", fmt.Sprintf("%+v", got))
	}
}

func TestAWholeMessagesRequest(t *testing.T) {
	body := `{"model":"m","max_tokens":9,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f"}],` +
		`"thinking":{"type":"enabled","budget_tokens":1024},"metadata":{"user_id":"u"},"stream":true,"input":1,"instructions":1,"prompt":1,"n":"no"}`
	for _, bom := range []string{"", "\xEF\xBB\xBF"} {
		sent := []byte(bom + body)
		r := parse(t, Messages, string(sent))
		if r.MaxTokens != 9 || !r.Stream || r.N != 1 {
			t.Fatalf("got %+v", r)
		}
		want := prefix.Input{
			Checked: true, Kind: prefix.Messages, System: []byte(`[{"type":"text","text":"s"}]`), Messages: []byte(`[{"role":"user","content":"x"}]`),
			Tools: []byte(`[{"name":"f"}]`), Thinking: []byte(`{"type":"enabled","budget_tokens":1024}`),
		}
		if got := r.Input(sent); !reflect.DeepEqual(got, want) {
			t.Fatalf("input %s", fmt.Sprintf("%+v", got))
		}
	}
}

func TestFieldsOfOneFamilyMeanNothingInAnother(t *testing.T) {
	f := func(ep Endpoint, fields string) {
		t.Helper()
		body := []byte(`{"model":"m",` + fields + `}`)
		r, err := Parse(ep, body)
		if err != nil {
			t.Errorf("%v: %v", ep, err)
		}
		in := r.Input(body)
		in.Kind, in.Checked = 0, false
		if !reflect.DeepEqual(in, prefix.Input{}) || r.MaxTokens != 0 {
			t.Errorf("%v: %+v", ep, in)
		}
	}
	f(Chat, `"system":"x","system":"y","thinking":1,"instructions":"x","previous_response_id":"x","conversation":"x","reasoning":{"effort":"x"},"max_output_tokens":5,"input":"x","prompt":"x"`)
	f(Completions, `"system":"x","instructions":"x","previous_response_id":"x","max_output_tokens":5,"input":"x"`)
	f(Responses, `"messages":"x","messages":1,"system":"x","functions":1`)
	f(Messages, `"input":"x","prompt":"x","instructions":"x","previous_response_id":"x","reasoning":{"effort":"x"},"functions":1`)
}

func TestOddButLegalBodiesTravelOn(t *testing.T) {
	for _, body := range []string{
		`{"model":"m"}`,
		`{"model":"m","messages":[]}`,
		`{"model":"m","messages":[{}]}`,
		`{"model":"m","messages":[{"role":"developer","content":""}]}`,
		`{"model":"m","messages":[{"role":"system","content":null}]}`,
		`{"model":"m","tools":null,"functions":null,"stream":null,"n":null}`,
		`{"model":"m","stream_options":true}`,
		`{"model":"m","stream":false,"stream_options":"x"}`,
		`{"model":"m","stream":true,"stream_options":null}`,
		`{"model":"m","stream":true,"stream_options":{}}`,
		`{"model":"m","stream":true,"stream_options":{"include_usage":null}}`,
		`{"model":"m","user":1,"cache_salt":1,"priority":"x"}`,
		`{"model":"m","unknown":1,"unknown":2}`,
		"\xEF\xBB\xBF{\"model\":\"m\"}",
		"{\"model\":\"m\"} \r\n\t",
		`{"model":"m","metadata":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
		`{"model":" m "}`,
		`{"model":"` + strings.Repeat("x", 10_000) + `"}`,
		`{"model":"../%2f\n\""}`,
	} {
		parse(t, Chat, body)
	}
}

func TestMaxTokensCountsWhereItIsAPositiveInteger(t *testing.T) {
	f := func(fields string, want int) {
		t.Helper()
		if got := parse(t, Chat, `{"model":"m",`+fields+`}`).MaxTokens; got != want {
			t.Errorf("%s: got %d, want %d", fields, got, want)
		}
	}
	f(`"max_tokens":10`, 10)
	f(`"max_tokens":0`, 0)
	f(`"max_tokens":-1`, 0)
	f(`"max_tokens":"10"`, 0)
	f(`"max_tokens":10.5`, 0)
	f(`"max_tokens":1e9`, 0)
	f(`"max_tokens":null`, 0)
	f(`"max_tokens":1000000000`, 1000000000)
	f(`"max_tokens":9223372036854775807`, 1<<31-1)
	f(`"max_tokens":99999999999999999999`, 0)
	f(`"max_tokens":10,"max_completion_tokens":20`, 20)
	f(`"max_completion_tokens":20,"max_tokens":10`, 20)
	f(`"max_completion_tokens":null,"max_tokens":10`, 10)
	f(`"max_completion_tokens":0,"max_tokens":10`, 10)
}

func TestBadBodiesAreRefusedInWordsForClients(t *testing.T) {
	f := func(body, param, part string) {
		t.Helper()
		_, err := Parse(Chat, []byte(body))
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%.60q: got %v", body, err)
			return
		}
		if e.Status != http.StatusBadRequest || e.Type != "invalid_request_error" || e.Param != param || !strings.Contains(e.Message, part) {
			t.Errorf("%.60q: got %+v", body, e)
		}
		for _, inner := range []string{"invalid character", "unexpected end of JSON input", "scan", "goroutine"} {
			if strings.Contains(e.Message, inner) {
				t.Errorf("%.60q: %q shows the inside", body, e.Message)
			}
		}
	}
	f(``, "", "empty")
	f(`  `, "", "empty")
	f(`{`, "", "byte 1")
	f(`[]`, "", "JSON object")
	f(`null`, "", "JSON object")
	f(`"x"`, "", "JSON object")
	f(`"x`, "", "byte 2")
	f(`nul`, "", "byte 3")
	f(`{} {}`, "", "byte 3")
	f(`{"model":"m"}x`, "", "byte 13")
	f(`{"model":"m",}`, "", "byte 13")
	f(`{"model":"m" /* x */}`, "", "byte 13")
	f(`{'model':'m'}`, "", "byte 1")
	f(`{"model":"m","x":NaN}`, "", "byte 17")
	f("{\"model\":\"m\",\"x\":\"\xC3\"}", "", "UTF-8")
	f("{\"model\":\"m\",\"x\":\"\xC0\xAF\"}", "", "UTF-8")
	f("{\"model\":\"m\",\"x\":\"\xED\xA0\x80\"}", "", "UTF-8")
	f("{\"model\":\"m\",\"x\":\"\xC3", "", "ends in the middle")
	f("\xFE\xFF\x00{", "", "byte 0")
	f("{\x00\"\x00m\x00", "", "byte 1")
	f("\xEF\xBB\xBF{]", "", "byte 4")
	f("\xEF\xBB\xBF", "", "empty")
	f(`{"model":"m","metadata":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)+`}`, "", "nested deeper than 512")
	f(`{"model":"m","metadata":`+strings.Repeat(`{"a":`, 1000), "", "nested deeper than 512")
	f(`{}`, "model", "names no model")
	f(`{"model":1}`, "model", "string")
	f(`{"model":null}`, "model", "string")
	f(`{"model":{}}`, "model", "string")
	f(`{"model":""}`, "model", "empty")
	f(`{"model":"m","messages":"x"}`, "messages", "array of objects")
	f(`{"model":"m","messages":null}`, "messages", "array of objects")
	f(`{"model":"m","messages":[null]}`, "messages", "array of objects")
	f(`{"model":"m","messages":[{},"x"]}`, "messages", "array of objects")
	f(`{"model":"m","messages":[{}`, "", "ends in the middle")
	f(`{"model":"m","tools":"x"}`, "tools", "array")
	f(`{"model":"m","functions":{}}`, "functions", "array")
	f(`{"model":"m","stream":"true"}`, "stream", "true or false")
	f(`{"model":"m","stream":1}`, "stream", "true or false")
	f(`{"model":"m","n":0}`, "n", "integer")
	f(`{"model":"m","n":"2"}`, "n", "integer")
	f(`{"model":"m","n":1.5}`, "n", "integer")
	f(`{"model":"m","stream":true,"stream_options":true}`, "stream_options", "object")
	f(`{"model":"m","stream_options":[],"stream":true}`, "stream_options", "object")
	f(`{"model":"m","stream":true,"stream_options":{"include_usage":"x"}}`, "stream_options.include_usage", "true or false")
	f(`{"model":"m","stream":true,"stream_options":{"include_usage":true,"include_usag\u0065":false}}`, "stream_options.include_usage", "more than once")
	f(`{"model":"a","model":"b"}`, "model", "more than once")
	f(`{"model":"a","mod\u0065l":"b"}`, "model", "more than once")
	f(`{"model":"a","messages":[],"messages":[]}`, "messages", "more than once")
	f(`{"model":"a","max_tokens":1,"max_tokens":9}`, "max_tokens", "more than once")
	f(`{"model":"a","stream":false,"stream":true}`, "stream", "more than once")
}

func TestEmbeddingsAndCompletionsNeedAModelToo(t *testing.T) {
	for _, ep := range []Endpoint{Chat, Completions, Embeddings} {
		if _, err := Parse(ep, []byte(`{}`)); err == nil {
			t.Errorf("%v without a model passes", ep)
		}
	}
}

// checkSplice makes every edit and compares what an ordinary decoder sees before and after.
func checkSplice(t *testing.T, r *Request, body []byte, name string) {
	t.Helper()
	bom := 0
	if strings.HasPrefix(string(body), "\uFEFF") {
		bom = 3
	}
	var before, after map[string]json.RawMessage
	if err := json.Unmarshal(body[bom:], &before); err != nil {
		t.Fatalf("an ordinary decoder refuses %q: %v", body, err)
	}
	edits := r.SetCacheSalt(r.AskUsage(r.RenameModel(nil, name)), "salt")
	edits = r.SetTier(r.FloorPriority(edits, body), "default")
	out := Splice(nil, body, edits)
	if len(out) != SplicedLen(body, edits) {
		t.Fatalf("%d bytes, said %d", len(out), SplicedLen(body, edits))
	}
	if err := json.Unmarshal(out[bom:], &after); err != nil {
		t.Fatalf("%q became %q: %v", body, out, err)
	}
	if string(after["cache_salt"]) != `"salt"` {
		t.Fatalf("salt is %s", after["cache_salt"])
	}
	checkClaims(t, before, after)
	var renamed string
	if _, ok := before["model"]; ok && (json.Unmarshal(after["model"], &renamed) != nil || renamed != strings.ToValidUTF8(name, "\uFFFD") && strings.ToValidUTF8(name, "") == name) {
		t.Fatalf("model is %s", after["model"])
	}
	if r.Stream {
		var was, is map[string]json.RawMessage
		_ = json.Unmarshal(before["stream_options"], &was)
		if err := json.Unmarshal(after["stream_options"], &is); err != nil || string(is["include_usage"]) != "true" {
			t.Fatalf("stream_options became %s", after["stream_options"])
		}
		delete(was, "include_usage")
		delete(is, "include_usage")
		if len(was)+len(is) > 0 && !reflect.DeepEqual(was, is) {
			t.Fatalf("stream_options %s became %s", before["stream_options"], after["stream_options"])
		}
		delete(before, "stream_options")
		delete(after, "stream_options")
	}
	for _, k := range []string{"model", "cache_salt", "priority", "service_tier"} {
		delete(before, k)
		delete(after, k)
	}
	if !reflect.DeepEqual(before, after) {
		t.Fatalf("%q became %q", body, out)
	}
}
