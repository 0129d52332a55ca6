package enginesim

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// apiError is an answer with an error body.
type apiError struct {
	status  int
	kind    string // as the OpenAI API has it
	message string
	param   string // "" = null
	prompt  int    // prompt tokens, of a context overflow
}

func (e *apiError) Error() string { return e.message }

func badRequest(format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "BadRequestError", message: fmt.Sprintf(format, args...)}
}

// request is what the engine reads of a body; everything else is ignored.
type request struct {
	model           string // as asked; "" = base
	adapter         string
	stream          bool
	includeUsage    bool
	continuousUsage bool
	n               int
	limit           int // max_tokens; -1 = none
	min             int
	ignoreEOS       bool
	salt            string
	rid             string
	dimensions      int
	base64          bool
	remoteDecode    bool   // prefill for another engine
	remotePrefill   bool   // the prompt's blocks come from another engine
	room            string // where SGLang's legs meet; "" = none
	messages, tools gjson.Result
	tool            string // the function that has to be called; "" = none
	prompt, input   gjson.Result

	stops []string // sequences that end the answer

	// Of Responses.
	turns    []string // messages of the chat that says the same
	previous string   // id of the response it goes on from; "" = none
	keep     bool

	// Of the Messages API.
	system   gjson.Result
	thinking int  // tokens that may be thoughts: 0 = none, -1 = any number
	cacheAll bool // cache_control of the whole request
	marked   int  // prompt tokens that cache_control asks to cache, set when rendered
}

const maxSequences = 4096 // per request

// object is a body's JSON object. It refers to body.
func object(body []byte) (gjson.Result, *apiError) {
	if !utf8.Valid(body) || !gjson.ValidBytes(body) {
		return gjson.Result{}, badRequest("[{'type': 'json_invalid', 'loc': ('body', 0), 'msg': 'JSON decode error', 'input': {}}]")
	}
	root := gjson.Parse(view(body))
	if !root.IsObject() {
		return gjson.Result{}, badRequest("[{'type': 'model_attributes_type', 'loc': ('body',), 'msg': 'Input should be a valid dictionary or object to extract fields from'}]")
	}
	return root, nil
}

// parse reads a body. As in Python, the last of repeated keys counts and null is
// the same as absent. The result refers to body.
func (e *Engine) parse(body []byte) (*request, *apiError) {
	root, err := object(body)
	if err != nil {
		return nil, err
	}
	r := &request{n: 1, limit: -1}
	var completionLimit, toolChoice gjson.Result
	root.ForEach(func(k, v gjson.Result) bool {
		if v.Type == gjson.Null {
			return true
		}
		switch k.Str {
		case "model":
			if v.Type != gjson.String {
				err = invalid("model", "Input should be a valid string")
				return false
			}
			r.model = v.Str
		case "messages":
			r.messages = v
		case "tools":
			r.tools = v
		case "tool_choice":
			toolChoice = v
		case "prompt":
			r.prompt = v
		case "input":
			r.input = v
		case "stream":
			r.stream, err = boolean(k.Str, v)
		case "stream_options":
			r.includeUsage = v.Get("include_usage").Bool()
			r.continuousUsage = v.Get("continuous_usage_stats").Bool()
		case "n":
			r.n, err = integer(k.Str, v, 1)
		case "max_tokens":
			r.limit, err = integer(k.Str, v, 1)
		case "max_completion_tokens":
			completionLimit = v
		case "min_tokens":
			r.min, err = integer(k.Str, v, 0)
		case "stop":
			r.stops, err = stopSequences(v)
		case "ignore_eos":
			r.ignoreEOS, err = boolean(k.Str, v)
		case "cache_salt":
			if v.Type != gjson.String || v.Str == "" {
				err = badRequest("Parameter 'cache_salt' must be a non-empty string if provided.")
			}
			r.salt = v.Str
		case "rid":
			r.rid = strings.Clone(v.Str)
		case "dimensions":
			r.dimensions, err = integer(k.Str, v, 1)
		case "encoding_format":
			r.base64 = v.Str == "base64"
		case "bootstrap_room":
			r.room = strings.Clone(v.Raw)
		case "kv_transfer_params":
			r.transferParams(v)
		}
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	switch {
	case toolChoice.Str == "required":
		r.tool = strings.Clone(r.tools.Get("0.function.name").Str)
	case toolChoice.IsObject():
		r.tool = strings.Clone(toolChoice.Get("function.name").Str)
	}
	if completionLimit.Exists() {
		if r.limit, err = integer("max_completion_tokens", completionLimit, 1); err != nil {
			return nil, err
		}
	}
	if r.n > maxSequences {
		return nil, badRequest("n must be at most %d, got %d.", maxSequences, r.n)
	}
	if r.limit >= 0 && r.min > r.limit {
		return nil, badRequest("min_tokens must be less than or equal to max_tokens=%d, got %d.", r.limit, r.min)
	}
	return r, e.resolve(r)
}

// transferParams reads vLLM's kv_transfer_params.
func (r *request) transferParams(v gjson.Result) {
	r.remoteDecode = v.Get("do_remote_decode").Bool()
	r.remotePrefill = v.Get("do_remote_prefill").Bool()
}

// resolve finds the model. SGLang and llama.cpp serve any name from the base
// model.
func (e *Engine) resolve(r *request) *apiError {
	switch adapter, ok := e.adapterOf(r.model); {
	case ok:
		r.model, r.adapter = strings.Clone(r.model), adapter
	case adapter != "":
		return badRequest("Got LoRA adapter that has never been loaded: %s", adapter)
	case r.model == "" || r.model == e.cfg.Model:
		r.model = e.cfg.Model
	case e.cfg.Kind == Anthropic:
		return &apiError{status: http.StatusNotFound, message: "model: " + r.model}
	case e.cfg.Kind == VLLM:
		return &apiError{status: http.StatusNotFound, kind: "NotFoundError", param: "model", message: fmt.Sprintf("The model `%s` does not exist.", r.model)}
	default:
		r.model = strings.Clone(r.model) // don't keep the body
	}
	return nil
}

func invalid(field, message string) *apiError {
	return badRequest("[{'type': 'value_error', 'loc': ('body', '%s'), 'msg': '%s'}]", field, message)
}

// boolean accepts what the engines' validation takes for one.
func boolean(field string, v gjson.Result) (bool, *apiError) {
	switch v.Raw {
	case "true", "1", `"true"`, `"1"`, `"yes"`, `"on"`:
		return true, nil
	case "false", "0", `"false"`, `"0"`, `"no"`, `"off"`:
		return false, nil
	}
	return false, invalid(field, "Input should be a valid boolean")
}

// integer accepts whole numbers, also in a string, from least up to 2^31.
func integer(field string, v gjson.Result, least int) (int, *apiError) {
	f := v.Float()
	if (v.Type != gjson.Number && v.Type != gjson.String) || f != float64(int64(f)) || v.Type == gjson.String && fmt.Sprint(int64(f)) != v.Str {
		return 0, invalid(field, "Input should be a valid integer")
	}
	if f < float64(least) {
		return 0, badRequest("%s must be at least %d, got %s.", field, least, v.Raw)
	}
	return int(min(f, 1<<31)), nil
}

const markText uint32 = 7 // begins a text completion's prompt

// prompts renders a text completion's or an embedding's input: a string, token
// ids, or a list of either. Token ids are used as they are.
func prompts(field string, v gjson.Result) ([][]uint32, *apiError) {
	bad := invalid(field, "Input should be a string, a list of strings, a list of token ids or a list of lists of token ids")
	switch {
	case v.Type == gjson.String:
		return [][]uint32{textPrompt(v.Str)}, nil
	case !v.IsArray():
		return nil, bad
	}
	first := v.Get("0")
	if !first.Exists() {
		return nil, invalid(field, "List should have at least 1 item")
	}
	if first.Type == gjson.Number {
		ids, ok := tokenIDs(v)
		if !ok {
			return nil, bad
		}
		return [][]uint32{ids}, nil
	}
	var out [][]uint32
	good := true
	v.ForEach(func(_, x gjson.Result) bool {
		switch {
		case x.Type == gjson.String && first.Type == gjson.String:
			out = append(out, textPrompt(x.Str))
		case x.IsArray() && first.IsArray():
			var ids []uint32
			ids, good = tokenIDs(x)
			good = good && len(ids) > 0
			out = append(out, ids)
		default:
			good = false
		}
		return good && len(out) <= maxSequences
	})
	if !good || len(out) > maxSequences {
		return nil, bad
	}
	return out, nil
}

func textPrompt(s string) []uint32 {
	return AppendTokens(append(make([]uint32, 0, len(s)/4+8), markText), s)
}

func tokenIDs(v gjson.Result) ([]uint32, bool) {
	var ids []uint32
	ok := true
	v.ForEach(func(_, x gjson.Result) bool {
		n := x.Int()
		if ok = x.Type == gjson.Number && n >= 0 && n < 1<<32 && float64(n) == x.Num; ok {
			ids = append(ids, uint32(n))
		}
		return ok
	})
	return ids, ok
}

// stopSequences reads one or several.
func stopSequences(v gjson.Result) (stops []string, err *apiError) {
	list := []gjson.Result{v}
	if v.IsArray() {
		list = v.Array()
	}
	for _, s := range list {
		if s.Type != gjson.String || s.Str == "" {
			return nil, badRequest("stop: Input should be a valid string that is not empty")
		}
		stops = append(stops, strings.Clone(s.Str))
	}
	return stops, nil
}
