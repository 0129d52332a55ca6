package prefix

import "github.com/hearsay-llm/hearsay/state/prefix/scan"

// chat hashes what goes before the messages, then the messages.
func (h *Hasher) chat(in Input) error {
	if err := h.settings(in); err != nil {
		return err
	}
	h.markEnd()
	if len(in.Messages) == 0 {
		return nil
	}
	c := h.cursor(in.Messages)
	if !c.EnterArray() {
		v := c.Skip()
		if err := c.End(); err != nil {
			return err
		}
		h.other(in.Messages, v)
		h.markEnd()
		return nil
	}
	for c.NextElem() {
		h.message(&c, in.Messages)
	}
	h.noteAt(in.Messages, c.Pos()-1)
	return c.End()
}

// Numbers of what goes before the messages. Those below settingsBefore are Chat's, in the stream's order.
const (
	sectionTools    = 4
	settingsBefore  = 6
	sectionPrompt   = 6
	sectionThinking = 7
)

// settings hashes what goes before the first message in the OpenAI families.
func (h *Hasher) settings(in Input) error {
	before := [settingsBefore][]byte{in.Template, in.TemplateArgs, in.ReasoningEffort, in.Documents, in.Tools, in.Functions}
	for i, raw := range before {
		if err := h.setting(byte(i), raw); err != nil {
			return err
		}
	}
	return nil
}

// setting hashes a value as JSON text; absent and null leave no trace.
func (h *Hasher) setting(number byte, raw []byte) error {
	if len(raw) == 0 {
		return nil
	}
	v, err := h.one(raw)
	if err != nil || v.Kind == scan.Null {
		return err
	}
	h.noteAt(raw, v.Start)
	h.frame(frameSection)
	h.tag[0] = number
	h.framing(h.tag[:1])
	h.json(v.Raw(raw))
	h.noteAt(raw, v.End-1)
	h.frame(frameEnd)
	return nil
}

// message is what is hashed of one message. Where a key stands twice the last one counts, as in engines.
type message struct {
	role, name, content, refusal, calls, function scan.Value
}

func (h *Hasher) message(c *scan.Cursor, doc []byte) {
	var m message
	if !c.EnterObject() {
		v := c.Skip()
		if v.Kind != scan.None {
			h.noteAt(doc, v.Start)
			h.frame(frameMessage)
			h.other(doc, v)
			h.endMessage()
		}
		return
	}
	start := c.Pos() - 1
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		switch string(key.Text(doc, scratch[:0])) {
		case "role":
			m.role = v
		case "name":
			m.name = v
		case "content":
			m.content = v
		case "refusal":
			m.refusal = v
		case "tool_calls":
			m.calls = v
		case "function_call":
			m.function = v
		}
	}
	if c.Err() != nil {
		return
	}
	h.noteAt(doc, start)
	h.frame(frameMessage)
	h.stringOrOther(doc, m.role)
	h.frame(frameEnd)
	if present(m.name) {
		h.noteAt(doc, m.name.Start)
		h.frame(frameName)
		h.stringOrOther(doc, m.name)
		h.frame(frameEnd)
	}
	h.content(doc, m.content)
	if present(m.refusal) {
		h.noteAt(doc, m.refusal.Start)
		h.frame(frameRefusal)
		h.stringOrOther(doc, m.refusal)
		h.frame(frameEnd)
	}
	if m.calls.Kind == scan.Array {
		raw := m.calls.Raw(doc)
		calls := h.cursor(raw)
		calls.EnterArray()
		for calls.NextElem() {
			h.call(&calls, raw)
		}
	} else {
		h.other(doc, m.calls)
	}
	if present(m.function) {
		raw := m.function.Raw(doc)
		f := h.cursor(raw)
		h.function(&f, raw, frameFunction)
	}
	h.noteAt(doc, c.Pos()-1)
	h.endMessage()
}

func (h *Hasher) endMessage() {
	h.frame(frameEnd)
	h.exact(messageTokens)
	h.markEnd()
}

// content hashes a message's content: a string, a list of parts, or whatever else was sent.
func (h *Hasher) content(doc []byte, v scan.Value) {
	switch {
	case v.Kind == scan.String:
		h.text(doc, v)
	case v.Kind == scan.Array:
		raw := v.Raw(doc)
		c := h.cursor(raw)
		c.EnterArray()
		for c.NextElem() {
			h.part(&c, raw)
		}
		h.noteAt(raw, c.Pos()-1)
	default:
		h.value(doc, v, frameContent)
	}
}

func (h *Hasher) text(doc []byte, v scan.Value) {
	if v.End-v.Start <= 2 {
		return
	}
	h.noteAt(doc, v.Start+1)
	h.frame(frameText)
	h.str(doc, v)
	h.frame(frameEnd)
}

// call hashes one element of tool_calls.
func (h *Hasher) call(c *scan.Cursor, doc []byte) {
	if c.Peek() != scan.Object {
		h.other(doc, c.Skip())
		return
	}
	// A cursor is a value: look for the function first, then read on behind the whole call.
	in := *c
	whole := c.Skip()
	in.EnterObject()
	var scratch [32]byte
	for key, ok := in.NextField(); ok; key, ok = in.NextField() {
		if string(key.Text(doc, scratch[:0])) == "function" && in.Peek() == scan.Object {
			h.function(&in, doc, frameCall)
			return
		}
		in.Skip()
	}
	if whole.Kind != scan.None {
		h.other(doc, whole)
	}
}

// function hashes a called function's name and arguments.
func (h *Hasher) function(c *scan.Cursor, doc []byte, code byte) {
	if !c.EnterObject() {
		h.other(doc, c.Skip())
		return
	}
	start := c.Pos() - 1
	var name, arguments scan.Value
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		switch string(key.Text(doc, scratch[:0])) {
		case "name":
			name = v
		case "arguments":
			arguments = v
		}
	}
	h.called(doc, code, start, name, arguments)
}

// called hashes a call by name and text.
func (h *Hasher) called(doc []byte, code byte, at int, name, text scan.Value) {
	h.noteAt(doc, at)
	h.frame(code)
	h.stringOrOther(doc, name)
	h.frame(frameEnd)
	h.stringOrOther(doc, text)
	h.frame(frameEnd)
}

func present(v scan.Value) bool { return v.Kind != scan.None && v.Kind != scan.Null }

// stringOrOther hashes a field that should be a string.
func (h *Hasher) stringOrOther(doc []byte, v scan.Value) {
	if v.Kind == scan.String {
		h.str(doc, v)
		return
	}
	h.other(doc, v)
}

// other hashes a value of a form this package does not know, as JSON text; absent and null leave no trace.
func (h *Hasher) other(doc []byte, v scan.Value) { h.value(doc, v, frameOther) }

func (h *Hasher) value(doc []byte, v scan.Value, code byte) {
	if !present(v) {
		return
	}
	h.noteAt(doc, v.Start)
	h.frame(code)
	h.json(v.Raw(doc))
	h.noteAt(doc, v.End-1)
	h.frame(frameEnd)
}
