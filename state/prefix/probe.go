package prefix

import "github.com/hearsay-llm/hearsay/state/prefix/scan"

// probe follows a Hasher and knows where in the input each byte of the stream comes from. Only Compare and Locate set
// one; without it the hasher asks once per piece whether there is any.
type probe struct {
	emit   func(p piece) bool // sees every piece before it is hashed, until it returns false
	marked func()             // sees every mark when it is set

	noted []byte // where what has no text of its own belongs
	next  piece  // the source of the next piece, if it has its own
	now   piece
	used  int // bytes of now that are hashed
}

// piece is a run of the stream.
type piece struct {
	bytes []byte
	text  bool
	src   []byte // raw JSON it comes from: byte for byte, or decoded
	form  form
}

// form says how a piece's bytes lie in its source.
type form uint8

const (
	whole   form = iota // all of them belong to where src begins
	inPlace             // byte for byte
	decoded             // src is the inside of a string, with escapes
)

// spot is a place in the input: at is the rest of a field from there on, into is how many decoded bytes of what at
// begins with lie before it (within a character that is one escape).
type spot struct {
	at   []byte
	into int
}

// spot returns where the piece's n-th byte comes from.
func (p *piece) spot(n int) spot {
	switch p.form {
	case inPlace:
		return spot{at: p.src[min(n, len(p.src)):]}
	case decoded:
		raw := p.src
		var buf [2 * scan.MinDecodeBuffer]byte
		for {
			one := raw[:min(len(raw), step(raw))]
			got, _ := scan.Decode(buf[:], one)
			if n < got || len(one) == 0 {
				return spot{at: raw, into: n}
			}
			n -= got
			raw = raw[len(one):]
		}
	}
	return spot{at: p.src}
}

// step is the length of the byte or escape raw begins with.
func step(raw []byte) int {
	if len(raw) > 0 && raw[0] == '\\' {
		return escapeLen(raw)
	}
	return 1
}

// note says where in the input the frames that follow belong.
func (h *Hasher) note(src []byte) {
	if h.probe != nil {
		h.probe.noted = src
	}
}

// noteAt is note for a position in a document, its end included.
func (h *Hasher) noteAt(doc []byte, at int) {
	if h.probe != nil {
		h.probe.noted = doc[min(max(at, 0), len(doc)):]
	}
}

// piece tells the probe of what will be hashed next.
func (p *probe) piece(b []byte, text bool) {
	p.now, p.next = p.next, piece{}
	p.now.bytes, p.now.text, p.used = b, text, 0
	if p.now.src == nil {
		p.now.src = p.noted
	}
	if p.emit != nil && !p.emit(p.now) {
		p.emit = nil
	}
}

// from says where the next piece comes from.
func (p *probe) from(src []byte, f form) { p.next = piece{src: src, form: f} }
