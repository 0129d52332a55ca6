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
	places := p.places()
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
		if err := p.read(f, places[f]); err != nil {
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
	case fieldMaxOutputTokens, fieldReasoning, fieldInstructions, fieldPrevious, fieldConversation, fieldBackground:
		there = ep == Responses
	case fieldSystem, fieldThinking:
		there = ep == Messages || ep == Count
	}
	if !there {
		return fieldNone
	}
	return f
}

// places is where the fields' spans belong, nil for those of which only the value counts.
func (p *parser) places() [fieldCount]*Span {
	r := p.r
	places := [...]*Span{
		fieldModel: &r.model, fieldStreamOptions: &r.streamOptions, fieldCacheSalt: &r.cacheSalt, fieldPriority: &r.priority, fieldTier: &r.tier,
		fieldTemplate: &r.Template, fieldTemplateArgs: &r.TemplateArgs, fieldReasoningEffort: &r.ReasoningEffort, fieldDocuments: &r.Documents,
		fieldTools: &r.Tools, fieldFunctions: &r.Functions, fieldPrompt: &r.Prompt, fieldInput: &r.Prompt,
		fieldInstructions: &r.Instructions, fieldPrevious: &r.Previous, fieldConversation: &r.Conversation,
		fieldSystem: &r.System, fieldThinking: &r.Thinking, fieldBackground: nil,
	}
	if r.Endpoint == Responses {
		places[fieldPrompt] = &r.Reference
	}
	return places
}

// read reads the value of a field. Faults of syntax stick to the cursor and are reported at the end.
func (p *parser) read(f field, place *Span) *Error {
	r := p.r
	if f == fieldMessages {
		return p.messages()
	}
	v := p.c.Skip()
	if v.Kind == scan.None {
		return nil
	}
	if place != nil {
		*place = p.span(v)
	}
	switch f {
	case fieldModel:
		if v.Kind != scan.String {
			return BadRequest("model", "'model' must be a string.")
		}
		if r.Model = p.text(v); r.Model == "" {
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
		p.options = v
	case fieldMaxTokens:
		p.maxTokens = p.positive(v)
	case fieldMaxCompletionTokens, fieldMaxOutputTokens:
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
		if v.Kind == scan.Null {
			*place = Span{}
		}
	case fieldTier:
		if v.Kind == scan.String {
			r.Tier = tierOf(p.text(v))
		}
	case fieldTools, fieldFunctions:
		if v.Kind != scan.Array && v.Kind != scan.Null {
			return BadRequest(f.name(), "'"+f.name()+"' must be an array.")
		}
	case fieldPrevious:
		switch v.Kind {
		case scan.String:
			r.PreviousID = p.text(v)
		case scan.Null:
			*place = Span{}
		default:
			return BadRequest("previous_response_id", "'previous_response_id' must be a string.")
		}
	case fieldConversation:
		if v.Kind == scan.Null {
			*place = Span{}
		}
	case fieldBackground:
		r.Background = v.Kind == scan.True
	case fieldReasoning: // only the effort changes the prompt
		if _, effort, _ := p.members(v, "effort"); effort.Kind != scan.None {
			r.ReasoningEffort = p.span(effort)
		}
	}
	return nil
}

// members looks for a name in an object that has been checked before, and returns the first and the last member of that
// name and whether there is any member at all. Another kind of value has none.
func (p *parser) members(object scan.Value, name string) (first, last scan.Value, some bool) {
	raw := object.Raw(p.body)
	c := scan.New(raw)
	if !c.EnterObject() {
		return first, last, false
	}
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		some = true
		if string(key.Text(raw, scratch[:0])) != name {
			continue
		}
		v.Start, v.End = object.Start+v.Start, object.Start+v.End
		if last = v; first.Kind == scan.None {
			first = v
		}
	}
	return first, last, some
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

// streamOptions looks for include_usage.
func (p *parser) streamOptions() *Error {
	const param = "stream_options.include_usage"
	first, last, some := p.members(p.options, "include_usage")
	p.r.streamOptionsFields = some
	switch first.Kind {
	case scan.None:
		return nil
	case scan.True:
		p.r.IncludeUsage = true
	case scan.False, scan.Null:
	default:
		return BadRequest(param, "'include_usage' must be true or false.")
	}
	if last.Start != first.Start {
		return BadRequest(param, "'include_usage' stands more than once in 'stream_options'. Send it once.")
	}
	p.r.includeUsage = p.span(first)
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
