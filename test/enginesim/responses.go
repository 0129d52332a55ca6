package enginesim

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/tidwall/gjson"
	"github.com/zeebo/xxh3"
)

// OpenAI's Responses on vLLM and SGLang. A request is rendered as the chat completion
// that says the same, behind what it goes on from, so that both find the same prefix in
// the cache. Responses are kept in the process, unless store is false.

const responsesPath = "/v1/responses"

// responsesPaths are those of Responses. Real vLLM keeps responses only when told to, and
// neither deletes one.
func (e *Engine) responsesPaths(handle route) {
	handle(http.MethodPost, responsesPath, e.ranked(func(e *Engine) http.HandlerFunc { return e.inference(e.response) }))
	handle(http.MethodPost, responsesPath+"/{id}/cancel", e.cancelResponse)
	one := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			e.deleteResponse(w, r)
			return
		}
		e.getResponse(w, r)
	}
	handle("", responsesPath+"/{id}", one)
}

func (e *Engine) response() endpoint {
	return endpoint{"resp_", formatResponse, e.parseResponse, func(r *request) ([][]uint32, *apiError) {
		messages := gjson.Parse("[" + strings.Join(r.turns, ",") + "]")
		ids, err := appendChat(nil, messages, r.tools, e.cfg.MediaTokens)
		if err != nil {
			return nil, badRequest("%v", err)
		}
		return [][]uint32{ids}, nil
	}}
}

// parseResponse reads a body of Responses. turns then are the messages of the chat that
// says the same.
func (e *Engine) parseResponse(body []byte) (*request, *apiError) {
	r, err := e.parse(body)
	if err != nil {
		return nil, err
	}
	root := gjson.Parse(view(body))
	r.keep = root.Get("store").Type != gjson.False
	if v := root.Get("max_output_tokens"); v.Exists() && v.Type != gjson.Null {
		if r.limit, err = integer("max_output_tokens", v, 1); err != nil {
			return nil, err
		}
	}
	if v := root.Get("instructions"); v.Type == gjson.String {
		r.turns = append(r.turns, chatMessage("system", string(jsonString(v.Str))))
	}
	if v := root.Get("previous_response_id"); v.Type == gjson.String {
		turns, ok := e.kept.turns(v.Str)
		if !ok {
			return nil, noResponse(v.Str)
		}
		r.previous = strings.Clone(v.Str)
		r.turns = append(r.turns, turns...)
	}
	switch {
	case r.input.Type == gjson.String:
		r.turns = append(r.turns, chatMessage("user", string(jsonString(r.input.Str))))
	case r.input.IsArray():
		r.input.ForEach(func(_, item gjson.Result) bool {
			var turn string
			turn, err = chatTurn(item)
			if turn != "" {
				r.turns = append(r.turns, turn)
			}
			return err == nil
		})
	default:
		err = invalid("input", "Input should be a valid string or list")
	}
	if err != nil {
		return nil, err
	}
	r.chatTools(root.Get("tool_choice"))
	return r, nil
}

// chatTools gives the tools the form that they have in a chat.
func (r *request) chatTools(choice gjson.Result) {
	if !r.tools.IsArray() {
		return
	}
	var list []string
	r.tools.ForEach(func(_, t gjson.Result) bool {
		fields := []string{`"name":` + string(jsonString(t.Get("name").Str))}
		for _, name := range []string{"description", "parameters", "strict"} {
			if v := t.Get(name); v.Exists() {
				fields = append(fields, `"`+name+`":`+v.Raw)
			}
		}
		list = append(list, `{"type":"function","function":{`+strings.Join(fields, ",")+`}}`)
		return true
	})
	r.tools = gjson.Parse("[" + strings.Join(list, ",") + "]")
	switch {
	case choice.Str == "required":
		r.tool = r.tools.Get("0.function.name").Str
	case choice.IsObject():
		r.tool = strings.Clone(choice.Get("name").Str)
	}
}

// chatMessage is a message of a chat; content is JSON.
func chatMessage(role, content string) string {
	return `{"role":` + string(jsonString(role)) + `,"content":` + content + `}`
}

// chatTurn is an item of a response's input or output as a message of a chat, "" for one
// that leaves no trace.
func chatTurn(item gjson.Result) (string, *apiError) {
	switch kind := item.Get("type").Str; kind {
	case "", "message":
		content := item.Get("content").Raw
		if content == "" {
			content = "null"
		}
		return chatMessage(item.Get("role").Str, content), nil
	case "function_call":
		return fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"function":{"name":%s,"arguments":%s}}]}`,
			jsonString(item.Get("name").Str), jsonString(item.Get("arguments").Str)), nil
	case "function_call_output":
		return chatMessage("tool", item.Get("output").Raw), nil
	case "reasoning":
		return "", nil
	default:
		return "", badRequest("input: unknown item type %q", kind)
	}
}

// responses are those that a process keeps.
type responses struct {
	mu sync.Mutex
	m  map[string]*keptResponse // guarded by mu
}

// keptResponse is one of them.
type keptResponse struct {
	turns []string // messages of the chat up to and with its answer
	body  []byte
}

func (s *responses) turns(id string) ([]string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.m[id]
	if !ok {
		return nil, false
	}
	return k.turns, true
}

func (s *responses) get(id string) (keptResponse, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.m[id]
	if !ok {
		return keptResponse{}, false
	}
	return *k, true
}

func (s *responses) put(id string, k keptResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[string]*keptResponse{}
	}
	s.m[id] = &k
}

func (s *responses) drop(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.m[id]
	delete(s.m, id)
	return ok
}

// clear forgets all, as a new process has.
func (s *responses) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m = nil
}

func noResponse(id string) *apiError {
	return &apiError{status: http.StatusNotFound, kind: "invalid_request_error", param: "response_id", message: fmt.Sprintf("Response with id '%s' not found.", id)}
}

func (e *Engine) getResponse(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	k, ok := e.kept.get(id)
	switch {
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", "GET, DELETE")
		e.refuse(w, r, http.StatusMethodNotAllowed, "Method Not Allowed")
	case !ok:
		e.writeError(w, r, noResponse(id))
	case r.URL.Query().Get("stream") == "true":
		e.writeError(w, r, &apiError{status: http.StatusBadRequest, kind: "BadRequestError", param: "response_id", message: "Unknown response_id: " + id})
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(k.body)
	}
}

func (e *Engine) deleteResponse(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !e.kept.drop(id) {
		e.writeError(w, r, noResponse(id))
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"id": id, "object": "response.deleted", "deleted": true})
}

// cancelResponse ends one that runs in the background. Here none does: all are answered
// when they are asked for.
func (e *Engine) cancelResponse(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if _, ok := e.kept.get(id); !ok {
		e.writeError(w, r, noResponse(id))
		return
	}
	e.writeError(w, r, &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", param: "response_id", message: "Cannot cancel a synchronous response."})
}

// responseID is the id of a response: no two engines give the same, nor two processes of
// one. Locked.
func (e *Engine) responseID(rec *RequestRecord) string {
	seed := fmt.Sprint(e.number, e.born.UnixNano(), e.cfg.Seed, rec.Seq)
	a := xxh3.HashString128(seed)
	return fmt.Sprintf("%016x%016x", a.Hi, a.Lo)
}
