package api

import (
	"errors"
	"math"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// parser is one run of Parse.
type parser struct {
	body []byte // without byte order mark
	c    scan.Cursor
	at   int // what to add to the cursor's offsets to get the body's
	r    *Request

	seen                uint64 // a bit per field met
	maxTokens           int    // 0 = unknown
	maxCompletionTokens int    // 0 = unknown
	options             scan.Value
}

func (p *parser) run() *Error {
	if !p.c.EnterObject() {
		if p.c.Pos() == len(p.body) {
			return BadRequest("", "The request body is empty. Send a JSON object.")
		}
		p.c.Skip()
		if err := p.c.End(); err != nil {
			return p.malformed(err)
		}
		return BadRequest("", "The request body must be a JSON object.")
	}
	p.r.object = p.at + p.c.Pos()
	p.r.empty = true
	var scratch [32]byte
	for key, ok := p.c.NextField(); ok; key, ok = p.c.NextField() {
		p.r.empty = false
		f := p.fieldOf(key.Text(p.body, scratch[:0]))
		if f == fieldNone {
			p.c.Skip()
			continue
		}
		if p.seen&(1<<f) != 0 {
			return BadRequest(f.name(), "'"+f.name()+"' stands more than once in the request body. Send it once.")
		}
		p.seen |= 1 << f
		if err := p.read(f); err != nil {
			return err
		}
	}
	if err := p.c.End(); err != nil {
		return p.malformed(err)
	}
	return p.finish()
}

// fieldOf leaves out what does not concern the endpoint.
func (p *parser) fieldOf(key []byte) field {
	f := fieldOf(key)
	ep := p.r.Endpoint
	there := true
	switch f {
	case fieldPrompt:
		there = ep == Completions || ep == Responses
	case fieldInput:
		there = ep == Embeddings || ep == Responses
	case fieldN, fieldFunctions:
		there = ep == Chat || ep == Completions || ep == Embeddings
	case fieldTools:
		there = ep != Other
	case fieldMessages:
		there = ep != Other && ep != Responses
	case fieldMaxOutputTokens, fieldReasoning, fieldInstructions, fieldPrevious, fieldConversation:
		there = ep == Responses
	case fieldSystem, fieldThinking:
		there = ep == Messages
	}
	if !there {
		return fieldNone
	}
	return f
}

// read reads the value of a field. Faults of syntax stick to the cursor and are reported at the end.
func (p *parser) read(f field) *Error {
	r := p.r
	if f == fieldMessages {
		return p.messages()
	}
	v := p.c.Skip()
	if v.Kind == scan.None {
		return nil
	}
	span := p.span(v)
	switch f {
	case fieldModel:
		if v.Kind != scan.String {
			return BadRequest("model", "'model' must be a string.")
		}
		if r.Model, r.model = p.text(v), span; r.Model == "" {
			return BadRequest("model", "'model' must not be empty.")
		}
	case fieldStream:
		switch v.Kind {
		case scan.True:
			r.Stream = true
		case scan.False, scan.Null:
		default:
			return BadRequest("stream", "'stream' must be true or false.")
		}
	case fieldStreamOptions:
		r.streamOptions, p.options = span, v
	case fieldMaxTokens:
		p.maxTokens = p.positive(v)
	case fieldMaxCompletionTokens:
		p.maxCompletionTokens = p.positive(v)
	case fieldN:
		if v.Kind == scan.Null {
			break
		}
		if r.N = p.positive(v); r.N == 0 {
			r.N = 1
			return BadRequest("n", "'n' must be an integer of at least 1.")
		}
	case fieldCacheSalt:
		r.cacheSalt = span
		if v.Kind == scan.String {
			r.CacheSalt = p.text(v)
		}
	case fieldUser:
		if v.Kind == scan.String {
			r.User = p.text(v)
		}
	case fieldPriority:
		if n, ok := scan.Int(v.Raw(p.body)); ok && v.Kind == scan.Number {
			r.Priority, r.HasPriority = int(n), true
		}
	case fieldTemplate:
		r.Template = span
	case fieldTemplateArgs:
		r.TemplateArgs = span
	case fieldReasoningEffort:
		r.ReasoningEffort = span
	case fieldDocuments:
		r.Documents = span
	case fieldTools:
		r.Tools = span
		return p.listOrNull(f, v)
	case fieldFunctions:
		r.Functions = span
		return p.listOrNull(f, v)
	case fieldPrompt:
		if r.Endpoint == Responses {
			r.Reference = span
		} else {
			r.Prompt = span
		}
	case fieldInput:
		r.Prompt = span
	case fieldMaxOutputTokens:
		p.maxCompletionTokens = p.positive(v)
	case fieldReasoning:
		p.reasoning(v)
	case fieldInstructions:
		r.Instructions = span
	case fieldPrevious:
		r.Previous = span
	case fieldConversation:
		r.Conversation = span
	case fieldSystem:
		r.System = span
	case fieldThinking:
		r.Thinking = span
	}
	return nil
}

// reasoning looks for the effort in a response's reasoning: the rest of it does not change the prompt.
func (p *parser) reasoning(v scan.Value) {
	if v.Kind != scan.Object {
		return
	}
	raw := v.Raw(p.body)
	c := scan.New(raw)
	c.EnterObject()
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		if effort := c.Skip(); string(key.Text(raw, scratch[:0])) == "effort" {
			at := p.at + v.Start
			p.r.ReasoningEffort = Span{at + effort.Start, at + effort.End}
		}
	}
}

// messages reads the list of messages and checks that each is an object.
func (p *parser) messages() *Error {
	const wrong = "'messages' must be an array of objects."
	if k := p.c.Peek(); k != scan.Array {
		if p.c.Skip(); p.c.Err() != nil {
			return nil
		}
		return BadRequest("messages", wrong)
	}
	start := p.c.Pos()
	if !p.c.EnterArray() {
		return nil // too deep: it sticks
	}
	for p.c.NextElem() {
		k := p.c.Peek()
		if p.c.Skip(); k != scan.Object && p.c.Err() == nil {
			return BadRequest("messages", wrong)
		}
	}
	p.r.Messages = Span{p.at + start, p.at + p.c.Pos()}
	return nil
}

func (p *parser) listOrNull(f field, v scan.Value) *Error {
	if v.Kind != scan.Array && v.Kind != scan.Null {
		return BadRequest(f.name(), "'"+f.name()+"' must be an array.")
	}
	return nil
}

// finish checks what needs more than one field.
func (p *parser) finish() *Error {
	r := p.r
	if r.Model == "" && r.Endpoint != Other {
		return BadRequest("model", "The request names no model. Set 'model'; GET /v1/models lists the models.")
	}
	if r.MaxTokens = p.maxCompletionTokens; r.MaxTokens == 0 {
		r.MaxTokens = p.maxTokens
	}
	if !r.Stream {
		return nil
	}
	switch p.options.Kind {
	case scan.Object:
		return p.streamOptions()
	case scan.None, scan.Null:
		return nil
	}
	return BadRequest("stream_options", "'stream_options' must be an object.")
}

// streamOptions looks for include_usage. The object has been checked before.
func (p *parser) streamOptions() *Error {
	const param = "stream_options.include_usage"
	start := p.options.Start
	raw := p.options.Raw(p.body)
	c := scan.New(raw)
	c.EnterObject()
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		p.r.streamOptionsFields = true
		if string(key.Text(raw, scratch[:0])) != "include_usage" {
			continue
		}
		if p.r.includeUsage.Present() {
			return BadRequest(param, "'include_usage' stands more than once in 'stream_options'. Send it once.")
		}
		p.r.includeUsage = Span{p.at + start + v.Start, p.at + start + v.End}
		switch v.Kind {
		case scan.True:
			p.r.IncludeUsage = true
		case scan.False, scan.Null:
		default:
			return BadRequest(param, "'include_usage' must be true or false.")
		}
	}
	return nil
}

func (p *parser) span(v scan.Value) Span { return Span{p.at + v.Start, p.at + v.End} }

func (p *parser) text(v scan.Value) string {
	var scratch [64]byte
	return string(v.Text(p.body, scratch[:0]))
}

// positive is the value of a positive integer, 0 for anything else.
func (p *parser) positive(v scan.Value) int {
	if v.Kind != scan.Number {
		return 0
	}
	n, ok := scan.Int(v.Raw(p.body))
	if !ok || n < 1 {
		return 0
	}
	return int(min(n, math.MaxInt32))
}

func (p *parser) malformed(err error) *Error {
	var fault *scan.Error
	if errors.As(err, &fault) {
		moved := *fault
		moved.Offset += p.at
		err = &moved
	}
	return Malformed(err)
}
