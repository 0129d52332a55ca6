package api

import (
	"sync"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// AnswerSink takes a chat answer's pieces as they come, decoded; *prefix.Hasher is one. Slices are only lent.
type AnswerSink interface {
	AnswerText(piece []byte)
	AnswerCall(name []byte)
	AnswerArguments(piece []byte)
	BreakAnswer()
}

// Response is what a whole answer that is not streamed says.
type Response struct {
	Usage    Usage
	HasUsage bool
	Choices  int    // elements of choices, or of data for embeddings
	Text     int    // length of all choices' text as it is written in the body, bytes
	Finish   string // finish_reason of the first choice, or stop_reason; "" for none
	Object   bool   // the body is a JSON object and nothing else
	ID       string // of Responses: the response's; empty: none, or of another API
	Error    bool   // the body holds an error object instead of an answer
}

// ReadResponse reads the body of a chat, completion, embedding, Responses or Messages answer. It never fails: what can't be read is absent.
// Where sink is not nil and the answer has exactly one choice, the choice's text and tool calls are passed to it; an
// answer of several choices, or one the next turn can't be told from, breaks it.
func ReadResponse(body []byte, family Family, sink AnswerSink) Response {
	var r Response
	var timings []byte
	failed, typed := false, false
	if len(body) >= 3 && body[0] == 0xEF && body[1] == 0xBB && body[2] == 0xBF {
		body = body[3:] // a byte order mark
	}
	c := scan.New(body)
	if !c.EnterObject() {
		if sink != nil {
			sink.BreakAnswer()
		}
		return r
	}
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		switch string(key.Text(body, scratch[:0])) {
		case "usage":
			r.Usage = readUsage(&c, body, family)
			r.HasUsage = r.Usage.Source == Reported
		case "timings":
			timings = c.Skip().Raw(body)
		case "error":
			failed = c.Peek() != scan.Null
			c.Skip()
		case "object":
			// vLLM's older error form has no error object.
			v := c.Skip()
			name := ""
			if v.Kind == scan.String {
				name = string(v.Inner(body))
			}
			failed, typed = failed || name == "error", name == "response"
		case "id":
			r.ID = responseID(body, c.Skip())
		case "choices":
			r.choices(&c, body, sink)
		case "content", "output":
			r.blocks(&c, body, sink)
		case "stop_reason":
			if v := c.Skip(); v.Kind == scan.String {
				r.Finish = string(v.Text(body, nil))
			}
		case "data":
			r.Choices = elements(&c)
		default:
			c.Skip()
		}
	}
	if c.End() != nil {
		if sink != nil {
			sink.BreakAnswer()
		}
		return Response{}
	}
	r.Object = true
	r.Error = failed && !typed // a response that failed is one
	if family == LlamaCpp && timings != nil {
		if u, ok := ParseTimings(timings); ok {
			u.Reasoning = r.Usage.Reasoning
			r.Usage, r.HasUsage = u, true
		}
	}
	if sink != nil && r.Choices != 1 {
		sink.BreakAnswer()
	}
	return r
}

func (r *Response) choices(c *scan.Cursor, doc []byte, sink AnswerSink) {
	if !c.EnterArray() {
		c.Skip()
		return
	}
	pieces := whole.Get().(*Deltas)
	defer whole.Put(pieces)
	pieces.calls = 0
	for c.NextElem() {
		var d delta
		d.choice(c, doc)
		for _, v := range [...]scan.Value{d.text, d.content} {
			if v.Kind == scan.String {
				r.Text += len(v.Inner(doc))
			}
		}
		if r.Choices == 0 {
			if d.finish.Kind == scan.String {
				r.Finish = string(d.finish.Text(doc, nil))
			}
			if sink != nil {
				d.feed(doc, sink, pieces)
			}
		}
		r.Choices++
	}
}

// whole are Deltas for answers that are not streamed: what they lend makes them live on the heap.
var whole = sync.Pool{New: func() any { return new(Deltas) }}

func elements(c *scan.Cursor) int {
	if !c.EnterArray() {
		c.Skip()
		return 0
	}
	n := 0
	for c.NextElem() {
		c.Skip()
		n++
	}
	return n
}

// Deltas reads the chunks of one streamed answer and passes its pieces to a sink. It must see every chunk, in order.
// The zero value is ready; it serves one stream and must not be used by two goroutines at once.
type Deltas struct {
	calls int       // tool calls begun
	buf   [512]byte // what is lent to the sink
}

// Read reads the JSON of one chunk. Chunks of other choices than the first break the answer, as do tool calls that do
// not come one after the other and chunks that can't be read. It returns where in the chunk the piece of text lies that
// is all it says, a JSON string with its quotes; both are 0 where it says anything else, or nothing.
func (d *Deltas) Read(chunk []byte, sink AnswerSink) (from, to int) {
	c := scan.New(chunk)
	if !c.EnterObject() {
		sink.BreakAnswer()
		return 0, 0
	}
	choices := 0
	var text scan.Value
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		if string(key.Text(chunk, scratch[:0])) != "choices" || !c.EnterArray() {
			c.Skip()
			continue
		}
		for ; c.NextElem(); choices++ {
			var one delta
			one.choice(&c, chunk)
			if one.index != 0 {
				sink.BreakAnswer()
				return 0, 0
			}
			one.feed(chunk, sink, d)
			text = one.onlyText()
		}
	}
	if c.End() != nil {
		sink.BreakAnswer()
		return 0, 0
	}
	if choices != 1 {
		return 0, 0
	}
	return text.Start, text.End
}

// Text passes the next piece of text on, a string's inner bytes as they lie in the chunk.
func (d *Deltas) Text(inner []byte, escaped bool, sink AnswerSink) {
	d.pass(inner, escaped, sink, false)
}

// delta is one choice of a chunk or of a whole answer.
type delta struct {
	index                           int64
	finish, text                    scan.Value
	content, refusal, calls, legacy scan.Value
}

func (d *delta) choice(c *scan.Cursor, doc []byte) {
	if !c.EnterObject() {
		c.Skip()
		return
	}
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		switch string(key.Text(doc, scratch[:0])) {
		case "index":
			if v := c.Skip(); v.Kind == scan.Number {
				d.index, _ = scan.Int(v.Raw(doc))
			}
		case "finish_reason":
			d.finish = c.Skip()
		case "text": // completions
			d.text = c.Skip()
		case "delta", "message":
			d.message(c, doc)
		default:
			c.Skip()
		}
	}
}

func (d *delta) message(c *scan.Cursor, doc []byte) {
	if !c.EnterObject() {
		c.Skip()
		return
	}
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		switch string(key.Text(doc, scratch[:0])) {
		case "content":
			d.content = v
		case "refusal":
			d.refusal = v
		case "tool_calls":
			d.calls = v
		case "function_call":
			d.legacy = v
		}
	}
}

// onlyText is the text of a choice that says nothing else, none if it does.
func (d *delta) onlyText() scan.Value {
	switch {
	case d.calls.Kind == scan.Array || d.legacy.Kind == scan.Object || d.refusal.Kind == scan.String:
	case d.text.Kind == scan.String && d.content.Kind == scan.None:
		return d.text
	case d.content.Kind == scan.String && d.text.Kind == scan.None:
		return d.content
	}
	return scan.Value{}
}

// feed passes the choice's pieces on.
func (d *delta) feed(doc []byte, sink AnswerSink, stream *Deltas) {
	stream.text(doc, d.text, sink, false)
	switch d.content.Kind {
	case scan.String:
		stream.text(doc, d.content, sink, false)
	case scan.None, scan.Null:
	default:
		sink.BreakAnswer()
	}
	if d.refusal.Kind == scan.String && d.refusal.End-d.refusal.Start > 2 || d.legacy.Kind == scan.Object {
		sink.BreakAnswer()
	}
	if d.calls.Kind != scan.Array {
		return
	}
	raw := d.calls.Raw(doc)
	c := scan.New(raw)
	c.EnterArray()
	for at := 0; c.NextElem(); at++ {
		stream.toolCall(&c, raw, at, sink)
	}
}

// toolCall reads one element of tool_calls. Elements without an index, as in whole answers, have their place as index.
func (s *Deltas) toolCall(c *scan.Cursor, doc []byte, at int, sink AnswerSink) {
	if !c.EnterObject() {
		c.Skip()
		sink.BreakAnswer()
		return
	}
	index := int64(at)
	var name, arguments scan.Value
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		switch string(key.Text(doc, scratch[:0])) {
		case "index":
			if v := c.Skip(); v.Kind == scan.Number {
				index, _ = scan.Int(v.Raw(doc))
			}
		case "function":
			if !c.EnterObject() {
				c.Skip()
				continue
			}
			for key, ok := c.NextField(); ok; key, ok = c.NextField() {
				v := c.Skip()
				switch string(key.Text(doc, scratch[:0])) {
				case "name":
					name = v
				case "arguments":
					arguments = v
				}
			}
		default:
			c.Skip()
		}
	}
	switch {
	case index == int64(s.calls):
		s.calls++
		if name.Kind != scan.String {
			sink.BreakAnswer()
			return
		}
		sink.AnswerCall(name.Text(doc, s.buf[:0]))
	case index != int64(s.calls)-1, name.Kind == scan.String && name.End-name.Start > 2:
		sink.BreakAnswer()
		return
	}
	s.text(doc, arguments, sink, true)
}

// text passes a string's decoded bytes on in pieces, as arguments of the last tool call or as text.
func (s *Deltas) text(doc []byte, v scan.Value, sink AnswerSink, arguments bool) {
	if v.Kind != scan.String {
		return
	}
	s.pass(v.Inner(doc), v.Escaped, sink, arguments)
}

// pass does it with the string's inner bytes.
func (s *Deltas) pass(raw []byte, escaped bool, sink AnswerSink, arguments bool) {
	for len(raw) > 0 {
		piece := raw
		if escaped {
			n, used := scan.Decode(s.buf[:], raw)
			piece, raw = s.buf[:n], raw[used:]
		} else {
			raw = nil
		}
		if arguments {
			sink.AnswerArguments(piece)
		} else {
			sink.AnswerText(piece)
		}
	}
}
