package enginesim

import (
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// The paths of Anthropic's Messages API.
const (
	messagesPath    = "/v1/messages"
	countTokensPath = "/v1/messages/count_tokens"
)

// minThinkingBudget is the least budget_tokens that Anthropic takes.
const minThinkingBudget = 1024

// messageFields are those that Anthropic knows, betas included; any other is an error
// there, and ignored by engines.
var messageFields = []string{
	"model", "messages", "max_tokens", "cache_control", "compaction", "container", "context_management", "diagnostics",
	"fallback_credit_token", "fallbacks", "inference_geo", "mcp_servers", "metadata", "output_config", "output_format",
	"service_tier", "speed", "stop_sequences", "stream", "system", "temperature", "thinking", "tool_choice", "tools",
	"top_k", "top_p", "user_profile_id", "workspace_id",
}

// messages is the endpoint of POST /v1/messages.
func (e *Engine) messages() endpoint {
	prefix := "msg_"
	if e.cfg.Kind == VLLM {
		prefix = "chatcmpl-"
	}
	return endpoint{prefix, formatMessage, e.parseMessages, e.messagePrompts}
}

func (e *Engine) messagePrompts(r *request) ([][]uint32, *apiError) {
	p := messagePrompt{ids: make([]uint32, 0, len(r.messages.Raw)/4+64), media: e.cfg.MediaTokens, kind: e.cfg.Kind}
	if err := p.render(r); err != nil {
		return nil, err
	}
	r.marked = p.marked
	return [][]uint32{p.ids}, nil
}

// parseMessages reads the body of a request for a message.
func (e *Engine) parseMessages(body []byte) (*request, *apiError) {
	r, err := e.parseCount(body)
	if err == nil && r.limit < 0 {
		err = badRequest("max_tokens: Field required")
	}
	if err == nil && e.cfg.Kind == Anthropic {
		err = r.checkThinking()
	}
	return r, err
}

// parseCount reads what count_tokens takes too: a request without max_tokens.
func (e *Engine) parseCount(body []byte) (*request, *apiError) {
	root, err := object(body)
	if err != nil {
		return nil, err
	}
	r := &request{n: 1, limit: -1}
	var choice gjson.Result
	root.ForEach(func(k, v gjson.Result) bool {
		if e.cfg.Kind == Anthropic && !slices.Contains(messageFields, k.Str) {
			err = badRequest("%s: Extra inputs are not permitted", k.Str)
			return false
		}
		if v.Type == gjson.Null {
			return true
		}
		if k.Str == "tool_choice" {
			choice = v
			return true
		}
		err = r.messageField(k.Str, v)
		return err == nil
	})
	switch {
	case err != nil:
		return nil, err
	case r.model == "":
		return nil, badRequest("model: Field required")
	case !r.messages.Exists():
		return nil, badRequest("messages: Field required")
	}
	if err := r.chooseTool(choice); err != nil {
		return nil, err
	}
	return r, e.resolve(r)
}

func (r *request) messageField(name string, v gjson.Result) (err *apiError) {
	switch name {
	case "model":
		if v.Type != gjson.String || v.Str == "" {
			return badRequest("model: Input should be a valid string")
		}
		r.model = v.Str
	case "messages":
		if !v.IsArray() {
			return badRequest("messages: Input should be a valid list")
		}
		r.messages = v
	case "system":
		r.system = v
	case "tools":
		if !v.IsArray() {
			return badRequest("tools: Input should be a valid list")
		}
		r.tools = v
	case "max_tokens":
		r.limit, err = integer(name, v, 1)
	case "stream":
		r.stream, err = boolean(name, v)
	case "stop_sequences":
		for _, s := range v.Array() {
			if s.Type != gjson.String || strings.TrimSpace(s.Str) == "" {
				return badRequest("stop_sequences: each stop sequence must contain non-whitespace")
			}
			r.stops = append(r.stops, strings.Clone(s.Str))
		}
	case "thinking":
		err = r.readThinking(v)
	case cacheControl:
		r.cacheAll = v.IsObject()
	case "kv_transfer_params":
		r.transferParams(v)
	}
	return err
}

// readThinking reads how many tokens may be thoughts, -1 for any number.
func (r *request) readThinking(v gjson.Result) (err *apiError) {
	switch v.Get("type").Str {
	case "enabled":
		r.thinking, err = integer("thinking.enabled.budget_tokens", v.Get("budget_tokens"), 1)
	case "adaptive":
		r.thinking = -1
	case "disabled", "between_tools": // there are no calls to think between
	default:
		return badRequest("thinking.type: Input should be 'enabled', 'adaptive', 'between_tools' or 'disabled'")
	}
	return err
}

func (r *request) checkThinking() *apiError {
	switch {
	case r.thinking > 0 && r.thinking < minThinkingBudget:
		return badRequest("thinking.enabled.budget_tokens: Input should be greater than or equal to %d", minThinkingBudget)
	case r.thinking > 0 && r.thinking >= r.limit:
		return badRequest("`max_tokens` must be greater than `thinking.budget_tokens`")
	case r.thinking != 0 && r.tool != "":
		return badRequest("Thinking may not be enabled when tool_choice forces tool use.")
	}
	return nil
}

// chooseTool finds the tool that has to be called. As for a chat completion, any is
// the first one, and auto never calls.
func (r *request) chooseTool(choice gjson.Result) *apiError {
	if !choice.Exists() {
		return nil
	}
	names := []string{}
	r.tools.ForEach(func(_, t gjson.Result) bool {
		names = append(names, strings.Clone(t.Get("name").Str))
		return true
	})
	switch choice.Get("type").Str {
	case "auto", "none":
	case "any":
		if len(names) == 0 {
			return badRequest("tool_choice: may only be specified while providing tools")
		}
		r.tool = names[0]
	case "tool":
		name := choice.Get("name").Str
		if !slices.Contains(names, name) {
			return badRequest("Tool '%s' not found in provided tools", name)
		}
		r.tool = strings.Clone(name)
	default:
		return badRequest("tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'")
	}
	return nil
}

// countTokens answers how long a request's prompt is. It is no inference: nothing is
// scheduled, and the record doesn't have it.
func (e *Engine) countTokens(w http.ResponseWriter, r *http.Request) {
	body, err := e.readBody(w, r)
	if err == nil {
		err = e.admit(r, body)
	}
	var req *request
	if err == nil {
		req, err = e.parseCount(body)
	}
	var prompts [][]uint32
	if err == nil {
		prompts, err = e.messagePrompts(req)
	}
	if err != nil {
		e.writeError(w, r, err)
		return
	}
	type context struct {
		Original int `json:"original_input_tokens"`
	}
	count := struct {
		Input   int      `json:"input_tokens"`
		Context *context `json:"context_management,omitempty"`
	}{Input: len(prompts[0])}
	if e.cfg.Kind == VLLM {
		count.Context = &context{count.Input}
	}
	writeJSON(w, http.StatusOK, count)
}
