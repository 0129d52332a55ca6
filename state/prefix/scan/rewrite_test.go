package scan

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestRewriteForEngineProtocols(t *testing.T) {
	changes := []Change{
		{Field: "stream", Value: "false"},
		{Field: "max_tokens", Value: "1"},
		{Field: "max_completion_tokens", Value: "1", IfThere: true},
		{Field: "stream_options"},
		{Field: "min_tokens"},
		{Field: "kv_transfer_params", Value: `{"do_remote_decode":true}`},
	}
	f := func(body, want string, ok bool) {
		t.Helper()
		got, done := Rewrite([]byte("|"), []byte(body), changes)
		if string(got) != "|"+want || done != ok {
			t.Errorf("%s\n got %s, %v\nwant %s", body, got, done, want)
		}
	}
	f(`{"model":"a","stream":true,"stream_options":{},"min_tokens":4,"x": [1, 2]}`+"\n",
		`{"max_tokens":1,"kv_transfer_params":{"do_remote_decode":true},"model":"a","stream":false,"x": [1, 2]}`+"\n", true)
	f(`{"stream_options":{},"min_tokens":4, "max_completion_tokens" : 7}`,
		`{"stream":false,"max_tokens":1,"kv_transfer_params":{"do_remote_decode":true},"max_completion_tokens" : 1}`, true)
	f("\uFEFF{}", "\uFEFF"+`{"stream":false,"max_tokens":1,"kv_transfer_params":{"do_remote_decode":true}}`, true)
	f(`{"min_tok\u0065ns":1,"max_tokens":5,"max_tokens":6}`, `{"stream":false,"kv_transfer_params":{"do_remote_decode":true},"max_tokens":1,"max_tokens":1}`, true)
	f(`[]`, `[]`, false)
	f(`{"a":1`, `{"a":1`, false)
}

func FuzzRewrite(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":[2],"c":"x"}`))
	f.Add([]byte(` { "b" : 1 } `))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		out, ok := Rewrite(nil, body, []Change{{Field: "a", Value: `"new"`}, {Field: "b"}, {Field: "c", Value: "0", IfThere: true}})
		if !ok {
			if string(out) != string(body) {
				t.Fatalf("%q became %q", body, out)
			}
			return
		}
		if len(body) > 3 && body[0] == 0xEF {
			body, out = body[3:], out[3:]
		}
		var before, after map[string]json.RawMessage
		if json.Unmarshal(body, &before) != nil || json.Unmarshal(out, &after) != nil {
			t.Fatalf("%q became %q", body, out)
		}
		if _, there := after["b"]; there || string(after["a"]) != `"new"` {
			t.Fatalf("%q became %q", body, out)
		}
		if _, there := before["c"]; there {
			before["c"] = json.RawMessage("0")
		}
		for _, k := range []string{"a", "b"} {
			delete(before, k)
			delete(after, k)
		}
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%q became %q", body, out)
		}
	})
}
