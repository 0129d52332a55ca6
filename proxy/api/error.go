package api

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// Error is why a request is not served, shaped for the client. Message says what to do and tells nothing about the
// inside; Reason is for metrics and logs.
type Error struct {
	Status     int           // HTTP status
	Type       string        // OpenAI's error type, such as invalid_request_error
	Code       string        // OpenAI's error code, "" for null
	Param      string        // the field at fault, "" for null
	Message    string        // one or two sentences for the client
	RetryAfter time.Duration // when to come back; 0 sends no such header
	Reason     string        // short constant label for metrics and logs
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// AsError returns the *Error in err's chain. An error of another type becomes a 500 that says nothing about it.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return Internal()
}

// AppendOpenAI appends the error's body in the shape of OpenAI's API.
func (e *Error) AppendOpenAI(dst []byte) []byte {
	dst = append(dst, `{"error":{"message":`...)
	dst = scan.AppendQuoted(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = scan.AppendQuoted(dst, e.Type)
	dst = append(dst, `,"param":`...)
	dst = appendNullable(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = appendNullable(dst, e.Code)
	return append(dst, '}', '}')
}

// AppendAnthropic appends the error's body in the shape of Anthropic's API.
func (e *Error) AppendAnthropic(dst []byte) []byte {
	dst = append(dst, `{"type":"error","error":{"type":`...)
	dst = scan.AppendQuoted(dst, e.anthropicType())
	dst = append(dst, `,"message":`...)
	dst = scan.AppendQuoted(dst, e.Message)
	return append(dst, '}', '}')
}

// Shape is the shape of an API's errors.
type Shape uint8

// The shapes. Typed is OpenAI's Responses: bodies are OpenAI's, events have a name and a
// number.
const (
	OpenAI Shape = iota
	Anthropic
	Typed
)

// Append appends the error's body in a shape.
func (e *Error) Append(dst []byte, shape Shape) []byte {
	if shape == Anthropic {
		return e.AppendAnthropic(dst)
	}
	return e.AppendOpenAI(dst)
}

// AppendEvent appends the error as an event of a stream that has begun: a data line with the body, and a name but in
// OpenAI's older shape. number is the event's sequence number where the shape has one. No [DONE] belongs after it,
// since the stream did not end well.
func (e *Error) AppendEvent(dst []byte, shape Shape, number int64) []byte {
	if shape != OpenAI {
		dst = append(dst, "event: error\n"...)
	}
	dst = append(dst, "data: "...)
	if shape == Typed {
		dst = e.appendTyped(dst, number)
	} else {
		dst = e.Append(dst, shape)
	}
	return append(dst, '\n', '\n')
}

// appendTyped appends the error as the JSON of an event of Responses.
func (e *Error) appendTyped(dst []byte, number int64) []byte {
	dst = append(dst, `{"type":"error","code":`...)
	dst = appendNullable(dst, e.Code)
	dst = append(dst, `,"message":`...)
	dst = scan.AppendQuoted(dst, e.Message)
	dst = append(dst, `,"param":`...)
	dst = appendNullable(dst, e.Param)
	dst = append(dst, `,"sequence_number":`...)
	return append(strconv.AppendInt(dst, number, 10), '}')
}

// RetryAfterSeconds is RetryAfter in whole seconds, rounded up, as the header has it; 0 means no header.
func (e *Error) RetryAfterSeconds() int {
	return int((e.RetryAfter + time.Second - 1) / time.Second)
}

// anthropicType is the type that Anthropic's API gives an error of this status.
func (e *Error) anthropicType() string {
	switch e.Status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusPaymentRequired:
		return "billing_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable, StatusOverloaded:
		return "overloaded_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	}
	if e.Status < 500 {
		return "invalid_request_error"
	}
	return "api_error"
}

func appendNullable(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return scan.AppendQuoted(dst, s)
}

const invalidRequest = "invalid_request_error"

// StatusOverloaded is what Anthropic's API answers when it has no room.
const StatusOverloaded = 529

// StatusClientClosed is the status recorded for requests whose client went away; nobody receives it.
const StatusClientClosed = 499

// BadRequest is 400 for a field of the wrong type or value; param names it, "" for none.
func BadRequest(param, message string) *Error {
	return &Error{Status: http.StatusBadRequest, Type: invalidRequest, Param: param, Message: message, Reason: "bad_request"}
}

// Malformed is 400 for a body that is no JSON. The position is told, the body is not quoted.
func Malformed(err error) *Error {
	e := &Error{Status: http.StatusBadRequest, Type: invalidRequest, Code: "invalid_json", Reason: "malformed_body"}
	var fault *scan.Error
	if errors.As(err, &fault) {
		e.Message = "The request body is not valid JSON at byte " + strconv.Itoa(fault.Offset) + ": " + fault.Problem.String() + "."
	} else {
		e.Message = "The request body is not valid JSON."
	}
	return e
}

// Unauthorized is 401 for a missing or unknown key.
func Unauthorized() *Error {
	return &Error{
		Status: http.StatusUnauthorized, Type: "authentication_error", Code: "invalid_api_key", Reason: "unauthorized",
		Message: "The API key is missing or not valid. Send it as 'Authorization: Bearer KEY'.",
	}
}

// Forbidden is 403 for a key that may not do this.
func Forbidden(message string) *Error {
	return &Error{Status: http.StatusForbidden, Type: "permission_error", Code: "permission_denied", Message: message, Reason: "forbidden"}
}

// ModelNotFound is 404 for a model no pool serves. Long names are cut in the message.
func ModelNotFound(model string) *Error {
	return &Error{
		Status: http.StatusNotFound, Type: invalidRequest, Code: "model_not_found", Param: "model", Reason: "model_not_found",
		Message: "The model '" + shorten(model) + "' does not exist here or is not available to you. GET /v1/models lists the models.",
	}
}

// NotFound is 404 for a path that is not served.
func NotFound() *Error {
	return &Error{
		Status: http.StatusNotFound, Type: invalidRequest, Code: "unknown_url", Reason: "unknown_path",
		Message: "There is nothing at this path. This API serves POST /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/responses, /v1/messages and others that are documented, and GET /v1/models.",
	}
}

// MethodNotAllowed is 405; allow is the list for the Allow header, such as "POST".
func MethodNotAllowed(allow string) *Error {
	return &Error{
		Status: http.StatusMethodNotAllowed, Type: invalidRequest, Code: "method_not_allowed", Reason: "method_not_allowed",
		Message: "This path does not take this method. Use " + allow + ".",
	}
}

// BodyTimeout is 408 for a body that did not arrive in time.
func BodyTimeout() *Error {
	return &Error{
		Status: http.StatusRequestTimeout, Type: invalidRequest, Code: "request_timeout", Reason: "body_timeout",
		Message: "The request body did not arrive in time. Send it again.",
	}
}

// BodyTooLarge is 413; limit is in bytes.
func BodyTooLarge(limit int64) *Error {
	return &Error{
		Status: http.StatusRequestEntityTooLarge, Type: invalidRequest, Code: "request_too_large", Reason: "body_too_large",
		Message: "The request body is larger than the limit of " + strconv.FormatInt(limit, 10) + " bytes.",
	}
}

// UnsupportedMedia is 415 for a content type, charset or encoding that is not understood; what names it, and got is what
// came. A long one is cut in the message.
func UnsupportedMedia(what, got string) *Error {
	return &Error{
		Status: http.StatusUnsupportedMediaType, Type: invalidRequest, Code: "unsupported_media_type", Reason: "unsupported_media",
		Message: "The request's " + what + " '" + strings.ToValidUTF8(shorten(got), "?") + "' is not supported. Send application/json in UTF-8.",
	}
}

// VersionNotSupported is 505 for a version of HTTP other than 1.0 and 1.1.
func VersionNotSupported() *Error {
	return &Error{
		Status: http.StatusHTTPVersionNotSupported, Type: invalidRequest, Code: "http_version", Reason: "http_version",
		Message: "This server speaks HTTP/1.1. Put a proxy in front of it for other versions.",
	}
}

// UpgradeRefused is 400 for a client that wants to speak WebSocket.
func UpgradeRefused() *Error {
	e := BadRequest("", "This server speaks no WebSocket. Send a POST without an Upgrade header.")
	e.Code, e.Reason = "upgrade_refused", "upgrade_refused"
	return e
}

// HeadersTooLarge is 431.
func HeadersTooLarge() *Error {
	return &Error{
		Status: http.StatusRequestHeaderFieldsTooLarge, Type: invalidRequest, Code: "headers_too_large", Reason: "headers_too_large",
		Message: "The request's headers are too large.",
	}
}

// RateLimited is 429 for a limit of the client's own; code names the limit, such as "requests_per_minute".
func RateLimited(code, message string, retryAfter time.Duration) *Error {
	return &Error{
		Status: http.StatusTooManyRequests, Type: "rate_limit_error", Code: code, Message: message,
		RetryAfter: retryAfter, Reason: "rate_limited",
	}
}

// Overloaded is 429 for a pool whose queue is full or whose wait would be too long; reason says which.
func Overloaded(reason string, retryAfter time.Duration) *Error {
	return &Error{
		Status: http.StatusTooManyRequests, Type: "overloaded_error", Code: "overloaded", RetryAfter: retryAfter, Reason: reason,
		Message: "All replicas of this model are busy. Try again later.",
	}
}

// ClientClosed is recorded for requests whose client went away.
func ClientClosed() *Error {
	return &Error{
		Status: StatusClientClosed, Type: invalidRequest, Code: "client_closed_request", Reason: "client_closed",
		Message: "The client closed the request.",
	}
}

// Internal is 500 for a fault of the router itself.
func Internal() *Error {
	return &Error{
		Status: http.StatusInternalServerError, Type: "server_error", Code: "internal_error", Reason: "internal",
		Message: "The router met an internal error. Try again; tell the operator the x-request-id if it happens again.",
	}
}

// BadGateway is 502 for an engine that failed or answered something unusable.
func BadGateway(reason string) *Error {
	return &Error{
		Status: http.StatusBadGateway, Type: "server_error", Code: "upstream_error", Reason: reason,
		Message: "The model's replica failed while answering. Try again.",
	}
}

// Unavailable is 503 for a model that has no replica alive.
func Unavailable(reason string, retryAfter time.Duration) *Error {
	return &Error{
		Status: http.StatusServiceUnavailable, Type: "server_error", Code: "no_replica", RetryAfter: retryAfter, Reason: reason,
		Message: "No replica of this model is available at the moment. Try again later.",
	}
}

// GatewayTimeout is 504 for an engine that did not answer in time.
func GatewayTimeout(reason string) *Error {
	return &Error{
		Status: http.StatusGatewayTimeout, Type: "server_error", Code: "upstream_timeout", Reason: reason,
		Message: "The model's replica did not answer in time. Try again, with a shorter prompt or fewer output tokens if it happens again.",
	}
}

// shorten cuts a client-given name to what a message should hold, at a character's start.
func shorten(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && s[cut]&0xC0 == 0x80 {
		cut--
	}
	return s[:cut] + "..."
}
