package messages

import (
	"bytes"
	"net/http"

	"github.com/hearsay-llm/hearsay/proxy/api"
)

// Error is the client's error of an engine's that answered with this HTTP status and body; its AppendAnthropic writes
// it. A status of 0 stands for an error inside an answer, whose own status counts. Where the request is at fault (4xx)
// the engine's words are kept, since only it knows what is wrong; of what is wrong inside nothing is told.
//
// 503 stays 503 and 529 stays 529. Both have the type overloaded_error, and official clients try again after both.
func Error(status int, body []byte) *api.Error {
	engine, _ := api.ReadError(body)
	if status >= 400 && status < 600 {
		engine.Status = status
	}
	var e *api.Error
	switch engine.Status {
	case http.StatusServiceUnavailable, api.StatusOverloaded:
		e = api.Unavailable("engine_error", 0)
		e.Status = engine.Status
		e.Message = "The model's replica is overloaded. Try again later."
	case http.StatusGatewayTimeout:
		e = api.GatewayTimeout("engine_error")
	default:
		e = engine.ForClient()
	}
	if tooLong(&engine) {
		e.Message = "prompt is too long: " + e.Message
	}
	return e
}

// tooLong says whether the engine refused a prompt that does not fit. Clients know it by Anthropic's words, and make
// their prompt shorter.
func tooLong(e *api.EngineError) bool {
	if e.Status != http.StatusBadRequest && e.Status != http.StatusRequestEntityTooLarge {
		return false
	}
	message := bytes.ToLower([]byte(e.Message))
	if bytes.Contains(message, []byte("prompt is too long")) {
		return false
	}
	return e.Code == "context_length_exceeded" || e.Type == "exceed_context_size_error" ||
		bytes.Contains(message, []byte("maximum context length")) || bytes.Contains(message, []byte("context size"))
}
