package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Bounds of decoded things.
const (
	maxString = 4 << 10
	maxCount  = 1 << 50 // of tokens, requests, sequence numbers' deltas
	maxIntern = 1 << 16
)

// ErrMalformed is what every decoding error wraps.
var ErrMalformed = errors.New("malformed message")

// encoder appends fields. Strings and boot ids that repeat in one message, or on
// one stream, are written once and then referred to.
type encoder struct {
	b    []byte
	told *names // nil: of this message alone, in own
	own  names
}

func (e *encoder) names() *names {
	if e.told != nil {
		return e.told
	}
	return &e.own
}

func (e *encoder) uint(v uint64)            { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)              { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) count(v int64)            { e.uint(uint64(min(max(0, v), maxCount))) }
func (e *encoder) byte(v byte)              { e.b = append(e.b, v) }
func (e *encoder) fixed(v uint64)           { e.b = binary.BigEndian.AppendUint64(e.b, v) }
func (e *encoder) duration(d time.Duration) { e.int(int64(d)) }

func (e *encoder) bool(v bool) {
	if v {
		e.byte(1)
	} else {
		e.byte(0)
	}
}

// float writes a float64 so that whole numbers are short.
func (e *encoder) float(v float64) { e.uint(bits.ReverseBytes64(math.Float64bits(v))) }

func (e *encoder) bytes(v []byte) {
	e.uint(uint64(len(v)))
	e.b = append(e.b, v...)
}

// str writes a string once per message: 0, length, bytes; later its number. One
// that is too long is cut, since every decoder would refuse it.
func (e *encoder) str(s string) {
	if len(s) > maxString {
		s = s[:maxString]
	}
	n := e.names()
	if i, ok := n.find(s); ok {
		e.uint(uint64(i) + 1)
		return
	}
	e.uint(0)
	e.uint(uint64(len(s)))
	e.b = append(e.b, s...)
	n.add(s)
}

// boot writes a boot id like str does a string.
func (e *encoder) boot(b state.BootID) {
	n := e.names()
	if i, ok := n.findBoot(b); ok {
		e.uint(uint64(i) + 1)
		return
	}
	e.uint(0)
	e.fixed(uint64(b))
	n.addBoot(b)
}

// item writes what f appends, preceded by its length.
func (e *encoder) item(f func()) {
	at := len(e.b)
	e.byte(0)
	f()
	n := len(e.b) - at - 1
	if n < 0x80 {
		e.b[at] = byte(n)
		return
	}
	var tmp [binary.MaxVarintLen64]byte
	k := binary.PutUvarint(tmp[:], uint64(n))
	e.b = append(e.b, tmp[:k-1]...)
	copy(e.b[at+k:], e.b[at+1:at+1+n])
	copy(e.b[at:], tmp[:k])
}

// Decoder reads messages. It remembers strings, so that ids that come again and
// again are one string; the zero value is ready. Not for concurrent use.
type Decoder struct {
	known map[string]string
}

// intern is b as a string, shared with earlier ones.
func (d *Decoder) intern(b []byte) string {
	if len(b) > 256 {
		return string(b)
	}
	if s, ok := d.known[string(b)]; ok {
		return s
	}
	if d.known == nil || len(d.known) >= maxIntern {
		d.known = make(map[string]string)
	}
	s := string(b)
	d.known[s] = s
	return s
}

// reader takes fields off a message. After the first fault every field is zero.
type reader struct {
	dec  *Decoder
	b    []byte
	err  error
	told *names // nil: of this message alone, in own
	own  names
}

func (r *reader) names() *names {
	if r.told != nil {
		return r.told
	}
	return &r.own
}

// more says that fields follow which an older sender leaves out.
func (r *reader) more() bool { return r.err == nil && len(r.b) > 0 }

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrMalformed, what)
	}
	r.b = nil
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail("number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) count() int64 {
	v := r.uint()
	if v > maxCount {
		r.fail("count out of range")
		return 0
	}
	return int64(v)
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail("byte")
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) bool() bool { return r.byte() != 0 }

func (r *reader) fixed() uint64 {
	if len(r.b) < 8 {
		r.fail("fixed number")
		return 0
	}
	v := binary.BigEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *reader) duration() time.Duration { return time.Duration(r.int()) }

// float refuses what is not a number.
func (r *reader) float() float64 {
	v := math.Float64frombits(bits.ReverseBytes64(r.uint()))
	if math.IsNaN(v) || math.IsInf(v, 0) {
		r.fail("not a finite number")
		return 0
	}
	return v
}

// take is the next n bytes, still part of the input.
func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail("length")
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// bytes refers to the input.
func (r *reader) bytes() []byte { return r.take(r.uint()) }

func (r *reader) str() string {
	t := r.names()
	if i := r.uint(); i > 0 {
		if i > uint64(len(t.strings)) {
			r.fail("string reference")
			return ""
		}
		return t.strings[i-1]
	}
	n := r.uint()
	if n > maxString {
		r.fail("string too long")
		return ""
	}
	b := r.take(n)
	if r.err != nil {
		return ""
	}
	s := r.dec.intern(b)
	t.strings = append(t.strings, s)
	return s
}

func (r *reader) boot() state.BootID {
	t := r.names()
	if i := r.uint(); i > 0 {
		if i > uint64(len(t.boots)) {
			r.fail("boot reference")
			return 0
		}
		return t.boots[i-1]
	}
	b := state.BootID(r.fixed())
	if r.err == nil {
		t.boots = append(t.boots, b)
	}
	return b
}

// list is the number of items that follow, each of which takes at least one byte.
func (r *reader) list() int {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail("list length")
		return 0
	}
	return int(n)
}

// item reads one length-prefixed item with f and skips what f left of it.
func (r *reader) item(f func()) {
	b := r.bytes()
	if r.err != nil {
		return
	}
	rest := r.b
	r.b = b
	f()
	if r.err == nil {
		r.b = rest
	}
}
