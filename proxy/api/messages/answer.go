package messages

import (
	"slices"
	"strconv"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// answer is what is read of a chat completion or of a chunk of one: values as they lie.
type answer struct {
	id, choices, usage, timings []byte
	failure                     bool // it is an error object
}

// read checks the document and reads it. It returns false for what is no JSON object.
func (a *answer) read(doc []byte) bool {
	c := scan.New(doc)
	if !c.EnterObject() {
		return false
	}
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		if v.Kind == scan.None {
			break
		}
		raw := v.Raw(doc)
		switch string(key.Text(doc, scratch[:0])) {
		case "id":
			a.id = raw
		case "choices":
			a.choices = raw
		case "usage":
			a.usage = raw
		case "timings":
			a.timings = raw
		case "error":
			a.failure = a.failure || !isAbsent(raw)
		case "object":
			a.failure = a.failure || is(raw, "error")
		}
	}
	return c.End() == nil
}

// count reads the usage; false says that there is none.
func (a *answer) count(family api.Family) (api.Usage, bool) {
	var u api.Usage
	var ok bool
	if isObject(a.usage) {
		u, ok = api.ParseUsage(a.usage, family)
	}
	if family == api.LlamaCpp && a.timings != nil {
		if t, fine := api.ParseTimings(a.timings); fine {
			t.Reasoning = u.Reasoning
			return t, true
		}
	}
	return u, ok
}

// choice is one choice of an answer, with what is in its message or delta.
type choice struct {
	index                             int64
	finish, stop                      []byte
	content, reasoning, refusal, call []byte
}

// read reads a choice; false says that it can't be translated.
func (ch *choice) read(raw []byte) bool {
	c := scan.Reread(raw)
	if !c.EnterObject() {
		return false
	}
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip().Raw(raw)
		switch string(key.Text(raw, scratch[:0])) {
		case "index":
			ch.index, _ = scan.Int(v)
		case "finish_reason":
			ch.finish = v
		case "stop_reason", "matched_stop": // vLLM, SGLang
			if isString(v) {
				ch.stop = v
			}
		case "message", "delta":
			ch.message(v)
		}
	}
	return isString(ch.content) || isAbsent(ch.content)
}

func (ch *choice) message(raw []byte) {
	c := scan.Reread(raw)
	if !c.EnterObject() {
		return
	}
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip().Raw(raw)
		switch string(key.Text(raw, scratch[:0])) {
		case "content":
			ch.content = v
		case "reasoning", "reasoning_content": // some engines write both, with the same text
			if len(inner(v)) > 0 {
				ch.reasoning = v
			}
		case "refusal":
			ch.refusal = v
		case "tool_calls":
			ch.call = v
		}
	}
}

// call is one tool call of a message, or a piece of one in a delta.
type call struct {
	index               int64 // -1 where there is none
	id, name, arguments []byte
}

func (k *call) read(raw []byte) bool {
	k.index = -1
	c := scan.Reread(raw)
	if !c.EnterObject() {
		return false
	}
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip().Raw(raw)
		switch string(key.Text(raw, scratch[:0])) {
		case "index":
			if n, ok := scan.Int(v); ok && n >= 0 {
				k.index = n
			}
		case "id":
			k.id = v
		case "function":
			var f [2][]byte
			pick(v, []string{"name", "arguments"}, f[:])
			k.name, k.arguments = f[0], f[1]
		}
	}
	return true
}

// outcome is how an answer ended.
type outcome struct {
	finish, stop []byte // the values as they lie
	refused      bool   // there is a refusal
	calls        bool   // there is a call of a tool
}

// broken says whether the engine gave up.
func (o *outcome) broken() bool { return is(o.finish, "abort") || is(o.finish, "error") }

// append appends the members stop_reason and stop_sequence.
func (o *outcome) append(dst []byte, asked *Asked) []byte {
	reason, sequence := "end_turn", []byte("null")
	switch {
	case is(o.finish, "length"):
		reason = "max_tokens"
	case is(o.finish, "content_filter"), o.refused:
		reason = "refusal"
	case o.calls: // engines say stop where a call was forced
		reason = "tool_use"
	case o.stop != nil && slices.Contains(asked.Stops, text(o.stop)):
		reason, sequence = "stop_sequence", o.stop
	}
	dst = append(append(append(dst, `"stop_reason":"`...), reason...), `","stop_sequence":`...)
	return append(dst, sequence...)
}

// appendUsage appends a usage object of the exclusive family.
func appendUsage(dst []byte, u api.Usage) []byte {
	fresh := u.InputTotal
	if u.CachedKnown {
		fresh -= u.InputCached
	}
	dst = strconv.AppendInt(append(dst, `{"input_tokens":`...), int64(fresh), 10)
	if u.CachedKnown {
		dst = strconv.AppendInt(append(dst, `,"cache_read_input_tokens":`...), int64(u.InputCached), 10)
	}
	dst = strconv.AppendInt(append(dst, `,"output_tokens":`...), int64(u.Output), 10)
	return append(dst, '}')
}

// appendID appends a message's id: the engine's, or the caller's where the engine gives none.
func appendID(dst, id []byte, asked *Asked) []byte {
	if asked.ID == "" && len(inner(id)) > 0 {
		return append(dst, id...)
	}
	return scan.AppendQuoted(dst, asked.ID)
}

// appendCallID appends a call's id: the engine's, or one made of the message's id and the call's number, since clients
// tell results apart by it.
func appendCallID(dst, id, message []byte, number int) []byte {
	if len(inner(id)) > 0 {
		return append(dst, id...)
	}
	dst = append(append(dst, `"toolu_`...), inner(message)...)
	return append(strconv.AppendInt(append(dst, '_'), int64(number), 10), '"')
}

// unusable is the error for an answer that is no chat completion.
func unusable() *api.Error { return api.BadGateway("engine_answer") }
