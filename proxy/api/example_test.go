package api_test

import (
	"fmt"

	"github.com/hearsay-llm/hearsay/proxy/api"
)

func ExampleParse() {
	body := []byte(`{"model":"default","messages":[{"role":"user","content":"hi"}],"stream":true,"top_k":3}`)
	r, err := api.Parse(api.Chat, body)
	if err != nil {
		fmt.Println(string(api.AsError(err).AppendOpenAI(nil)))
		return
	}
	edits := r.AskUsage(r.RenameModel(nil, "meta/llama"))
	fmt.Println(r.Model, r.Stream, string(r.Messages.Of(body)))
	fmt.Println(string(api.Splice(nil, body, edits)))
	// Output:
	// default true [{"role":"user","content":"hi"}]
	// {"stream_options":{"include_usage":true},"model":"meta/llama","messages":[{"role":"user","content":"hi"}],"stream":true,"top_k":3}
}

func ExampleParse_refused() {
	_, err := api.Parse(api.Chat, []byte(`{"model":"m","stream":"yes"}`))
	fmt.Println(string(api.AsError(err).AppendOpenAI(nil)))
	// Output: {"error":{"message":"'stream' must be true or false.","type":"invalid_request_error","param":"stream","code":null}}
}
