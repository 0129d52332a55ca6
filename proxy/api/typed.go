package api

import (
	"bytes"
	"net/http"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// Events follows the events of one stream of Responses. The zero value is ready.
type Events struct {
	Next   int64  // the sequence number of the event that comes next
	Failed bool   // the response failed
	Code   string // why, as the engine has it
	ID     string // of the response; empty: not told yet
}

// responsePrefix begins the ids of responses.
const responsePrefix = "resp_"

// maxID bounds an id that is kept.
const maxID = 128

// responseID is the id of a response that a value holds, empty if it holds none.
func responseID(doc []byte, v scan.Value) string {
	if v.Kind != scan.String || v.Escaped {
		return ""
	}
	id := v.Inner(doc)
	if len(id) > maxID || !bytes.HasPrefix(id, []byte(responsePrefix)) {
		return ""
	}
	return string(id)
}

// idOf is the id in a response.
func idOf(response []byte) string {
	c := scan.New(response)
	c.EnterObject()
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		if v := c.Skip(); string(key.Text(response, scratch[:0])) == "id" {
			return responseID(response, v)
		}
	}
	return ""
}

// Read reads the JSON of one event. The output that the last one tells is passed to sink,
// if that is not nil.
func (e *Events) Read(event []byte, sink AnswerSink) {
	c := scan.New(event)
	if !c.EnterObject() {
		return
	}
	var kind, response scan.Value
	var scratch [40]byte
	next := e.Next
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		switch string(key.Text(event, scratch[:0])) {
		case "type":
			kind = v
		case "sequence_number":
			if n, ok := scan.Int(v.Raw(event)); ok && v.Kind == scan.Number && n >= 0 && n < 1<<53 {
				next = n + 1
			}
		case "response":
			response = v
		}
	}
	if c.End() != nil {
		return // cut: the client won't have it
	}
	e.Next = next
	if kind.Kind != scan.String || response.Kind != scan.Object {
		return
	}
	if e.ID == "" {
		e.ID = idOf(response.Raw(event))
	}
	switch raw := response.Raw(event); string(kind.Text(event, scratch[:0])) {
	case "response.completed", "response.incomplete":
		if sink != nil {
			readOutput(raw, sink)
		}
	case "response.failed":
		e.Failed = true
		e.Code = failureOf(raw)
	}
}

// readOutput passes the items of a response to a sink.
func readOutput(response []byte, sink AnswerSink) {
	var r Response
	c := scan.New(response)
	c.EnterObject()
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		if string(key.Text(response, scratch[:0])) == "output" {
			r.blocks(&c, response, sink)
		} else {
			c.Skip()
		}
	}
	if r.Choices != 1 {
		sink.BreakAnswer()
	}
}

// failureOf is the code of a response's error.
func failureOf(response []byte) string {
	c := scan.New(response)
	c.EnterObject()
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		if string(key.Text(response, scratch[:0])) != "error" || !c.EnterObject() {
			c.Skip()
			continue
		}
		for key, ok := c.NextField(); ok; key, ok = c.NextField() {
			if v := c.Skip(); v.Kind == scan.String && string(key.Text(response, scratch[:0])) == "code" {
				return string(v.Text(response, nil))
			}
		}
	}
	return ""
}

// ReadTypedError reads an event of type error of Responses. It returns false for other
// JSON.
func ReadTypedError(event []byte) (EngineError, bool) {
	var e EngineError
	c := scan.New(event)
	if !c.EnterObject() {
		return e, false
	}
	typed, nested := false, false
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		switch name := string(key.Text(event, scratch[:0])); name {
		case "type":
			typed = v.Kind == scan.String && string(v.Inner(event)) == "error"
		case "error":
			nested = true // another API's
		default:
			e.field(name, event, v)
		}
	}
	if c.End() != nil || !typed || nested {
		return EngineError{}, false
	}
	if e.Status == 0 {
		e.Status = StatusOfCode(e.Code)
	}
	return e, true
}

// StatusOfCode is the HTTP status that goes with a code in an error of Responses: 500 for
// those that say nothing of the request.
func StatusOfCode(code string) int {
	switch code {
	case "rate_limit_exceeded":
		return http.StatusTooManyRequests
	case "", "server_error", "internal_error", "vector_store_timeout", "upstream_error", "upstream_timeout", "no_replica", "shutting_down":
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}

// Names are what an answer must say in place of what its engine says.
type Names struct {
	Model    string // of the model, a JSON string with its quotes; empty: as the engine does
	Of       string // the one name that Model takes the place of, a JSON string; empty: any
	Tag      string // what a response's id gets at its end; empty: nothing
	Previous string // what previous_response_id was, a JSON string; empty: the engine's, with the tag
}

// Any reports whether anything is to be changed.
func (n *Names) Any() bool { return *n != Names{} }

// Rewrite is an answer with these names in place of its own. It may be the beginning of one: what is not in it is not
// replaced. body is not changed. Of Responses the object's own id and previous_response_id are meant, and nothing
// deeper in it.
func Rewrite(body []byte, n Names) []byte {
	doc := body
	if len(body) >= 3 && body[0] == 0xEF && body[1] == 0xBB && body[2] == 0xBF {
		doc = body[3:] // a byte order mark
	}
	at := len(body) - len(doc)
	c := scan.New(doc)
	if !c.EnterObject() {
		return body
	}
	var edits []Edit
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		if v.Kind != scan.String {
			continue
		}
		whole := Span{at + v.Start, at + v.End}
		switch name := string(key.Text(doc, scratch[:0])); {
		case name == "model" && n.Model != "" && (n.Of == "" || string(v.Raw(doc)) == n.Of):
			edits = append(edits, Edit{whole, n.Model})
			if n.Tag == "" {
				return Splice(make([]byte, 0, SplicedLen(body, edits)), body, edits)
			}
		case name == "previous_response_id" && n.Previous != "":
			edits = append(edits, Edit{whole, n.Previous})
		case (name == "id" || name == "previous_response_id") && n.Tag != "" && v.End-v.Start > 2:
			end := Span{whole.End - 1, whole.End - 1}
			edits = append(edits, Edit{end, n.Tag})
		}
	}
	if len(edits) == 0 {
		return body
	}
	return Splice(make([]byte, 0, SplicedLen(body, edits)), body, edits)
}
