package prefix

import "github.com/hearsay-llm/hearsay/state/prefix/scan"

// element is what is read of an element of a list: a message, an item, a part or block of content, a tool call; and of
// the objects in one. It holds where the members lie that some family hashes. Where a name stands twice the last one
// counts, as in engines.
type element struct {
	whole scan.Value // whatever kind of value it is

	kind, role, name, content, text      scan.Value // kind is its type
	refusal, calls, call                 scan.Value // of a chat's message; call is its function_call
	function                             scan.Value // of a tool call: the first one that is an object
	arguments, input, output             scan.Value // of calls and results
	source, data, title, context, failed scan.Value // of Anthropic's blocks; failed is is_error
	scratch                              [32]byte   // for a type that holds escapes
}

// read reads the next value. It returns false when that is no object; whole then is what it is, None after a fault.
func (e *element) read(c *scan.Cursor, doc []byte) bool {
	if !c.EnterObject() {
		e.whole = c.Skip()
		return false
	}
	start := c.Pos() - 1
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		switch string(key.Text(doc, e.scratch[:0])) {
		case "type":
			e.kind = v
		case "role":
			e.role = v
		case "name":
			e.name = v
		case "content":
			e.content = v
		case "text":
			e.text = v
		case "refusal":
			e.refusal = v
		case "tool_calls":
			e.calls = v
		case "function_call":
			e.call = v
		case "function":
			if e.function.Kind != scan.Object {
				e.function = v
			}
		case "arguments":
			e.arguments = v
		case "input":
			e.input = v
		case "output":
			e.output = v
		case "source":
			e.source = v
		case "data":
			e.data = v
		case "title":
			e.title = v
		case "context":
			e.context = v
		case "is_error":
			e.failed = v
		}
	}
	if c.Err() != nil {
		return false
	}
	e.whole = scan.Value{Kind: scan.Object, Start: start, End: c.Pos()}
	return true
}

// typed is the element's type, nil when that is no string.
func (e *element) typed(doc []byte) []byte {
	if e.kind.Kind != scan.String {
		return nil
	}
	return e.kind.Text(doc, e.scratch[:0])
}

// list hashes a list of messages or items. Where role is not "", a string stands for one message of that role.
func (h *Hasher) list(raw []byte, role string) error {
	if len(raw) == 0 {
		return nil
	}
	c := h.cursor(raw)
	if c.EnterArray() {
		h.elements(&c, raw, 0)
		return c.End()
	}
	v := c.Skip()
	if err := c.End(); err != nil {
		return err
	}
	if v.Kind != scan.String || role == "" {
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

// elements hashes what is left of the list c is in.
func (h *Hasher) elements(c *scan.Cursor, doc []byte, depth int) {
	for c.NextElem() {
		h.element(c, doc, depth)
	}
	h.noteAt(doc, c.Pos()-1)
}

// element hashes an element of a list as its family does: at depth 0 a message or item, below parts or blocks of
// content.
func (h *Hasher) element(c *scan.Cursor, doc []byte, depth int) {
	var e element
	switch isObject := e.read(c, doc); {
	case !isObject:
		h.strange(doc, e.whole, depth)
	case depth > 0 && h.kind == Messages:
		h.block(doc, &e, depth)
	case depth > 0:
		h.part(doc, &e)
	case h.kind == Chat:
		h.message(doc, &e)
	case h.kind == Messages:
		h.turn(doc, &e)
	default:
		h.item(doc, &e)
	}
}

// strange hashes an element that is no object. Some engines take plain strings as parts.
func (h *Hasher) strange(doc []byte, v scan.Value, depth int) {
	switch {
	case v.Kind == scan.None:
	case depth > 0 && v.Kind == scan.String:
		h.text(doc, v)
	case depth > 0:
		h.other(doc, v)
	case h.kind == Responses:
		h.other(doc, v)
		h.markEnd()
	default:
		h.noteAt(doc, v.Start)
		h.frame(frameMessage)
		h.other(doc, v)
		h.endMessage()
	}
}

// turn hashes a message that is a role and its content.
func (h *Hasher) turn(doc []byte, e *element) {
	h.openMessage(doc, e)
	h.content(doc, e.content, 1)
	h.closeMessage(doc, e)
}

// openMessage opens a message and hashes its role.
func (h *Hasher) openMessage(doc []byte, e *element) {
	h.noteAt(doc, e.whole.Start)
	h.frame(frameMessage)
	h.stringOrOther(doc, e.role)
	h.frame(frameEnd)
}

func (h *Hasher) closeMessage(doc []byte, e *element) {
	h.noteAt(doc, e.whole.End-1)
	h.endMessage()
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

func (h *Hasher) endMessage() {
	h.frame(frameEnd)
	h.exact(messageTokens)
	h.markEnd()
}

// content hashes a message's content: a string, a list of parts or blocks, or whatever else was sent.
func (h *Hasher) content(doc []byte, v scan.Value, depth int) {
	switch v.Kind {
	case scan.String:
		h.text(doc, v)
	case scan.Array:
		raw := v.Raw(doc)
		c := h.cursor(raw)
		c.EnterArray()
		h.elements(&c, raw, depth)
	default:
		h.value(doc, v, frameContent)
	}
}

// unknown hashes an object of an unknown form as JSON text without those members, or by its digest when it is too large
// for text.
func (h *Hasher) unknown(doc []byte, v scan.Value, without ...string) {
	if v.End-v.Start > inlineBytes {
		h.media(doc, v, 'o', fileTokens, without...)
		return
	}
	h.noteAt(doc, v.Start)
	h.frame(frameOther)
	h.without(doc, v, without...)
	h.noteAt(doc, v.End-1)
	h.frame(frameEnd)
}
