package enginesim

import "net/http"

// writeError answers in the error shape of the engine's kind, on paths of the Messages
// API in that API's.
func (e *Engine) writeError(w http.ResponseWriter, r *http.Request, err *apiError) {
	if e.cfg.Kind == Anthropic || r.URL.Path == messagesPath || r.URL.Path == countTokensPath {
		writeJSON(w, err.status, e.messageError(err, w.Header()))
		return
	}
	writeJSON(w, err.status, e.errorBody(err))
}

// refuse answers a request for what isn't there.
func (e *Engine) refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	if e.cfg.Kind == Anthropic {
		e.writeError(w, r, &apiError{status: status, message: why})
		return
	}
	writeJSON(w, status, map[string]string{"detail": why})
}

// Error bodies, fields in the engines' order.
type (
	vllmError struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	}
	sglangError struct {
		Object string `json:"object"`
		vllmError
	}
	llamaError struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Type    string `json:"type"`
		Prompt  int    `json:"n_prompt_tokens,omitempty"`
		Context int    `json:"n_ctx,omitempty"`
	}
)

func (e *Engine) errorBody(err *apiError) any {
	body := vllmError{Message: err.message, Type: err.kind, Code: err.status}
	if err.param != "" {
		body.Param = &err.param
	}
	switch e.cfg.Kind {
	case SGLang:
		return sglangError{"error", body}
	case LlamaCpp:
		b := llamaError{Code: err.status, Message: err.message, Type: err.kind}
		switch {
		case err.prompt > 0:
			b.Message = "the request exceeds the available context size, try increasing it"
			b.Type, b.Prompt, b.Context = "exceed_context_size_error", err.prompt, e.cfg.contextLen()
		case err.status == http.StatusBadRequest:
			b.Type = "invalid_request_error"
		}
		return map[string]llamaError{"error": b}
	default:
		return map[string]vllmError{"error": body}
	}
}

// anthropicError is the error body of the Messages API.
type anthropicError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	RequestID string `json:"request_id,omitempty"`
}

// messageErrors are Anthropic's names of errors by status; others are
// invalid_request_error below 500 and api_error from there.
var messageErrors = map[int]string{
	http.StatusUnauthorized:          "authentication_error",
	http.StatusPaymentRequired:       "billing_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusConflict:              "conflict_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusGatewayTimeout:        "timeout_error",
	statusOverloaded:                 "overloaded_error",
}

// statusOverloaded is Anthropic's own.
const statusOverloaded = 529

// messageError is an error's body on the paths of the Messages API. vLLM keeps the
// names that it has for errors of the OpenAI API. The header is the answer's.
func (e *Engine) messageError(err *apiError, header http.Header) anthropicError {
	var body anthropicError
	body.Type, body.RequestID = "error", header.Get(requestIDHeader)
	name, ok := messageErrors[err.status]
	switch {
	case e.cfg.Kind == VLLM && err.kind != "":
		name = err.kind
	case ok:
	case err.status < http.StatusInternalServerError:
		name = "invalid_request_error"
	default:
		name = "api_error"
	}
	body.Error.Type, body.Error.Message = name, err.message
	return body
}
