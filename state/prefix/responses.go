package prefix

import (
	"encoding/binary"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// responses hashes a request of OpenAI's Responses: what it goes on from, settings, instructions as a system message,
// then the items of its input.
func (h *Hasher) responses(in Input) error {
	for i, raw := range [...][]byte{in.Previous, in.Conversation} {
		if err := h.goOn(byte(i), raw); err != nil {
			return err
		}
	}
	if err := h.settings(in); err != nil {
		return err
	}
	if err := h.setting(sectionPrompt, in.Reference); err != nil {
		return err
	}
	h.markEnd()
	if err := h.plain(in.Instructions, "system"); err != nil {
		return err
	}
	return h.plain(in.Prompt, "user")
}

// goOn makes what a prompt goes on from and the body does not hold a part of the seed: no depth is known of it.
func (h *Hasher) goOn(source byte, raw []byte) error {
	if len(raw) == 0 {
		return nil
	}
	v, err := h.one(raw)
	if err != nil || v.Kind == scan.Null {
		return err
	}
	h.history = true
	h.digest.Reset()
	h.digesting = true
	h.json(v.Raw(raw))
	h.flush()
	h.digesting = false
	h.tag[0], h.tag[1], h.tag[2] = 0xFF, frameHistory, source
	h.seed(raw, h.tag[:3])
	binary.LittleEndian.PutUint64(h.tag[:], h.digest.Sum64())
	h.seed(raw, h.tag[:])
	return nil
}

// seed hashes what is a part of the seed and has no position.
func (h *Hasher) seed(raw, b []byte) {
	if h.probe != nil {
		h.probe.from(raw, whole)
		h.probe.piece(b, false)
	}
	_, _ = h.x.Write(b)
}

// plain hashes a list of items; a string stands for one message of that role.
func (h *Hasher) plain(raw []byte, role string) error {
	if len(raw) == 0 {
		return nil
	}
	c := h.cursor(raw)
	if c.EnterArray() {
		for c.NextElem() {
			h.item(&c, raw)
		}
		h.noteAt(raw, c.Pos()-1)
		return c.End()
	}
	v := c.Skip()
	if err := c.End(); err != nil {
		return err
	}
	if v.Kind != scan.String {
		h.other(raw, v)
		h.markEnd()
		return nil
	}
	h.noteAt(raw, v.Start+1)
	h.beginMessage(role)
	h.text(raw, v)
	h.noteAt(raw, v.End-1)
	h.endMessage()
	return nil
}

// beginMessage opens a message of a role that is not in a document.
func (h *Hasher) beginMessage(role string) {
	h.frame(frameMessage)
	for len(role) > 0 {
		n := copy(h.buf[:], role)
		h.bytes(h.buf[:n], false)
		role = role[n:]
	}
	h.frame(frameEnd)
}

// item hashes one element of a response's input or output.
func (h *Hasher) item(c *scan.Cursor, doc []byte) {
	in := *c
	if !c.EnterObject() {
		v := c.Skip()
		if v.Kind != scan.None {
			h.other(doc, v)
			h.markEnd()
		}
		return
	}
	start := c.Pos() - 1
	var kind, role, content, name, arguments, output, input scan.Value
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		switch string(key.Text(doc, scratch[:0])) {
		case "type":
			kind = v
		case "role":
			role = v
		case "content":
			content = v
		case "name":
			name = v
		case "arguments":
			arguments = v
		case "output":
			output = v
		case "input":
			input = v
		}
	}
	if c.Err() != nil {
		return
	}
	what := []byte("message") // what the short form of a message leaves out
	if present(kind) || !present(role) {
		what = nil
		if kind.Kind == scan.String {
			what = kind.Text(doc, scratch[:0])
		}
	}
	switch string(what) {
	case "message":
		h.noteAt(doc, start)
		h.frame(frameMessage)
		h.stringOrOther(doc, role)
		h.frame(frameEnd)
		h.content(doc, content)
		h.noteAt(doc, c.Pos()-1)
		h.endMessage()
		return
	case "function_call":
		h.called(doc, frameCall, start, name, arguments)
	case "custom_tool_call":
		h.called(doc, frameCustom, start, name, input)
	case "function_call_output", "custom_tool_call_output":
		h.noteAt(doc, start)
		h.frame(frameResult)
		h.content(doc, output)
		h.noteAt(doc, c.Pos()-1)
		h.frame(frameEnd)
	case "reasoning":
		return
	case "item_reference": // its id is all there is
		h.other(doc, scan.Value{Kind: scan.Object, Start: start, End: c.Pos()})
	default:
		h.unknown(&in, doc, start, c.Pos()-start, "id", "status")
	}
	h.exact(messageTokens)
	h.markEnd()
}

// unknown hashes an object of an unknown form as JSON text without those members, or by its digest when it is too large
// for text.
func (h *Hasher) unknown(c *scan.Cursor, doc []byte, at, size int, without ...string) {
	h.noteAt(doc, at)
	if size > inlineBytes {
		h.beginDigest('o')
		h.object(c, doc, without...)
		h.noteAt(doc, at)
		h.endDigest(fileTokens)
		return
	}
	h.frame(frameOther)
	h.object(c, doc, without...)
	h.frame(frameEnd)
}
