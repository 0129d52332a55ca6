package messages_test

import (
	"fmt"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/proxy/api/messages"
	"github.com/hearsay-llm/hearsay/state"
)

func ExampleRequest() {
	body := `{"model":"fast","max_tokens":50,"system":"Be brief.","messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}]}`
	chat, asked, err := messages.Request(nil, []byte(body), messages.Options{Engine: state.EngineVLLM})
	fmt.Println(string(chat), err)

	answer := `{"id":"chatcmpl-1","choices":[{"message":{"content":"Hello."},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":3}}`
	message, err := messages.Response(nil, []byte(answer), asked, api.Inclusive)
	fmt.Println(string(message), err)
	// Output:
	// {"model":"fast","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}],"max_tokens":50} <nil>
	// {"id":"chatcmpl-1","type":"message","role":"assistant","model":"fast","content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":12,"output_tokens":3}} <nil>
}

func ExampleStream() {
	s := messages.NewStream(messages.Asked{Model: "fast"}, api.Inclusive)
	var out []byte
	for _, payload := range []string{
		`{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"Hello."},"finish_reason":"stop"}]}`,
		`{"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3}}`,
		`[DONE]`,
	} {
		out = s.Event(out, []byte(payload))
	}
	fmt.Print(string(s.End(out, nil))) // nothing more, since [DONE] came
	// Output:
	// event: message_start
	// data: {"type":"message_start","message":{"id":"chatcmpl-1","type":"message","role":"assistant","model":"fast","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"output_tokens":0}}}
	//
	// event: content_block_start
	// data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}
	//
	// event: content_block_delta
	// data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello."}}
	//
	// event: content_block_stop
	// data: {"type":"content_block_stop","index":0}
	//
	// event: message_delta
	// data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":12,"output_tokens":3}}
	//
	// event: message_stop
	// data: {"type":"message_stop"}
}
