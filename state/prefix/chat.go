package prefix

import "github.com/hearsay-llm/hearsay/state/prefix/scan"

// chat hashes what goes before the messages, then the messages.
func (h *Hasher) chat(in Input) error {
	if err := h.settings(in); err != nil {
		return err
	}
	h.markEnd()
	return h.list(in.Messages, "")
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

// message hashes a message of a chat.
func (h *Hasher) message(doc []byte, e *element) {
	h.openMessage(doc, e)
	h.field(doc, e.name, frameName)
	h.content(doc, e.content, 1)
	h.field(doc, e.refusal, frameRefusal)
	if e.calls.Kind == scan.Array {
		raw := e.calls.Raw(doc)
		c := h.cursor(raw)
		c.EnterArray()
		for c.NextElem() {
			h.call(&c, raw)
		}
	} else {
		h.other(doc, e.calls)
	}
	h.function(doc, e.call, frameFunction)
	h.closeMessage(doc, e)
}

// field hashes a field that is a string and may be missing.
func (h *Hasher) field(doc []byte, v scan.Value, code byte) {
	if !present(v) {
		return
	}
	h.noteAt(doc, v.Start)
	h.frame(code)
	h.stringOrOther(doc, v)
	h.frame(frameEnd)
}

// call hashes one element of tool_calls.
func (h *Hasher) call(c *scan.Cursor, doc []byte) {
	var e element
	if e.read(c, doc); e.function.Kind == scan.Object {
		h.function(doc, e.function, frameCall)
		return
	}
	h.other(doc, e.whole)
}

// function hashes a called function's name and arguments.
func (h *Hasher) function(doc []byte, v scan.Value, code byte) {
	if v.Kind != scan.Object {
		h.other(doc, v)
		return
	}
	raw := v.Raw(doc)
	c := h.cursor(raw)
	var e element
	e.read(&c, raw)
	h.called(raw, code, e.whole.Start, e.name, e.arguments)
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

func (h *Hasher) text(doc []byte, v scan.Value) {
	if v.End-v.Start <= 2 {
		return
	}
	h.noteAt(doc, v.Start+1)
	h.frame(frameText)
	h.str(doc, v)
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
