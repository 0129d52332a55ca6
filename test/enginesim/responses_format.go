package enginesim

import (
	"strconv"

	"github.com/tidwall/gjson"
)

// responseForm writes one answer of Responses, as a body or as stream events. An answer
// is one item: a message with one text, or a function call.
type responseForm struct {
	engine Kind
	id     string
	model  string
	at     int64
	req    *request
	tool   string // the function that is called, "" for none
	item   string // id of the item
	call   string // id of the call

	number int64  // of the next event
	text   []byte // so far, as it stands in JSON
}

func newResponseForm(cfg Config, rec *RequestRecord, req *request) *responseForm {
	f := &responseForm{engine: cfg.Kind, id: rec.ID, model: rec.Model, at: rec.Arrival.Unix(), req: req, tool: req.tool}
	own := rec.ID[len("resp_"):]
	f.item, f.call = "msg_"+own, "call_"+own
	if f.tool != "" {
		f.item = "fc_" + own
	}
	return f
}

// responseUsage is a usage object of Responses.
type responseUsage struct {
	Input        int            `json:"input_tokens"`
	InputDetails map[string]int `json:"input_tokens_details,omitempty"`
	Output       int            `json:"output_tokens"`
	Details      map[string]int `json:"output_tokens_details"`
	Total        int            `json:"total_tokens"`
}

// responseObject is a response, fields in vLLM's order.
type responseObject struct {
	ID           string            `json:"id"`
	CreatedAt    int64             `json:"created_at"`
	Error        any               `json:"error"`
	Incomplete   any               `json:"incomplete_details"`
	Instructions any               `json:"instructions"`
	Metadata     map[string]string `json:"metadata"`
	Model        string            `json:"model"`
	Object       string            `json:"object"`
	Output       []any             `json:"output"`
	Parallel     bool              `json:"parallel_tool_calls"`
	Temperature  float64           `json:"temperature"`
	ToolChoice   string            `json:"tool_choice"`
	Tools        []any             `json:"tools"`
	TopP         float64           `json:"top_p"`
	Background   bool              `json:"background"`
	MaxOutput    *int              `json:"max_output_tokens"`
	Previous     *string           `json:"previous_response_id"`
	Status       string            `json:"status"`
	Usage        *responseUsage    `json:"usage"`
}

type (
	outputText struct {
		Annotations []any  `json:"annotations"`
		Text        string `json:"text"`
		Type        string `json:"type"`
		Logprobs    any    `json:"logprobs"`
	}
	outputMessage struct {
		ID      string       `json:"id"`
		Content []outputText `json:"content"`
		Role    string       `json:"role"`
		Status  string       `json:"status"`
		Type    string       `json:"type"`
	}
	outputCall struct {
		Arguments string `json:"arguments"`
		CallID    string `json:"call_id"`
		Name      string `json:"name"`
		Type      string `json:"type"`
		ID        string `json:"id"`
		Status    string `json:"status"`
	}
)

func (f *responseForm) object(status string, output []any, u *usage) responseObject {
	o := responseObject{
		ID: f.id, CreatedAt: f.at, Metadata: map[string]string{}, Model: f.model, Object: "response", Output: output,
		Parallel: true, Temperature: 1, ToolChoice: "auto", Tools: []any{}, TopP: 1, Status: status,
	}
	if f.req.limit >= 0 {
		o.MaxOutput = &f.req.limit
	}
	if f.req.previous != "" {
		o.Previous = &f.req.previous
	}
	if u != nil {
		o.Usage = &responseUsage{Input: u.prompt, Output: u.output, Total: u.prompt + u.output, Details: map[string]int{"reasoning_tokens": 0}}
		if f.engine != SGLang || u.cached > 0 { // SGLang leaves zero out
			o.Usage.InputDetails = map[string]int{"cached_tokens": u.cached}
		}
	}
	if status == "incomplete" {
		o.Incomplete = map[string]string{"reason": "max_output_tokens"}
	}
	return o
}

// output is the answer's one item, in progress or complete.
func (f *responseForm) output(status string) any {
	text := string(f.text)
	if f.tool != "" {
		return outputCall{Arguments: text, CallID: f.call, Name: f.tool, Type: "function_call", ID: f.item, Status: status}
	}
	m := outputMessage{ID: f.item, Content: []outputText{}, Role: "assistant", Status: status, Type: "message"}
	if status == "completed" {
		m.Content = append(m.Content, f.part())
	}
	return m
}

func (f *responseForm) part() outputText {
	return outputText{Annotations: []any{}, Text: string(f.text), Type: "output_text"}
}

// final is the whole response. As in both engines its status says whether it is complete,
// and the event that ends a stream is response.completed either way.
func (f *responseForm) final(g *generator, u usage) responseObject {
	status := "completed"
	if g.finishReason() == "length" && f.tool == "" {
		status = "incomplete"
	}
	return f.object(status, []any{f.output("completed")}, &u)
}

// event appends an event with these fields beside type and number.
func (f *responseForm) event(dst []byte, kind string, fields map[string]any) []byte {
	fields["type"], fields["sequence_number"] = kind, f.number
	f.number++
	dst = append(append(append(dst, "event: "...), kind...), "\ndata: "...)
	return append(append(dst, mustJSON(fields)...), "\n\n"...)
}

// announce appends an event that says no more than that an answer will come.
func (f *responseForm) announce(dst []byte, kind string) []byte {
	return f.event(dst, kind, map[string]any{"response": f.object("in_progress", []any{}, nil)})
}

// within are the fields of an event about the item's only part.
func (f *responseForm) within(more map[string]any) map[string]any {
	more["item_id"], more["output_index"] = f.item, 0
	if f.tool == "" {
		more["content_index"] = 0
	}
	return more
}

// delta appends the event of a piece of text, as it is.
func (f *responseForm) delta(dst, piece []byte) []byte {
	f.text = append(f.text, piece...)
	kind := "response.output_text.delta"
	fields := map[string]any{"delta": string(piece)}
	if f.tool != "" {
		kind = "response.function_call_arguments.delta"
	} else {
		fields["logprobs"] = []any{}
	}
	return f.event(dst, kind, f.within(fields))
}

// turns are the messages of the chat that a response goes on from.
func (f *responseForm) turns() []string {
	turn, _ := chatTurn(gjson.ParseBytes(mustJSON(f.output("completed"))))
	return append(f.req.turns[:len(f.req.turns):len(f.req.turns)], turn)
}

// failed appends the event that says that a stream failed.
func (f *responseForm) failed(dst []byte, err *apiError) []byte {
	return f.event(dst, "error", map[string]any{"code": strconv.Itoa(err.status), "message": err.message, "param": nil})
}
