package sse

import (
	"bytes"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// Nearly all events of a stream differ from the one before in one string alone, the next
// piece of text. What was found out about the rest holds for the next one, too: it is
// compared and not read again.

// maxLike is how long an event may be for others to be compared with it, bytes.
const maxLike = 1 << 10

// like is the last event that said nothing but a piece of text.
type like struct {
	raw      []byte
	from, to int // the text in it, a JSON string with its quotes; both 0 where there is no such event
}

// learn notes an event whose text lies there.
func (l *like) learn(raw []byte, from, to int) {
	l.from, l.to = 0, 0
	if len(raw) <= maxLike && from < to {
		l.raw = append(l.raw[:0], raw...)
		l.from, l.to = from, to
	}
}

// text is what stands in an event in the place of the text, without its quotes, if the
// event is the same but for that, and that is one whole and valid string.
func (l *like) text(raw []byte) (inner []byte, escaped, ok bool) {
	behind := len(l.raw) - l.to
	if l.to == 0 || len(raw) < l.from+behind+len(`""`) {
		return nil, false, false
	}
	to := len(raw) - behind
	if !bytes.Equal(raw[:l.from], l.raw[:l.from]) || !bytes.Equal(raw[to:], l.raw[l.to:]) {
		return nil, false, false
	}
	doc := raw[l.from:to]
	c := scan.New(doc)
	v := c.Skip()
	if v.Kind != scan.String || v.End != len(doc) {
		return nil, false, false
	}
	return v.Inner(doc), v.Escaped, true
}
