package sse

import (
	"bytes"
	"errors"
)

// MaxEvent is how long one line, or the lines of one event together, may be, in bytes.
const MaxEvent = 16 << 20

// keepBuffer is the largest buffer kept once it is empty, bytes.
const keepBuffer = 8 << 10

// ErrTooLong is returned for an event longer than MaxEvent. The stream can't be followed any further and must not be
// ended as if it were whole.
var ErrTooLong = errors.New("event stream: an event is longer than 16 MiB")

// Options say what a Framer does beside watching.
type Options struct {
	// DropUsage takes usage the client did not ask for out of the stream.
	DropUsage bool

	// Model, if not empty, takes the place of every model's name: at the top of an event, and inside its message or
	// response object. It is a JSON string with its quotes.
	Model string

	// Of, if not empty, is the one name that Model takes the place of, a JSON string with its quotes.
	Of string

	// Typed says that the stream is one of OpenAI's Responses: events are named by their type also where they have no
	// name, and those that only announce an answer are counted apart.
	Typed bool

	// Tag, if not empty, is appended to every id of a response: the response object's own id and previous_response_id,
	// and an event's response_id. It holds nothing that JSON escapes.
	Tag string

	// Previous, if not empty, takes the place of the response object's previous_response_id where that is a string. It
	// is a JSON string with its quotes.
	Previous string

	// OnData, if not nil, is called with the payload of every event that is no comment and not [DONE]: its data lines
	// joined by LF. The slice is valid during the call.
	OnData func(payload []byte)

	// OnChunk, if not nil, is called in the place of OnData. It returns where in the payload the piece of text lies that
	// the event adds to an answer, a JSON string with its quotes; both are 0 if the event says anything else. Events that
	// differ from such a one in that string alone may then be told by OnText instead.
	OnChunk func(payload []byte) (from, to int)

	// OnText takes that string's inner bytes, which are valid, and whether there are escapes among them. It must be set
	// if OnChunk is. The slice is valid during the call.
	OnText func(inner []byte, escaped bool)
}

// change says whether a stream is changed: then an event is passed on only when all of it is there.
func (o *Options) change() bool {
	return o.DropUsage || o.Model != "" || o.Tag != "" || o.Previous != ""
}

// Framer watches one event stream. The zero value watches without changing anything; Reset prepares it for another
// stream. It must not be used by two goroutines at once.
type Framer struct {
	opts  Options
	limit int // 0 = MaxEvent; smaller in tests

	held     []byte // bytes of the event being received, behind those of events that are complete
	consumed int    // leading bytes of held that were handed back
	scanned  int    // bytes of the event being received that were searched for line ends
	line     int    // where in it the present line starts
	out      []byte // what Feed returned last when it is part of neither chunk nor held
	data     []byte // scratch for payloads of several lines
	edits    []edit // of the event looked at last, in order

	past bool // the stream's first line is complete
	cr   bool // the last line ended with CR: a LF that follows at once belongs to it
	kept bool // the last event was passed on, so what belongs to it is

	like like
	seen observed
}

// Reset forgets the stream and starts another one. Slices handed out before are no longer valid.
func (f *Framer) Reset(opts Options) {
	f.seen.reset()
	*f = Framer{
		opts: opts, limit: f.limit, seen: f.seen,
		held: shrink(f.held), out: shrink(f.out), data: shrink(f.data), edits: f.edits[:0],
		like: like{raw: f.like.raw[:0]},
	}
}

// Feed takes the next bytes of the stream and returns those to pass on now. That is chunk itself if nothing is to
// be changed. Otherwise the returned slice may be part of chunk or of the framer and is valid until the next call. After ErrTooLong
// the stream must be given up; bytes returned with it may still be passed on.
func (f *Framer) Feed(chunk []byte) ([]byte, error) {
	if len(chunk) == 0 {
		return chunk, nil
	}
	f.release()
	buf := chunk
	joined := len(f.held) > 0
	if joined {
		f.held = append(f.held, chunk...)
		buf = f.held
	}
	start, err := f.events(buf)
	pass := buf[:start]
	if f.seen.changed {
		pass = f.out
	}
	// What is left over is the start of an event.
	if joined {
		f.consumed = start
	} else {
		f.held = append(f.held, buf[start:]...)
	}
	if err == nil && len(buf)-start > f.bound() {
		err = ErrTooLong
	}
	if !f.opts.change() {
		return chunk, err
	}
	return pass, err
}

// events finds the complete events in buf, which starts at an event's start, and returns where the incomplete one after
// them starts. If one of them is not passed on as it is, f.out holds all that is.
func (f *Framer) events(buf []byte) (start int, err error) {
	f.seen.changed = false
	f.out = f.out[:0]
	from := 0 // bytes of buf before it are in f.out or dropped
	ends := lineEnds{buf: buf}
	i, line := f.scanned, f.line
	for {
		if f.cr && i < len(buf) {
			f.cr = false
			if buf[i] == '\n' {
				i++
				if line == start { // it belongs to the event before
					start = i
					if !f.kept {
						from, f.seen.changed = i, true
					}
				}
				line = i
			}
		}
		end := ends.next(i)
		if end < 0 {
			break
		}
		i = end + 1
		f.cr = buf[end] == '\r'
		blank := end == line
		if !f.past {
			f.past = true
			blank = blank || bytes.Equal(buf[line:end], byteOrderMark)
		}
		if line = i; !blank {
			continue
		}
		if i-start > f.bound() {
			return start, ErrTooLong
		}
		f.kept = f.event(buf[start:i])
		for _, e := range f.edits {
			f.out = append(append(f.out, buf[from:start+e.from]...), e.with...)
			from, f.seen.changed = start+e.to, true
		}
		start = i
	}
	if f.seen.changed {
		f.out = append(f.out, buf[from:start]...)
	}
	f.scanned, f.line = len(buf)-start, line-start
	return start, nil
}

// End is called at the stream's regular end. It looks at an event that no blank line has ended and returns the bytes
// held back that are to be passed on, if any.
func (f *Framer) End() []byte {
	f.release()
	if len(f.held) == 0 {
		return nil
	}
	done := f.seen.done
	f.event(f.held)
	if f.seen.cut = f.isCut(f.held); f.seen.cut {
		f.seen.done = done // its name alone ends nothing
	}
	if !f.opts.change() {
		f.held = f.held[:0]
		return nil
	}
	from := 0
	f.out = f.out[:0]
	for _, e := range f.edits {
		f.out = append(append(f.out, f.held[from:e.from]...), e.with...)
		from = e.to
	}
	f.out = append(f.out, f.held[from:]...)
	f.held = f.held[:0]
	return f.out
}

// Between says whether the bytes handed back so far end between two events, so that a further event can be written
// behind them. Where the stream is changed they always do.
func (f *Framer) Between() bool { return f.opts.change() || f.Pending() == 0 }

// Partial is how many of the bytes that Feed returned belong to an event that is not complete.
func (f *Framer) Partial() int {
	if f.opts.change() {
		return 0
	}
	return f.Pending()
}

// Pending is how many of the bytes received belong to an event that is not complete.
func (f *Framer) Pending() int { return len(f.held) - f.consumed }

// release lets go of what the last call returned.
func (f *Framer) release() {
	if f.consumed > 0 {
		f.held = f.held[:copy(f.held, f.held[f.consumed:])]
		f.consumed = 0
	}
	if len(f.held) == 0 {
		f.held = shrink(f.held)
	}
	f.out, f.data = shrink(f.out), shrink(f.data)
}

func (f *Framer) bound() int {
	if f.limit > 0 {
		return f.limit
	}
	return MaxEvent
}

// shrink empties a buffer and lets a large one go.
func shrink(b []byte) []byte {
	if cap(b) > keepBuffer {
		return nil
	}
	return b[:0]
}

// lineEnds finds CR and LF, each searched for only once.
type lineEnds struct {
	buf    []byte
	lf, cr int // next ones known, 0 = not searched yet, len(buf) = none
}

// next returns the position of the first line end at or behind i, -1 for none.
func (l *lineEnds) next(i int) int {
	if l.lf < i || l.lf == 0 {
		l.lf = indexFrom(l.buf, i, '\n')
	}
	if l.cr < i || l.cr == 0 {
		l.cr = indexFrom(l.buf, i, '\r')
	}
	if end := min(l.lf, l.cr); end < len(l.buf) {
		return end
	}
	return -1
}

func indexFrom(b []byte, i int, c byte) int {
	if k := bytes.IndexByte(b[i:], c); k >= 0 {
		return i + k
	}
	return len(b)
}

var byteOrderMark = []byte{0xEF, 0xBB, 0xBF}
