package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestTagsComeBack(t *testing.T) {
	f := func(id string, tag Tag) {
		t.Helper()
		s := id + tag.String()
		if len(tag.String()) != 16 || strings.Trim(tag.String(), "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			t.Errorf("tag %q", tag)
		}
		rest, got, ok := SplitTag(s)
		if !ok || rest != id || got != tag {
			t.Errorf("%s: got %q %+v %v", s, rest, got, ok)
		}
	}
	f("resp_1", Tag{})
	f("resp_1", Tag{1<<40 - 1, 1<<20 - 1})
	f("resp_68a", Tag{OwnerOf("chat", "10.0.0.1:8000"), BootOf(1.7e9 + 0.25)})
	f("resp_1"+Tag{1, 2}.String(), Tag{3, 4}) // of a router behind this one
	f("x", Tag{5, 0})
	for _, id := range []string{"", "resp_1", "resp_hsy", "_hsy000000000000", "resp_1_hsy00000000000", "resp_1_hsy00000000000w", "resp_1_hsy00000000000A", "resp_1_hsY000000000000", "resp_1_hsy0000000000000"} {
		if rest, tag, ok := SplitTag(id); ok || rest != id || tag != (Tag{}) {
			t.Errorf("%q: got %q %+v", id, rest, tag)
		}
	}
	if OwnerOf("a", "b") == OwnerOf("b", "a") || OwnerOf("a", "bc") == OwnerOf("ab", "c") {
		t.Error("two replicas have one number")
	}
	if BootOf(0) != 0 || BootOf(-1) != 0 || BootOf(1.7e9) == 0 || BootOf(1.7e9) == BootOf(1.7e9+0.01) {
		t.Error("starts are not told apart")
	}
}

func FuzzTags(f *testing.F) {
	for _, s := range []string{"", "resp_1", "resp_1" + Tag{1, 2}.String(), "_hsy000000000000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		rest, tag, ok := SplitTag(id)
		if ok && rest+tag.String() != id || !ok && rest != id {
			t.Errorf("%q: got %q %+v %v", id, rest, tag, ok)
		}
		if id == "" {
			return
		}
		if rest, tag, ok := SplitTag(id + (Tag{7, 9}).String()); !ok || rest != id || tag != (Tag{7, 9}) {
			t.Errorf("%q is not got back", id)
		}
	})
}

// Only what names the response itself is touched, wherever the body is cut.
func TestRewritesOfResponses(t *testing.T) {
	f := func(body string, n Names, want string) {
		t.Helper()
		given := []byte(body)
		if got := string(Rewrite(given, n)); got != want || string(given) != body {
			t.Errorf("%s\n got %s\nwant %s", body, got, want)
		}
	}
	tag := Names{Tag: "_T"}
	f(`{"id":"r","object":"response","model":"m","previous_response_id":null}`, tag, `{"id":"r_T","object":"response","model":"m","previous_response_id":null}`)
	f(`{ "id" : "r" , "previous_response_id" : "p" }`, tag, `{ "id" : "r_T" , "previous_response_id" : "p_T" }`)
	f(`{"id":"r","previous_response_id":"p","model":"up"}`, Names{Model: `"m"`, Tag: "_T", Previous: `"mine"`}, `{"id":"r_T","previous_response_id":"mine","model":"m"}`)
	f("\uFEFF{\"id\":\"r\"}", tag, "\uFEFF{\"id\":\"r_T\"}")
	f(`{"id":"","previous_response_id":""}`, tag, `{"id":"","previous_response_id":""}`)
	f(`{"id":7,"model":null}`, Names{Model: `"m"`, Tag: "_T", Previous: ""}, `{"id":7,"model":null}`)
	f(`{"output":[{"id":"msg_1","content":[{"text":"\"id\":\"r\""}]}],"metadata":{"id":"x","previous_response_id":"y"},"prompt":{"id":"p"},"id":"r"}`, tag,
		`{"output":[{"id":"msg_1","content":[{"text":"\"id\":\"r\""}]}],"metadata":{"id":"x","previous_response_id":"y"},"prompt":{"id":"p"},"id":"r_T"}`)
	f(`{"object":"list","data":[{"id":"msg_1"}],"first_id":"msg_1"}`, tag, `{"object":"list","data":[{"id":"msg_1"}],"first_id":"msg_1"}`)
	f(`[]`, tag, `[]`)
	f(`{"id":"r"}`, Names{}, `{"id":"r"}`)

	body := `{"id":"r","error":null,"model":"up","output":[{"id":"i"}],"previous_response_id":"p"}`
	for cut := range len(body) {
		want := body[:cut]
		if at := strings.Index(body, `"r"`) + 3; cut >= at {
			want = strings.Replace(want, `"r"`, `"r_T"`, 1)
		}
		if at := strings.Index(body, `"up"`) + 4; cut >= at {
			want = strings.Replace(want, `"up"`, `"m"`, 1)
		}
		if at := strings.Index(body, `"p"`) + 3; cut >= at {
			want = strings.Replace(want, `"p"`, `"q"`, 1)
		}
		f(body[:cut], Names{Model: `"m"`, Tag: "_T", Previous: `"q"`}, want)
	}
}

func FuzzRewrite(f *testing.F) {
	f.Add([]byte(`{"id":"r","model":"up","previous_response_id":"p","output":[]}`))
	f.Add([]byte(`{"id":"r","id":"s","model":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got := Rewrite(body, Names{Model: `"m"`, Tag: "_T", Previous: ""})
		var was, is map[string]json.RawMessage
		if json.Unmarshal(body, &was) != nil {
			return
		}
		if err := json.Unmarshal(got, &is); err != nil {
			t.Fatalf("%q became %q: %v", body, got, err)
		}
		for k, v := range was {
			if k != "id" && k != "model" && k != "previous_response_id" && string(is[k]) != string(v) {
				t.Fatalf("%q: %s became %s", body, v, is[k])
			}
		}
	})
}

// items records what a sink is told of items.
type items struct{ recorder }

func (r *items) AnswerPart()           {}
func (r *items) AnswerItem(raw []byte) { fmt.Fprintf(r, "[%s]", raw) }

func TestEventsOfResponses(t *testing.T) {
	f := func(events []string, want Events, answer string) {
		t.Helper()
		var e Events
		var r items
		for _, x := range events {
			e.Read([]byte(x), &r)
			e.Read([]byte(x), nil)
		}
		if e != want || r.String() != answer {
			t.Errorf("%v: got %+v %q", events, e, r.String())
		}
	}
	f(nil, Events{}, "")
	f([]string{
		`{"type":"response.created","sequence_number":0,"response":{"output":[]}}`,
		`{"type":"response.output_text.delta","sequence_number":1,"delta":"a"}`,
		`{"type":"response.completed","sequence_number":2,"response":{"id":"r","output":[{"a":1},{"b":2}]}}`,
	}, Events{Next: 3}, `[{"a":1}][{"b":2}]`)
	f([]string{`{"response":{"output":[{"a":1}]},"sequence_number":7,"type":"response.incomplete"}`}, Events{Next: 8}, `[{"a":1}]`)
	f([]string{`{"type":"response.completed","response":{}}`}, Events{}, `!`)
	f([]string{`{"type":"response.completed","response":{"output":7}}`}, Events{}, `!`)
	f([]string{`{"type":"response.failed","sequence_number":4,"response":{"error":{"message":"m","code":"server_error"}}}`}, Events{Next: 5, Failed: true, Code: "server_error"}, "")
	f([]string{`{"type":"response.failed","response":{"error":null}}`}, Events{Failed: true}, "")
	f([]string{`{"sequence_number":-1}`, `{"sequence_number":"9"}`, `{"sequence_number":1e3}`, `[]`, ``, `{"type":"response.completed","response":{"output":[]}`}, Events{}, "")
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"type":"response.completed","sequence_number":2,"response":{"id":"r","output":[{"a":1},{"b":2}],"error":{"code":"x"}}}`))
	f.Add([]byte(`{"type":"error","code":"500","message":"m"}`))
	f.Fuzz(func(_ *testing.T, event []byte) {
		var e Events
		e.Read(event, &items{})
		ReadTypedError(event)
		ReadResponse(event, Inclusive, &items{})
	})
}

func TestWholeResponsesOfResponses(t *testing.T) {
	f := func(body string, errs bool, answer string) Response {
		t.Helper()
		var r items
		got := ReadResponse([]byte(body), Inclusive, &r)
		if !got.Object || got.Error != errs || r.String() != answer {
			t.Errorf("%s: got %+v %q", body, got, r.String())
		}
		return got
	}
	got := f(`{"id":"r","object":"response","error":null,"output":[{"a":1}],"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":1}}}`, false, `[{"a":1}]`)
	if want := (Usage{InputTotal: 9, InputCached: 4, CachedKnown: true, Output: 3, Reasoning: 1, Source: Reported}); got.Usage != want || !got.HasUsage {
		t.Errorf("usage %+v", got.Usage)
	}
	f(`{"error":{"code":"server_error"},"output":[],"object":"response"}`, false, "")
	f(`{"object":"response","error":{"code":"server_error"},"output":[]}`, false, "")
	f(`{"error":{"code":500}}`, true, "!")
	f(`{"object":"error","code":500}`, true, "!")
}

func TestErrorsOfResponses(t *testing.T) {
	f := func(event string, ok bool, want EngineError) {
		t.Helper()
		if got, is := ReadTypedError([]byte(event)); is != ok || got != want {
			t.Errorf("%s: got %+v %v", event, got, is)
		}
	}
	f(`{"type":"error","code":"server_error","message":"m","param":null,"sequence_number":2}`, true, EngineError{Status: 500, Code: "server_error", Message: "m"})
	f(`{"type":"error","code":"rate_limit_exceeded","message":"m"}`, true, EngineError{Status: 429, Code: "rate_limit_exceeded", Message: "m"})
	f(`{"type":"error","code":"invalid_prompt","message":"m"}`, true, EngineError{Status: 400, Code: "invalid_prompt", Message: "m"})
	f(`{"type":"error","code":"404","message":"m"}`, true, EngineError{Status: 404, Code: "404", Message: "m"})
	f(`{"type":"error","code":null,"message":"m"}`, true, EngineError{Status: 500, Message: "m"})
	f(`{"type":"error","error":{"type":"overloaded_error","message":"m"}}`, false, EngineError{})
	f(`{"type":"response.created"}`, false, EngineError{})
	f(`{"type":"error"`, false, EngineError{})
	e := BadRequest("input", `say "x"`)
	if got, want := string(e.AppendEvent(nil, Typed, 12)), "event: error\ndata: {\"type\":\"error\",\"code\":null,\"message\":\"say \\\"x\\\"\",\"param\":\"input\",\"sequence_number\":12}\n\n"; got != want {
		t.Errorf("got %q", got)
	}
	if got := string(e.Append(nil, Typed)); got != string(e.AppendOpenAI(nil)) {
		t.Errorf("got %q", got)
	}
}

func TestRequestsOfResponses(t *testing.T) {
	r := parse(t, Responses, `{"model":"m","input":"x","previous_response_id":"r\u0031","background":true,"max_output_tokens":7,"stream":true,"stream_options":{"include_obfuscation":false}}`)
	if r.PreviousID != "r1" || !r.Background || !r.Continues() || r.MaxTokens != 7 || !r.Stream {
		t.Errorf("got %+v", r)
	}
	r = parse(t, Responses, `{"model":"m","input":"x","previous_response_id":null,"conversation":null,"background":1}`)
	if r.PreviousID != "" || r.Background || r.Continues() {
		t.Errorf("got %+v", r)
	}
	r = parse(t, Responses, `{"model":"m","conversation":{"id":"c"}}`)
	if !r.Continues() {
		t.Errorf("got %+v", r)
	}
	r = parse(t, Chat, `{"model":"m","messages":[],"previous_response_id":7,"background":true,"conversation":1}`)
	if r.Background || r.Continues() {
		t.Errorf("got %+v", r)
	}
	for body, param := range map[string]string{
		`{"model":"m","previous_response_id":7}`:                                "previous_response_id",
		`{"model":"m","previous_response_id":"a","previous_response_id":"b"}`:   "previous_response_id",
		`{"model":"m","background":true,"background":false}`:                    "background",
		`{"model":"m","stream":true,"stream_options":7}`:                        "stream_options",
		`{"model":"m","input":"x","\u0070revious_response_id":{},"other":true}`: "previous_response_id",
	} {
		if _, err := Parse(Responses, []byte(body)); err == nil || AsError(err).Param != param {
			t.Errorf("%s: %v", body, err)
		}
	}
	for path, want := range map[string]Endpoint{
		"/v1/responses": Responses, "/v1/responses/r": Stored, "/v1/responses/r/cancel": Stored, "/v1/responses/": Stored, "/v1/responsesx": Other,
	} {
		if got := EndpointOf(path); got != want {
			t.Errorf("%s is %v", path, got)
		}
	}
}
