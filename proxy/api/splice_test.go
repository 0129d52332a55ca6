package api

import "testing"

func TestSplicesChangeOnlyTheirPlace(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		r := parse(t, Chat, body)
		if got := string(Splice(nil, []byte(body), r.AskUsage(r.RenameModel(nil, `up/"m"`)))); got != want {
			t.Errorf("%s\n got %s\nwant %s", body, got, want)
		}
	}
	f(`{ "model" : "a" , "x":1 }`, `{ "model" : "up/\"m\"" , "x":1 }`)
	f(`{"model":"a","stream":true}`, `{"stream_options":{"include_usage":true},"model":"up/\"m\"","stream":true}`)
	f(`{"stream":true,"stream_options":null,"model":"a"}`, `{"stream":true,"stream_options":{"include_usage":true},"model":"up/\"m\""}`)
	f(`{"stream":true,"stream_options":{ },"model":"a"}`, `{"stream":true,"stream_options":{"include_usage":true},"model":"up/\"m\""}`)
	f(`{"stream":true,"stream_options":{ "x" : 1 },"model":"a"}`, `{"stream":true,"stream_options":{"include_usage":true, "x" : 1 },"model":"up/\"m\""}`)
	f(`{"stream":true,"stream_options":{"x":1,"include_usage": false },"model":"a"}`, `{"stream":true,"stream_options":{"x":1,"include_usage": true },"model":"up/\"m\""}`)
	f(`{"stream":true,"stream_options":{"include_usage":true},"model":"a"}`, `{"stream":true,"stream_options":{"include_usage":true},"model":"up/\"m\""}`)
	f(`{"stream":false,"stream_options":{"include_usage":false},"model":"a"}`, `{"stream":false,"stream_options":{"include_usage":false},"model":"up/\"m\""}`)
	f("\uFEFF{\"stream\":true,\"model\":\"a\"} \n", "\uFEFF{\"stream_options\":{\"include_usage\":true},\"stream\":true,\"model\":\"up/\\\"m\\\"\"} \n")
}

func TestNothingToChangeMeansNoEdit(t *testing.T) {
	body := `{"model":"a","messages":[]}`
	r := parse(t, Chat, body)
	if edits := r.AskUsage(nil); edits != nil {
		t.Fatalf("edits %v", edits)
	}
	if got := string(Splice(nil, []byte(body), nil)); got != body {
		t.Fatalf("got %s", got)
	}
}

func TestTenantSaltReplacesTheClients(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		r := parse(t, Other, body)
		if got := string(Splice(nil, []byte(body), r.SetCacheSalt(nil, "t"))); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
	f(`{"cache_salt":"mine","x":1}`, `{"cache_salt":"t","x":1}`)
	f(`{"cache_salt":{"a":1}}`, `{"cache_salt":"t"}`)
	f(`{"x":1}`, `{"cache_salt":"t","x":1}`)
	f(`{ }`, `{"cache_salt":"t" }`)
}
