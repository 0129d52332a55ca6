package prefix

import (
	"bytes"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// cacheControl is the member that says where the client wants a prefix cached. It is no part of the prompt, and clients
// move it on from turn to turn.
const cacheControl = "cache_control"

// maxBlockDepth is how deep blocks in blocks are read as such: a document in a tool's result in a message.
const maxBlockDepth = 3

// anthropic hashes a request of Anthropic's Messages in the order in which a change invalidates its cache: tools,
// system, thinking, messages.
func (h *Hasher) anthropic(in Input) error {
	if err := h.setting(1, in.TemplateArgs); err != nil {
		return err
	}
	if err := h.blockTools(in.Tools); err != nil {
		return err
	}
	h.markEnd()
	if err := h.system(in.System); err != nil {
		return err
	}
	if err := h.setting(sectionThinking, in.Thinking); err != nil {
		return err
	}
	if len(in.Messages) == 0 {
		h.markEnd()
		return nil
	}
	return h.list(in.Messages, "")
}

// blockTools hashes tools as JSON text without their cache_control. A member of that name deeper inside is a part of a
// tool's schema.
func (h *Hasher) blockTools(raw []byte) error {
	c := h.cursor(raw)
	if len(raw) == 0 || !c.EnterArray() {
		return h.setting(sectionTools, raw)
	}
	if !c.NextElem() {
		return c.End()
	}
	h.noteAt(raw, c.Pos())
	h.frame(frameSection)
	h.tag[0] = sectionTools
	h.framing(h.tag[:1])
	h.putByte('[')
	h.object(&c, raw, cacheControl)
	for c.NextElem() {
		h.noteAt(raw, c.Pos())
		h.putByte(',')
		h.object(&c, raw, cacheControl)
	}
	h.noteAt(raw, c.Pos()-1)
	h.putByte(']')
	h.frame(frameEnd)
	return c.End()
}

// system hashes the system prompt like a message, with a mark behind every block: clients put what is the same for all
// before what is not.
func (h *Hasher) system(raw []byte) error {
	if len(raw) == 0 {
		return nil
	}
	c := h.cursor(raw)
	if c.Peek() == scan.Null {
		c.Skip()
		return c.End()
	}
	h.noteAt(raw, c.Pos())
	h.beginMessage("system")
	if c.EnterArray() {
		for c.NextElem() {
			if attributes(c, raw) {
				c.Skip()
				continue
			}
			h.element(&c, raw, 1)
			h.markEnd()
		}
	} else {
		h.element(&c, raw, 1)
		h.markEnd()
	}
	h.noteAt(raw, c.Pos()-1)
	h.endMessage()
	return c.End()
}

// attribution begins a block of the system prompt in which some clients say which of their requests this is. It is
// another one in each, and stands before all else; engines leave it out of the prompt, or could never match a prefix.
var attribution = []byte("x-anthropic-billing-header")

// attributes says whether the element c is at is such a block.
func attributes(c scan.Cursor, raw []byte) bool {
	var e element
	return e.read(&c, raw) && string(e.typed(raw)) == "text" && e.text.Kind == scan.String && bytes.HasPrefix(e.text.Inner(raw), attribution)
}

// block hashes one element of content.
func (h *Hasher) block(doc []byte, e *element, depth int) {
	h.noteAt(doc, e.whole.Start)
	switch string(e.typed(doc)) {
	case "text":
		if e.text.Kind == scan.String {
			h.text(doc, e.text)
			return
		}
	case "thinking", "redacted_thinking":
		return
	case "image":
		h.media(doc, e.whole, 'i', imageTokens, cacheControl)
		return
	case "document":
		if depth >= maxBlockDepth || !h.document(doc, e, depth) {
			h.media(doc, e.whole, 'f', fileTokens, cacheControl)
		}
		return
	case "tool_use":
		h.frame(frameCall)
		h.stringOrOther(doc, e.name)
		h.frame(frameEnd)
		h.arguments(doc, e.input)
		h.noteAt(doc, e.whole.End-1)
		h.frame(frameEnd)
		return
	case "tool_result":
		if depth < maxBlockDepth {
			h.frame(frameResult)
			if e.failed.Kind == scan.True {
				h.frame(frameFailed)
			}
			h.content(doc, e.content, depth+1)
			h.noteAt(doc, e.whole.End-1)
			h.frame(frameEnd)
			return
		}
	}
	h.unknown(doc, e.whole, cacheControl)
}

// arguments hashes what a tool is called with; nothing and null are an empty object.
func (h *Hasher) arguments(doc []byte, v scan.Value) {
	if !present(v) {
		h.put(noArguments)
		return
	}
	h.json(v.Raw(doc))
}

var noArguments = []byte("{}")

// document hashes a document that is given as text or as parts, and returns false for any other.
func (h *Hasher) document(doc []byte, e *element, depth int) bool {
	if e.source.Kind != scan.Object {
		return false
	}
	raw := e.source.Raw(doc)
	c := h.cursor(raw)
	var source element
	if source.read(&c, raw); source.kind.Kind != scan.String {
		return false
	}
	inner := source.kind.Inner(raw)
	isText := bytes.Equal(inner, []byte("text")) && source.data.Kind == scan.String
	if !isText && (!bytes.Equal(inner, []byte("content")) || !present(source.content)) {
		return false
	}
	h.frame(frameDocument)
	h.value(doc, e.title, frameName)
	h.value(doc, e.context, frameContent)
	if isText {
		h.text(raw, source.data)
	} else {
		h.content(raw, source.content, depth+1)
	}
	h.frame(frameEnd)
	return true
}
