package api

import (
	"net/http"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// EngineError is an error an engine wrote into a body or into a stream's event.
type EngineError struct {
	Status  int // the HTTP status the body names or implies; 0 if it does neither
	Type    string
	Code    string // as written; numbers as their digits
	Message string
}

// ReadError reads an error body in any of the forms engines write: {"error":{...}}, {"error":"...","error_type":"..."},
// {"object":"error",...}, {"detail":"..."}, {"type":"error","error":{...}}. It returns false if the body holds none.
func ReadError(body []byte) (EngineError, bool) {
	var e EngineError
	c := scan.New(body)
	if !c.EnterObject() {
		return e, false
	}
	found := false
	var top, inner EngineError
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		switch name := string(key.Text(body, scratch[:0])); name {
		case "error":
			switch c.Peek() {
			case scan.Object:
				found = true
				c.EnterObject()
				for key, ok := c.NextField(); ok; key, ok = c.NextField() {
					inner.field(string(key.Text(body, scratch[:0])), body, c.Skip())
				}
			case scan.String:
				found = true
				inner.field("message", body, c.Skip())
			default:
				c.Skip()
			}
		case "object":
			v := c.Skip()
			found = found || v.Kind == scan.String && string(v.Inner(body)) == "error"
		case "detail":
			if v := c.Skip(); v.Kind == scan.String {
				found = true
				inner.field("message", body, v)
			}
		default:
			top.field(name, body, c.Skip())
		}
	}
	if c.End() != nil || !found {
		return EngineError{}, false
	}
	e = inner
	if e.Message == "" {
		e.Message = top.Message
	}
	if e.Type == "" && top.Type != "error" {
		e.Type = top.Type
	}
	if e.Code == "" {
		e.Code = top.Code
	}
	if e.Status == 0 {
		e.Status = top.Status
	}
	if e.Status == 0 {
		e.Status = statusOf(e.Type)
	}
	return e, true
}

func (e *EngineError) field(name string, doc []byte, v scan.Value) {
	text := ""
	switch v.Kind {
	case scan.String:
		text = string(v.Text(doc, nil))
	case scan.Number:
		text = string(v.Raw(doc))
	default:
		return
	}
	switch name {
	case "message":
		e.Message = text
	case "type", "error_type":
		e.Type = text
	case "code", "http_status_code", "status", "status_code":
		if n, ok := scan.Int([]byte(text)); ok && n >= 400 && n < 600 {
			e.Status = int(n)
		}
		if name == "code" {
			e.Code = text
		}
	}
}

func statusOf(kind string) int {
	switch kind {
	case "BadRequestError", invalidRequest, "validation", "exceed_context_size_error":
		return http.StatusBadRequest
	case "authentication_error", "AuthenticationError":
		return http.StatusUnauthorized
	case "NotFoundError", "not_found_error":
		return http.StatusNotFound
	case "rate_limit_error", "overloaded":
		return http.StatusTooManyRequests
	case "overloaded_error", "unavailable_error":
		return http.StatusServiceUnavailable
	case "InternalServerError", "internal_error", "server_error", "api_error":
		return http.StatusInternalServerError
	}
	return 0
}

// ForClient is the error as a client gets it when nothing was sent yet: the engine's own words where the request is at
// fault (4xx), since only the engine knows what is wrong with it; a 502 that says nothing of the inside otherwise.
func (e EngineError) ForClient() *Error {
	if e.Status < 400 || e.Status >= 500 {
		return BadGateway("engine_error")
	}
	out := &Error{Status: e.Status, Type: e.Type, Code: e.Code, Message: e.Message, Reason: "engine_refused"}
	if out.Type == "" {
		out.Type = invalidRequest
	}
	if out.Message == "" {
		out.Message = "The model's engine refused the request."
	}
	return out
}
