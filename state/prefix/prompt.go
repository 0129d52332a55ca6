package prefix

import (
	"encoding/binary"
	"math"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// prompt hashes a completion's prompt or an embedding's input. There is nothing after it in the stream, so its text has
// no closing frame: a longer prompt that starts with this one shares its marks.
func (h *Hasher) prompt(raw []byte) error {
	if len(raw) == 0 {
		return nil
	}
	c := h.cursor(raw)
	if !c.EnterArray() {
		v := c.Skip()
		if err := c.End(); err != nil {
			return err
		}
		h.onePrompt(raw, v)
		return nil
	}
	if !c.NextElem() {
		return c.End()
	}
	if c.Peek() == scan.Number {
		h.noteAt(raw, c.Pos())
		h.frame(frameIDs)
		for ok := true; ok; ok = c.NextElem() {
			h.ids(raw, &c, true)
		}
		h.noteAt(raw, c.Pos()-1)
		return c.End()
	}
	h.firstPrompt(raw, &c)
	for c.NextElem() {
		h.countOnly(raw, &c)
	}
	return c.End()
}

// firstPrompt hashes the first prompt of a list.
func (h *Hasher) firstPrompt(doc []byte, c *scan.Cursor) {
	if !c.EnterArray() {
		h.onePrompt(doc, c.Skip())
		return
	}
	h.noteAt(doc, c.Pos())
	h.frame(frameIDs)
	for c.NextElem() {
		h.ids(doc, c, true)
	}
	h.noteAt(doc, c.Pos()-1)
}

func (h *Hasher) onePrompt(doc []byte, v scan.Value) {
	if v.Kind == scan.String {
		h.noteAt(doc, v.Start+1)
		h.frame(frameText)
		h.str(doc, v)
		return
	}
	h.other(doc, v)
}

// ids reads token ids, many at a time where they are as they should be, and hashes or counts them.
func (h *Hasher) ids(doc []byte, c *scan.Cursor, hash bool) {
	n := 0
	if h.probe == nil { // which wants to know the place of each
		n = c.Ints(h.buf[:])
	}
	switch {
	case n == 0:
		h.tokenID(doc, c.Skip(), hash)
	case !hash:
		h.rest.Exact = clamp(uint64(h.rest.Exact) + uint64(n))
	default:
		// An id counts from its first byte on, as in tokenID.
		b, counted := h.buf[:4*n], 0
		for at := 0; at < len(b); {
			size := len(b) - at
			if room := h.next - h.pos; uint64(size) > room {
				size = int(room)
			}
			begun := (at + size + 3) / 4
			h.exact(begun - counted)
			_, _ = h.x.Write(b[at : at+size])
			h.advance(size)
			at, counted = at+size, begun
		}
	}
}

// tokenID hashes a token id as four bytes and counts one token. What is no 32-bit number is hashed as its text.
func (h *Hasher) tokenID(doc []byte, v scan.Value, hash bool) {
	if v.Kind == scan.None {
		return
	}
	if !hash {
		h.rest.Exact = clamp(uint64(h.rest.Exact) + 1)
		return
	}
	h.noteAt(doc, v.Start)
	id, ok := scan.Int(v.Raw(doc))
	if v.Kind != scan.Number || !ok || id < 0 || id >= math.MaxUint32 {
		binary.LittleEndian.PutUint32(h.tag[:], math.MaxUint32)
		h.framing(h.tag[:4])
		h.other(doc, v)
		return
	}
	h.exact(1)
	binary.LittleEndian.PutUint32(h.tag[:], uint32(id))
	h.framing(h.tag[:4])
}

// countOnly adds the size of a prompt after the first one.
func (h *Hasher) countOnly(doc []byte, c *scan.Cursor) {
	if c.EnterArray() {
		for c.NextElem() {
			h.ids(doc, c, false)
		}
		return
	}
	v := c.Skip()
	if v.Kind == scan.String {
		wide := 0
		if v.Wide {
			wide = countWide(v.Inner(doc))
		}
		h.rest.Wide = clamp(uint64(h.rest.Wide) + uint64(wide))
		h.rest.ASCII = clamp(uint64(h.rest.ASCII) + uint64(v.End-v.Start-2-wide))
	}
}
