package api

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// legBody applies edits that a prefill and the leg behind it need.
func legBody(t *testing.T, ep Endpoint, body string) (prefill, decode string) {
	t.Helper()
	r := parse(t, ep, body)
	l := ReadLegs(&r, []byte(body))
	edits := l.Set(l.Set(r.RenameModel(nil, "up"), LegStream, "false"), LegMaxTokens, "1")
	edits = l.Rewrite(edits, `"kv_transfer_params":{}`, LegTransfer, LegMinTokens, LegStreamOptions)
	prefill = string(Splice(nil, []byte(body), edits))
	edits = r.AskUsage(r.RenameModel(nil, "up"))
	decode = string(Splice(nil, []byte(body), l.Rewrite(edits, "", LegTransfer, LegRID)))
	return prefill, decode
}

func TestLegsAreRewrittenInPlace(t *testing.T) {
	f := func(body, prefill, decode string) {
		t.Helper()
		p, d := legBody(t, Chat, body)
		if p != prefill {
			t.Errorf("%s: prefill\n got %s\nwant %s", body, p, prefill)
		}
		if d != decode {
			t.Errorf("%s: decode\n got %s\nwant %s", body, d, decode)
		}
	}
	const kv = `"kv_transfer_params":{},`
	f(`{"model":"m"}`, `{`+kv+`"model":"up"}`, `{"model":"up"}`)
	f(`{ "model" : "m" , "max_tokens" : 9 }`, `{`+kv+` "model" : "up" , "max_tokens" : 1 }`, `{ "model" : "up" , "max_tokens" : 9 }`)
	f(`{"min_tokens":1,"model":"m"}`, `{`+kv+`"model":"up"}`, `{"min_tokens":1,"model":"up"}`)
	f(`{"model":"m","min_tokens":1}`, `{`+kv+`"model":"up"}`, `{"model":"up","min_tokens":1}`)
	f(`{"min_tokens":1, "kv_transfer_params":{"a":[1]} ,"model":"m","min_tokens":2}`, `{`+kv+`"model":"up"}`, `{"min_tokens":1 ,"model":"up","min_tokens":2}`)
	f(`{"rid":"x","kv_transfer_params":null,"stream":true,"model":"m","stream_options":{"x":1}}`,
		`{`+kv+`"rid":"x","stream":false,"model":"up"}`,
		`{"stream":true,"model":"up","stream_options":{"include_usage":true,"x":1}}`)
	f(`{"kv_transfer_p\u0061rams":1,"model":"m"}`, `{`+kv+`"model":"up"}`, `{"model":"up"}`)
	f("\uFEFF{\"model\":\"m\",\"rid\":\"x\"}", "\uFEFF{"+kv+"\"model\":\"up\",\"rid\":\"x\"}", "\uFEFF{\"model\":\"up\"}")
	// What lies deeper or in strings is none of it.
	f(`{"model":"m","x":{"rid":1,"min_tokens":2},"y":"\"rid\":1"}`,
		`{`+kv+`"model":"up","x":{"rid":1,"min_tokens":2},"y":"\"rid\":1"}`, `{"model":"up","x":{"rid":1,"min_tokens":2},"y":"\"rid\":1"}`)
}

func TestNothingLeftButWhatIsPutIn(t *testing.T) {
	body := ` {"rid":1 , "kv_transfer_params":2} `
	r := parse(t, Other, body)
	l := ReadLegs(&r, []byte(body))
	for add, want := range map[string]string{"": ` {} `, `"a":1`: ` {"a":1} `} {
		if got := string(Splice(nil, []byte(body), l.Rewrite(nil, add, LegRID, LegTransfer))); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestWhatCannotBeSplit(t *testing.T) {
	f := func(ep Endpoint, fields string, several, scores bool, prompts int) {
		t.Helper()
		body := `{"model":"m",` + fields + `"messages":[]}`
		r := parse(t, ep, body)
		if l := ReadLegs(&r, []byte(body)); l.Several != several || l.Scores != scores || l.Prompts != prompts {
			t.Errorf("%s: several %v, scores %v, %d prompts", fields, l.Several, l.Scores, l.Prompts)
		}
	}
	f(Chat, ``, false, false, 0)
	f(Chat, `"n":1,"best_of":1,"use_beam_search":false,"echo":false,"prompt_logprobs":null,"logprobs":true,"logprob_start_len":-1,`, false, false, 0)
	f(Chat, `"n":2,`, true, false, 0)
	f(Completions, `"best_of":2,`, true, false, 0)
	f(Completions, `"use_beam_search":true,`, true, false, 0)
	f(Completions, `"echo":true,`, false, true, 0)
	f(Chat, `"prompt_logprobs":0,`, false, true, 0)
	f(Chat, `"logprob_start_len":0,`, false, true, 0)
	f(Completions, `"prompt":"x",`, false, false, 0)
	f(Completions, `"prompt":[1,2],`, false, false, 0)
	f(Completions, `"prompt":[],`, false, false, 0)
	f(Completions, `"prompt":["x"],`, false, false, 1)
	f(Completions, `"prompt":["x","y"],`, true, false, 2)
	f(Completions, `"prompt":[[1],[2,3],[4]],`, true, false, 3)
}

func TestTransferOfAPrefill(t *testing.T) {
	f := func(answer, want string, ok bool) {
		t.Helper()
		got, good := Transfer([]byte(answer))
		if string(got) != want || good != ok || want == "" && got != nil {
			t.Errorf("%s: %q %v", answer, got, good)
		}
	}
	f(`{"id":1,"kv_transfer_params":{"a": [1,{"b":"\u0061"}]} }`, `{"a": [1,{"b":"\u0061"}]}`, true)
	f(`{"kv_transfer_params":{"a":1},"kv_transfer_params":null}`, "", true)
	f(`{"kv_transfer_params":[1]}`, "", true)
	f(`{"x":{"kv_transfer_params":{"a":1}}}`, "", true)
	f(`{}`, "", true)
	f(`[]`, "", false)
	f(``, "", false)
	f(`{"kv_transfer_params":{"a":1}`, "", false)
	f(`{"kv_transfer_params":{"a":1}}x`, "", false)
}

// Whatever the body: what is rewritten is what decoding, changing and encoding it
// would give.
func FuzzLegs(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","min_tokens":1,"stream":true,"messages":[]}`, `{"rid":1,"kv_transfer_params":{},"model":"m"}`, `{"model":"m"}`,
		`{"min_tokens":1,"min_tokens":2,"model":"m","rid":[{}],"bootstrap_room":1e5}`, "\uFEFF{\"rid\":0,\"model\":\"m\"}", `{"model":"m","prompt":[["a"],1]}`,
		`{"kv_transfer_params":{"a":1}}`, `{"kv_transfer_params":`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if params, ok := Transfer(body); ok && params != nil && !json.Valid(params) {
			t.Errorf("%q is handed over of %q", params, body)
		}
		r, err := Parse(Completions, body)
		if err != nil {
			return
		}
		drop := []LegName{LegRID, LegTransfer, LegMinTokens}
		l := ReadLegs(&r, body)
		got := Splice(nil, body, l.Rewrite(l.Set(nil, LegMaxTokens, "1"), `"new":1`, drop...))
		var was, is map[string]json.RawMessage
		plain := []byte(strings.TrimPrefix(string(body), "\uFEFF"))
		if json.Unmarshal(plain, &was) != nil {
			return // the standard library knows fewer documents
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(string(got), "\uFEFF")), &is); err != nil {
			t.Fatalf("%q became %q: %v", body, got, err)
		}
		if string(is["new"]) != "1" && was["new"] == nil {
			t.Errorf("%q lacks what was put in", got)
		}
		delete(is, "new")
		delete(was, "new")
		for _, k := range []string{"rid", "kv_transfer_params", "min_tokens"} {
			delete(was, k)
		}
		if was["max_tokens"] != nil {
			was["max_tokens"] = json.RawMessage("1")
		}
		if !maps.EqualFunc(was, is, func(a, b json.RawMessage) bool { return slices.Equal(a, b) }) {
			t.Errorf("%q became %q", body, got)
		}
	})
}
