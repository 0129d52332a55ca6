package prefix

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/zeebo/xxh3"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

const (
	firstMark    = 256 // p(0), and the least distance of two marks by position, bytes
	spacingShift = 4   // p(k+1) - p(k) = p(k)/16 when that is more
	sparseShift  = 8   // a message's end is marked when at least 1/256 of its position lies behind the last mark

	messageTokens = 4 // tokens a template adds per message: begin, role's newline, end, newline (ChatML and Llama 3 agree within one)

	bufferBytes  = 2048
	inPlaceBytes = 256 // runs shorter than this are worth copying
)

// Frames. Each is 0xFF and one of these.
const (
	frameEnd      = 'e' // ends the string or list before it
	frameMessage  = 'm' // a message; role follows
	frameName     = 'n'
	frameText     = 't' // text of a message or prompt
	frameRefusal  = 'r'
	frameMedia    = 'd' // a part by digest: kind, 8 bytes
	frameOther    = 'o' // a part or field of an unknown form: JSON text
	frameContent  = 'v' // content that is neither string nor list: JSON text
	frameCall     = 'c' // a tool call: name, end, arguments
	frameFunction = 'f' // a function_call, the older form
	frameIDs      = 'i' // token ids, 4 bytes each, to the end of the stream
	frameSection  = 's' // a value before the messages: section number, JSON text
	frameResult   = 'u' // what a tool returned: content
	frameFailed   = 'x' // the tool of this result failed
	frameCustom   = 'k' // a call of a tool that takes free text: name, end, text
	frameDocument = 'q' // a document given as text or parts
	frameHistory  = 'h' // what a prompt goes on from and the body does not hold: source, digest
)

// Hasher makes marks. It is large (some 5 kB) and meant to be reused; in steady state it allocates nothing beyond what
// dst needs. The zero value is ready. It must not be used by two goroutines at once.
type Hasher struct {
	x      xxh3.Hasher // everything so far
	digest xxh3.Hasher // of the media part being read

	dst  []Mark
	pos  uint64 // bytes of the canonical stream after the seed
	next uint64 // position of the next mark by position
	last uint64 // position of the last mark
	m    Mark   // depth so far
	seen Mark   // depth of the last mark
	rest Mark   // depth of prompts of a batch after the first

	kind      Kind
	history   bool // the prompt goes on from what the body does not hold
	checked   bool // values need not be checked
	longs     scan.Longs
	runs      scan.Runs
	whole     []byte // the document longs are of
	answer    answer
	plainJSON jsonText // of the value being hashed

	probe *probe // nil but for Compare and Locate

	n         int // bytes waiting in buf
	buf       [bufferBytes]byte
	tag       [8]byte
	digesting bool // what is put goes to digest, not to x
}

// Marks appends the marks of a prompt to dst, in order of depth, strictly increasing, and returns the extended slice.
// With a list of prompts, the first one gives the marks. It fails with *scan.Error only if an input is not valid JSON;
// the marks of what lies before the fault are returned as well. Values of an unexpected type are hashed as they are.
// The hasher keeps the state at the prompt's end, so that an answer can follow.
func (h *Hasher) Marks(dst []Mark, seed Seed, in Input) ([]Mark, error) {
	h.begin(dst, seed, in.Kind)
	h.checked, h.longs, h.runs, h.whole = in.Checked, in.Longs, in.Runs, in.Whole
	var err error
	switch in.Kind {
	case Chat:
		err = h.chat(in)
	case Responses:
		err = h.responses(in)
	case Messages:
		err = h.anthropic(in)
	default:
		err = h.prompt(in.Prompt)
		h.flush()
		h.mark()
	}
	dst, h.dst, h.longs, h.runs, h.whole = h.dst, nil, nil, nil, nil
	return dst, err
}

// cursor returns a cursor over a value of the input.
func (h *Hasher) cursor(raw []byte) scan.Cursor {
	if h.checked {
		return h.longs.Reread(h.whole, raw)
	}
	return scan.New(raw)
}

// one reads a whole value of the input, of which no more than place and kind is asked.
func (h *Hasher) one(raw []byte) (scan.Value, error) {
	c := h.cursor(raw)
	kind := c.Peek()
	if h.checked && kind != scan.None {
		return scan.Value{Kind: kind, Start: c.Pos(), End: len(bytes.TrimRight(raw, " \t\r\n"))}, nil
	}
	v := c.Skip()
	return v, c.End()
}

// Total is the depth of all that the last Marks call read, all prompts of a batch included. Its Hash is zero.
func (h *Hasher) Total() Mark {
	return Mark{
		ASCII: clamp(uint64(h.m.ASCII) + uint64(h.rest.ASCII)),
		Wide:  clamp(uint64(h.m.Wide) + uint64(h.rest.Wide)),
		Exact: clamp(uint64(h.m.Exact) + uint64(h.rest.Exact)),
	}
}

func (h *Hasher) begin(dst []Mark, seed Seed, kind Kind) {
	h.x.Reset()
	h.dst, h.kind, h.n = dst, kind, 0
	h.pos, h.next, h.last = 0, firstMark, 0
	h.m, h.seen, h.rest, h.history = Mark{}, Mark{}, Mark{}, false
	h.answer.reset()

	h.tag[0], h.tag[1] = SchemeVersion, byte(kind)
	_, _ = h.x.Write(h.tag[:2])
	for _, s := range [...]string{seed.Model, seed.Adapter, seed.CacheSalt, seed.Tenant} {
		binary.LittleEndian.PutUint32(h.tag[:], clamp(uint64(len(s))))
		_, _ = h.x.Write(h.tag[:4])
		_, _ = h.x.WriteString(s)
	}
}

// bytes hashes b. ascii says that b is known to hold ASCII only.
func (h *Hasher) bytes(b []byte, ascii bool) {
	if h.probe != nil {
		h.probe.piece(b, true)
	}
	for len(b) > 0 {
		n := len(b)
		if room := h.next - h.pos; uint64(n) > room {
			n = int(room)
		}
		_, _ = h.x.Write(b[:n])
		wide := 0
		if !ascii {
			wide = countWide(b[:n])
		}
		h.m.ASCII = clamp(uint64(h.m.ASCII) + uint64(n-wide))
		h.m.Wide = clamp(uint64(h.m.Wide) + uint64(wide))
		h.advance(n)
		b = b[n:]
	}
}

// framing hashes bytes that structure the stream and are no text.
func (h *Hasher) framing(b []byte) {
	if h.probe != nil {
		h.probe.piece(b, false)
	}
	for len(b) > 0 {
		n := len(b)
		if room := h.next - h.pos; uint64(n) > room {
			n = int(room)
		}
		_, _ = h.x.Write(b[:n])
		h.advance(n)
		b = b[n:]
	}
}

func (h *Hasher) frame(code byte) {
	h.flush()
	h.tag[0], h.tag[1] = 0xFF, code
	h.framing(h.tag[:2])
}

func (h *Hasher) advance(n int) {
	if h.probe != nil {
		h.probe.used += n
	}
	if h.pos += uint64(n); h.pos == h.next {
		h.mark()
		h.next += max(firstMark, h.next>>spacingShift)
	}
}

// mark sets a mark here unless no text was added since the last one.
func (h *Hasher) mark() {
	if h.m == h.seen {
		return
	}
	h.seen, h.last = h.m, h.pos
	m := h.m
	m.Hash = h.x.Sum64()
	h.dst = append(h.dst, m)
	if h.probe != nil && h.probe.marked != nil {
		h.probe.marked()
	}
}

// markEnd sets a mark at the end of a message unless the last one is very near.
func (h *Hasher) markEnd() {
	h.flush()
	if h.pos-h.last >= h.pos>>sparseShift {
		h.mark()
	}
}

// put hashes text through a buffer, so that many short pieces cost little.
func (h *Hasher) put(b []byte) {
	if h.probe != nil {
		h.flush()
		h.probe.from(b, inPlace)
		h.out(b)
		h.probe.from(nil, whole) // it was not used where only a digest goes into the stream
		return
	}
	if len(b) > bufferBytes-h.n {
		h.flush()
		if len(b) >= bufferBytes/2 {
			h.out(b)
			return
		}
	}
	h.n += copy(h.buf[h.n:], b)
}

func (h *Hasher) putByte(b byte) {
	if h.n == bufferBytes {
		h.flush()
	}
	h.buf[h.n] = b
	h.n++
	if h.probe != nil {
		h.flush()
	}
}

func (h *Hasher) flush() {
	if n := h.n; n > 0 {
		h.n = 0
		h.out(h.buf[:n])
	}
}

func (h *Hasher) out(b []byte) {
	if h.digesting {
		_, _ = h.digest.Write(b)
		return
	}
	h.bytes(b, false)
}

// str hashes a string value's decoded bytes.
func (h *Hasher) str(doc []byte, v scan.Value) {
	raw := v.Inner(doc)
	h.flush()
	h.note(raw)
	if v.Runs > 0 && h.probe == nil {
		raw = h.known(raw, h.runs.Of(v), !v.Wide)
	}
	for len(raw) > 0 {
		// Long runs without escapes are hashed where they lie.
		b, used, how := raw, len(raw), inPlace
		if v.Escaped {
			if used = bytes.IndexByte(raw, '\\'); used < 0 {
				used = len(raw)
			}
			if b = raw[:used]; used < inPlaceBytes {
				var n int
				n, used = scan.Decode(h.buf[:], raw)
				b, how = h.buf[:n], decoded
			}
		}
		if h.probe != nil {
			h.probe.from(raw[:used], how)
		}
		h.bytes(b, !v.Wide)
		raw = raw[used:]
	}
	h.noteAt(doc, v.End-1)
}

// known hashes a string's inner bytes as far as its runs are known, and returns the rest.
func (h *Hasher) known(raw []byte, runs scan.Runs, ascii bool) (rest []byte) {
	for {
		n, ok := runs.First(raw)
		if !ok {
			return raw
		}
		if n >= inPlaceBytes {
			h.bytes(raw[:n], ascii)
			raw, n = raw[n:], 0
		}
		written, read, used := runs.Decode(h.buf[:], raw, n)
		if used == 0 {
			return raw
		}
		h.bytes(h.buf[:written], ascii)
		raw, runs = raw[read:], runs[used:]
	}
}

func (h *Hasher) exact(tokens int) { h.m.Exact = clamp(uint64(h.m.Exact) + uint64(tokens)) }

// countWide counts the bytes of b that are not ASCII.
func countWide(b []byte) int {
	const highs = 0x8080808080808080
	n, i := 0, 0
	for ; i+32 <= len(b); i += 32 {
		w := b[i : i+32 : i+32]
		w0, w1 := binary.LittleEndian.Uint64(w)&highs, binary.LittleEndian.Uint64(w[8:])&highs
		w2, w3 := binary.LittleEndian.Uint64(w[16:])&highs, binary.LittleEndian.Uint64(w[24:])&highs
		if w0|w1|w2|w3 != 0 {
			// Flags of four words side by side: one count.
			n += bits.OnesCount64(w0>>7 | w1>>6 | w2>>5 | w3>>4)
		}
	}
	for _, c := range b[i:] {
		n += int(c >> 7)
	}
	return n
}

func clamp(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }
