package sse_test

import (
	"fmt"

	"github.com/hearsay-llm/hearsay/proxy/sse"
)

func ExampleFramer() {
	var f sse.Framer
	f.Reset(sse.Options{DropUsage: true})
	for _, chunk := range []string{
		"data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n",
		"\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9}}\n\ndata: [DO",
		"NE]\n\n",
	} {
		out, err := f.Feed([]byte(chunk))
		fmt.Printf("%q %v\n", out, err)
	}
	fmt.Println(f.Finish(), string(f.Usage()), f.Done())
	// Output:
	// "" <nil>
	// "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n" <nil>
	// "data: [DONE]\n\n" <nil>
	// stop {"prompt_tokens":9} true
}
