package api

import "strings"

// llamaMistakes are how the messages begin that llama.cpp's server gives for what it can't
// make anything of in a request. It sends them with status 500, as it sends its own
// failures (tools/server and common/chat of build b10434).
var llamaMistakes = []string{
	"[json.exception.",
	"Failed to parse messages: ", "Failed to parse tools: ", "Failed to parse tool call arguments as JSON: ",
	"image input is not supported", "audio input is not supported", "video input is not supported",
	"Multimodal data provided, but model does not support multimodal requests.",
	"Failed to load image or audio file", "Failed to download image",
	"Invalid uri", "uri must be base64 encoded", "Invalid base64 value",
	"tools param requires --jinja flag", "tool_choice param requires --jinja flag",
	"Cannot use both json_schema and grammar", "Cannot specify grammar with tools",
	"Cannot specify both content and content_parts",
	"Unknown reasoning format: ", "Unsupported param: ", "Only no echo is supported", "\"prompt\" ",
}

// LlamaMistake reports whether the body of a 500 of llama.cpp's server blames the request:
// any other replica would say the same, and the one that said it is well.
func LlamaMistake(body []byte) bool {
	e, ok := ReadError(body)
	if !ok {
		return false
	}
	for _, begin := range llamaMistakes {
		if strings.HasPrefix(e.Message, begin) {
			return true
		}
	}
	return false
}
