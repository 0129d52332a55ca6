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
		h.blockMessage(&c, in.Messages)
	}
	h.noteAt(in.Messages, c.Pos()-1)
	return c.End()
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
			h.block(&c, raw, 1)
			h.markEnd()
		}
	} else {
		h.block(&c, raw, 1)
		h.markEnd()
	}
	h.noteAt(raw, c.Pos()-1)
	h.endMessage()
	return c.End()
}

func (h *Hasher) blockMessage(c *scan.Cursor, doc []byte) {
	if !c.EnterObject() {
		if v := c.Skip(); v.Kind != scan.None {
			h.noteAt(doc, v.Start)
			h.frame(frameMessage)
			h.other(doc, v)
			h.endMessage()
		}
		return
	}
	start := c.Pos() - 1
	var role, content scan.Value
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		switch string(key.Text(doc, scratch[:0])) {
		case "role":
			role = v
		case "content":
			content = v
		}
	}
	if c.Err() != nil {
		return
	}
	h.noteAt(doc, start)
	h.frame(frameMessage)
	h.stringOrOther(doc, role)
	h.frame(frameEnd)
	h.blocks(doc, content, 1)
	h.noteAt(doc, c.Pos()-1)
	h.endMessage()
}

// blocks hashes content: a string, a list of blocks, or whatever else was sent.
func (h *Hasher) blocks(doc []byte, v scan.Value, depth int) {
	if v.Kind != scan.Array {
		h.content(doc, v)
		return
	}
	raw := v.Raw(doc)
	c := h.cursor(raw)
	c.EnterArray()
	for c.NextElem() {
		h.block(&c, raw, depth)
	}
	h.noteAt(raw, c.Pos()-1)
}

// block hashes one element of content.
func (h *Hasher) block(c *scan.Cursor, doc []byte, depth int) {
	in := *c
	if !c.EnterObject() {
		if v := c.Skip(); v.Kind == scan.String {
			h.text(doc, v)
		} else {
			h.other(doc, v)
		}
		return
	}
	start := c.Pos() - 1
	var kind, text, source, title, context, name, input, content, failed scan.Value
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		switch string(key.Text(doc, scratch[:0])) {
		case "type":
			kind = v
		case "text":
			text = v
		case "source":
			source = v
		case "title":
			title = v
		case "context":
			context = v
		case "name":
			name = v
		case "input":
			input = v
		case "content":
			content = v
		case "is_error":
			failed = v
		}
	}
	if c.Err() != nil {
		return
	}
	size := c.Pos() - start
	h.noteAt(doc, start)
	var what []byte
	if kind.Kind == scan.String {
		what = kind.Text(doc, scratch[:0])
	}
	switch string(what) {
	case "text":
		if text.Kind == scan.String {
			h.text(doc, text)
			return
		}
	case "thinking", "redacted_thinking":
		return
	case "image":
		h.beginDigest('i')
		h.object(&in, doc, cacheControl)
		h.noteAt(doc, start)
		h.endDigest(imageTokens)
		return
	case "document":
		if depth < maxBlockDepth && h.document(doc, source, title, context, depth) {
			return
		}
		h.beginDigest('f')
		h.object(&in, doc, cacheControl)
		h.noteAt(doc, start)
		h.endDigest(fileTokens)
		return
	case "tool_use":
		h.frame(frameCall)
		h.stringOrOther(doc, name)
		h.frame(frameEnd)
		h.arguments(doc, input)
		h.noteAt(doc, c.Pos()-1)
		h.frame(frameEnd)
		return
	case "tool_result":
		if depth < maxBlockDepth {
			h.frame(frameResult)
			if failed.Kind == scan.True {
				h.frame(frameFailed)
			}
			h.blocks(doc, content, depth+1)
			h.noteAt(doc, c.Pos()-1)
			h.frame(frameEnd)
			return
		}
	}
	h.unknown(&in, doc, start, size, cacheControl)
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
func (h *Hasher) document(doc []byte, source, title, context scan.Value, depth int) bool {
	if source.Kind != scan.Object {
		return false
	}
	raw := source.Raw(doc)
	c := h.cursor(raw)
	c.EnterObject()
	var kind, data, content scan.Value
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		switch string(key.Text(raw, scratch[:0])) {
		case "type":
			kind = v
		case "data":
			data = v
		case "content":
			content = v
		}
	}
	if kind.Kind != scan.String {
		return false
	}
	inner := kind.Inner(raw)
	isText := bytes.Equal(inner, []byte("text")) && data.Kind == scan.String
	if !isText && (!bytes.Equal(inner, []byte("content")) || !present(content)) {
		return false
	}
	h.frame(frameDocument)
	h.value(doc, title, frameName)
	h.value(doc, context, frameContent)
	if isText {
		h.text(raw, data)
	} else {
		h.blocks(raw, content, depth+1)
	}
	h.frame(frameEnd)
	return true
}
