package api

import (
	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// Legs is what serving a request in two legs, prefill and decode, needs to know of its
// body: where the fields are that one of them must see differently.
type Legs struct {
	Several bool // more than one sequence is asked for, by choices or by prompts
	Scores  bool // the prompt's own tokens or their probabilities are part of the answer
	Prompts int  // of a list of prompts; 0 where there is no list

	object int // just behind the opening brace
	fields int // of the body
	at     []legField
}

// legField is one field that concerns legs.
type legField struct {
	name  LegName
	index int // among the body's fields, from 0
	from  int // where its key begins
	value Span
	prev  int // end of the value before it
	next  int // where the next key begins; 0: it is the last
}

// LegName names a field that concerns legs.
type LegName uint8

// The fields.
const (
	legNone LegName = iota
	LegStream
	LegStreamOptions
	LegMaxTokens
	LegMaxCompletionTokens
	LegMinTokens
	LegTransfer // kv_transfer_params
	LegBootstrapHost
	LegBootstrapPort
	LegBootstrapRoom
	LegRID
	legBestOf
	legBeams
	legEcho
	legPromptLogprobs
	legLogprobStart
)

func legName(key []byte) LegName {
	switch string(key) {
	case "stream":
		return LegStream
	case "stream_options":
		return LegStreamOptions
	case "max_tokens":
		return LegMaxTokens
	case "max_completion_tokens":
		return LegMaxCompletionTokens
	case "min_tokens":
		return LegMinTokens
	case "kv_transfer_params":
		return LegTransfer
	case "bootstrap_host":
		return LegBootstrapHost
	case "bootstrap_port":
		return LegBootstrapPort
	case "bootstrap_room":
		return LegBootstrapRoom
	case "rid":
		return LegRID
	case "best_of":
		return legBestOf
	case "use_beam_search":
		return legBeams
	case "echo":
		return legEcho
	case "prompt_logprobs":
		return legPromptLogprobs
	case "logprob_start_len":
		return legLogprobStart
	}
	return legNone
}

// ReadLegs reads what legs need of a body that Parse has accepted as r.
func ReadLegs(r *Request, body []byte) *Legs {
	l := &Legs{object: r.object, Several: r.N > 1}
	if raw := r.Prompt.Of(body); r.Endpoint == Completions {
		l.Prompts = prompts(raw)
		l.Several = l.Several || l.Prompts > 1
	}
	start := 0
	if len(body) >= 3 && body[0] == 0xEF && body[1] == 0xBB && body[2] == 0xBF {
		start = 3
	}
	doc := body[start:]
	c := scan.Reread(doc)
	if !c.EnterObject() {
		return l
	}
	prev, open := r.object, -1 // the field whose next is not known yet
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		if open >= 0 {
			l.at[open].next, open = start+key.Start, -1
		}
		name := legName(key.Text(doc, scratch[:0]))
		v := c.Skip()
		if name != legNone {
			open = len(l.at)
			l.at = append(l.at, legField{
				name: name, index: l.fields, from: start + key.Start, value: Span{start + v.Start, start + v.End}, prev: prev,
			})
			l.judge(name, v, doc)
		}
		prev = start + v.End
		l.fields++
	}
	return l
}

// judge notes what a field asks for that only one engine alone can give.
func (l *Legs) judge(name LegName, v scan.Value, doc []byte) {
	n, number := scan.Int(v.Raw(doc))
	number = number && v.Kind == scan.Number
	switch name {
	case legBestOf:
		l.Several = l.Several || number && n > 1
	case legBeams:
		l.Several = l.Several || v.Kind == scan.True
	case legEcho:
		l.Scores = l.Scores || v.Kind == scan.True
	case legPromptLogprobs:
		l.Scores = l.Scores || v.Kind == scan.Number
	case legLogprobStart:
		l.Scores = l.Scores || number && n >= 0
	}
}

// prompts counts a list of prompts; a list of token ids is one prompt and no list.
func prompts(raw []byte) (n int) {
	c := scan.Reread(raw)
	if !c.EnterArray() {
		return 0
	}
	for c.NextElem() {
		if c.Skip().Kind == scan.Number {
			return 0
		}
		n++
	}
	return n
}

// Has reports whether the body has a field.
func (l *Legs) Has(name LegName) bool {
	for i := range l.at {
		if l.at[i].name == name {
			return true
		}
	}
	return false
}

// Set appends the edits that replace a field's value wherever it stands.
func (l *Legs) Set(edits []Edit, name LegName, with string) []Edit {
	for i := range l.at {
		if l.at[i].name == name {
			edits = append(edits, Edit{l.at[i].value, with})
		}
	}
	return edits
}

// Rewrite appends the edits that take fields out of the body and put others in at its
// beginning. add is fields as they stand in an object, without the comma behind them;
// it may be empty. Calls of Set must name none of those that are taken out.
func (l *Legs) Rewrite(edits []Edit, add string, drop ...LegName) []Edit {
	dropped, cut := 0, make([]Edit, 0, len(drop))
	leading := true // no field before this one stays
	for i := range l.at {
		f := &l.at[i]
		leading = leading && f.index == dropped
		if !legIn(drop, f.name) {
			continue
		}
		span := Span{f.prev, f.value.End}
		if leading {
			if span.Start = f.from; f.next > 0 {
				span.End = f.next
			}
		}
		cut = append(cut, Edit{Span: span})
		dropped++
	}
	if add != "" {
		if dropped < l.fields {
			add += ","
		}
		edits = append(edits, Edit{Span{l.object, l.object}, add})
	}
	return append(edits, cut...)
}

func legIn(list []LegName, n LegName) bool {
	for _, x := range list {
		if x == n {
			return true
		}
	}
	return false
}

// Transfer finds what a prefill's answer hands to the engine that decodes: the bytes
// of its kv_transfer_params, nil where it has none. ok is false for an answer that is
// no JSON object.
func Transfer(answer []byte) (params []byte, ok bool) {
	c := scan.New(answer)
	if !c.EnterObject() {
		return nil, false
	}
	var scratch [32]byte
	for key, more := c.NextField(); more; key, more = c.NextField() {
		v := c.Skip()
		if legName(key.Text(answer, scratch[:0])) != LegTransfer {
			continue
		}
		if params = nil; v.Kind == scan.Object {
			params = v.Raw(answer)
		}
	}
	if c.End() != nil {
		return nil, false
	}
	return params, true
}
