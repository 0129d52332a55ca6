package sse

import (
	"bytes"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// observed is what a Framer has seen of its stream.
type observed struct {
	changed bool // the bytes of the last Feed are not all passed on as they are

	blocks     int // all that ended with a blank line
	events     int
	leading    int
	comments   int
	done       bool
	cut        bool
	firstError bool
	failure    []byte
	start      []byte
	usage      []byte
	timings    []byte
	finish     []byte
}

func (o *observed) reset() {
	*o = observed{failure: shrink(o.failure), start: shrink(o.start), usage: shrink(o.usage), timings: shrink(o.timings), finish: o.finish[:0]}
}

// Events is the number of complete events that hold data so far, [DONE] not counted.
func (f *Framer) Events() int { return f.seen.events }

// Leading is how many of the events so far, at the stream's beginning, only announce an answer: response.created,
// response.queued and response.in_progress. It is 0 unless the stream is typed.
func (f *Framer) Leading() int { return f.seen.leading }

// Comments is the number of complete blocks without data so far, such as keep-alive comments.
func (f *Framer) Comments() int { return f.seen.comments }

// Done says whether the event that ends a whole stream was seen: [DONE], or by its event name message_stop,
// response.completed, response.incomplete or response.failed; in a typed stream also by its type.
func (f *Framer) Done() bool { return f.seen.done }

// Cut says, after End, whether what no blank line has ended can't be a whole event: part of a field's name, or a payload
// that is neither JSON nor [DONE].
func (f *Framer) Cut() bool { return f.seen.cut }

func (f *Framer) isCut(raw []byte) bool {
	payload, _, _ := f.payload(raw)
	if len(payload) == 0 {
		rest := bytes.TrimSpace(raw)
		return len(rest) > 0 && rest[0] != ':'
	}
	if bytes.Equal(bytes.TrimSpace(payload), doneMark) {
		return false
	}
	c := scan.New(payload)
	c.Skip()
	return c.End() != nil
}

// FirstIsError says whether the stream's first event, leading ones apart, is an error object: the engine refused, inside
// a 200.
func (f *Framer) FirstIsError() bool { return f.seen.firstError }

// Error is the payload of the last event that is an error object, nil if there was none. Valid until Reset or the next
// error.
func (f *Framer) Error() []byte { return orNil(f.seen.failure) }

// Usage is the last usage object seen, as it lies, at the top of an event or inside its response object; nil if there
// was none. Later ones replace earlier ones, since engines report totals. Valid until the next Feed.
func (f *Framer) Usage() []byte { return orNil(f.seen.usage) }

// StartUsage is the last usage object seen inside an event's message object, nil if there was none: Anthropic's streams
// begin with one, and what Usage does not say still holds from there. Valid until the next Feed.
func (f *Framer) StartUsage() []byte { return orNil(f.seen.start) }

// Timings is llama.cpp's last timings object seen, nil if there was none. Valid until the next Feed.
func (f *Framer) Timings() []byte { return orNil(f.seen.timings) }

// Finish is the last finish reason seen, "" if there was none.
func (f *Framer) Finish() string { return string(f.seen.finish) }

func orNil(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// edit replaces raw[from:to] of an event.
type edit struct {
	from, to int
	with     string
}

// event looks at a complete event. It says whether the event is passed on, with what edits to make of it.
func (f *Framer) event(raw []byte) (keep bool) {
	f.edits = f.edits[:0]
	f.seen.blocks++
	if inner, escaped, ok := f.like.text(raw); ok {
		f.seen.events++
		f.opts.OnText(inner, escaped)
		return true
	}
	payload, at, name := f.payload(raw)
	if len(payload) == 0 { // the standard dispatches no event without data
		if len(bytes.TrimSpace(raw)) > 0 {
			f.seen.comments++
		}
		return true
	}
	if bytes.Equal(bytes.TrimSpace(payload), doneMark) {
		f.seen.done = true
		return true
	}
	f.seen.events++
	from, to := f.tell(payload)
	if f.opts.Typed && len(name) == 0 {
		name = typeOf(payload)
	}
	switch string(name) {
	case "message_stop", "response.completed", "response.incomplete", "response.failed":
		f.seen.done = true
	case "response.created", "response.queued", "response.in_progress":
		if f.opts.Typed && f.seen.leading == f.seen.events-1 {
			f.seen.leading++
		}
	}
	isError, cutFrom, cutTo := string(name) == "error", 0, 0
	if keep = !isError && !ofInterest(payload); !keep {
		keep, cutFrom, cutTo = f.observe(payload, isError)
	} else if at >= 0 && len(name) == 0 && !f.opts.Typed && !f.renames(payload) {
		f.like.learn(raw, at+from, at+to)
	}
	if f.opts.DropUsage && !keep {
		f.edits = append(f.edits, edit{0, len(raw), ""})
		return false
	}
	if at < 0 { // a payload of several lines is not cut into
		return true
	}
	if f.opts.DropUsage && cutTo > cutFrom {
		f.edits = append(f.edits, edit{at + cutFrom, at + cutTo, ""})
	}
	if f.renames(payload) {
		f.rename(payload, at)
	}
	return true
}

// tell hands a payload on. It returns what OnChunk does.
func (f *Framer) tell(payload []byte) (from, to int) {
	switch {
	case f.opts.OnChunk != nil:
		return f.opts.OnChunk(payload)
	case f.opts.OnData != nil:
		f.opts.OnData(payload)
	}
	return 0, 0
}

// payload joins an event's data lines; it is empty if there is no data. at is where in raw the payload lies, -1 if it is
// not there in one piece. event is the event's name, empty for none.
func (f *Framer) payload(raw []byte) (payload []byte, at int, event []byte) {
	at = -1
	lines, i := 0, 0
	if f.seen.blocks == 1 && bytes.HasPrefix(raw, byteOrderMark) {
		i = len(byteOrderMark)
	}
	ends := lineEnds{buf: raw}
	for i < len(raw) {
		end := ends.next(i)
		next := end + 1
		if end < 0 {
			end, next = len(raw), len(raw)
		}
		name, value, start := field(raw, i, end)
		switch string(name) {
		case "data":
			switch lines++; lines {
			case 1:
				payload, at = value, start
			case 2:
				f.data = append(append(append(f.data[:0], payload...), '\n'), value...)
				payload, at = f.data, -1
			default:
				f.data = append(append(f.data, '\n'), value...)
				payload = f.data
			}
		case "event":
			event = value
		}
		if i = next; i < len(raw) && raw[i-1] == '\r' && raw[i] == '\n' {
			i++
		}
	}
	return payload, at, event
}

// field splits the line raw[i:end]. start is where the value starts in raw.
func field(raw []byte, i, end int) (name, value []byte, start int) {
	colon := bytes.IndexByte(raw[i:end], ':')
	if colon < 0 {
		return raw[i:end], raw[end:end:end], end
	}
	start = i + colon + 1
	if start < end && raw[start] == ' ' {
		start++
	}
	return raw[i : i+colon], raw[start:end:end], start
}

var (
	doneMark   = []byte("[DONE]")
	keyError   = []byte(`"error"`)
	keyUsage   = []byte(`"usage"`)
	keyTimings = []byte(`"timings"`)
	keyFinish  = []byte(`"finish_reason"`)
)

// ofInterest says whether one of the keys of interest is in a payload; text can't hold them, since quotes in it are
// escaped.
func ofInterest(payload []byte) bool {
	return bytes.Contains(payload, keyUsage) || bytes.Contains(payload, keyError) || bytes.Contains(payload, keyTimings) || finishes(payload)
}

// observe reads a payload of interest. cutFrom and cutTo are the part of the payload that is left out.
func (f *Framer) observe(payload []byte, isError bool) (keep bool, cutFrom, cutTo int) {
	c := scan.New(payload)
	if !c.EnterObject() {
		if isError {
			f.failed(payload)
		}
		return true, 0, 0
	}
	m := members{choices: -1}
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		m.step(key.Start)
		switch string(key.Text(payload, scratch[:0])) {
		case "error":
			isError = isError || c.Peek() != scan.Null
			c.Skip()
		case "object":
			v := c.Skip()
			isError = isError || v.Kind == scan.String && string(v.Inner(payload)) == "error"
		case "usage":
			m.usage = c.Skip()
			m.usageKey(key.Start)
		case "message":
			m.start = usageIn(&c, payload)
		case "response":
			m.nested = usageIn(&c, payload)
		case "timings":
			m.timings = c.Skip()
		case "choices":
			m.choices, m.finish = f.choices(&c, payload)
		default:
			c.Skip()
		}
		m.last = c.Pos()
	}
	if c.End() != nil && !isError {
		return true, 0, 0
	}
	if isError {
		f.failed(payload)
		return true, 0, 0
	}
	if m.finish.Kind == scan.String {
		f.seen.finish = append(f.seen.finish[:0], m.finish.Text(payload, scratch[:0])...)
	}
	if m.timings.Kind == scan.Object {
		f.seen.timings = append(f.seen.timings[:0], m.timings.Raw(payload)...)
	}
	if m.start.Kind == scan.Object {
		f.seen.start = append(f.seen.start[:0], m.start.Raw(payload)...)
	}
	if m.nested.Kind == scan.Object {
		f.seen.usage = append(f.seen.usage[:0], m.nested.Raw(payload)...)
	}
	switch m.usage.Kind {
	case scan.Object:
		f.seen.usage = append(f.seen.usage[:0], m.usage.Raw(payload)...)
		return m.choices != 0, 0, 0
	case scan.Null:
		return true, m.cutFrom, m.cutTo
	}
	return true, 0, 0
}

func (f *Framer) failed(payload []byte) {
	f.seen.firstError = f.seen.firstError || f.seen.events == f.seen.leading+1
	f.seen.failure = append(f.seen.failure[:0], payload...)
}

// members is what observe finds in a chunk.
type members struct {
	usage, timings, finish scan.Value
	start, nested          scan.Value // usage inside message and response
	choices                int        // number of choices, -1 for no such list

	last           int  // where the member before the present one ended, 0 for none
	cutFrom, cutTo int  // the usage member with the comma that goes with it
	open           bool // the usage member is the first one: it is cut up to the next key
}

// step is called at every key.
func (m *members) step(key int) {
	if m.open {
		m.cutTo, m.open = key, false
	}
}

// usageKey is called when the usage member whose key starts there was read.
func (m *members) usageKey(key int) {
	if m.cutTo = m.usage.End; m.last > 0 {
		m.cutFrom = m.last
		return
	}
	m.cutFrom, m.open = key, true
}

// choices counts the choices of a chunk and finds the last finish reason in them.
func (f *Framer) choices(c *scan.Cursor, doc []byte) (n int, finish scan.Value) {
	if !c.EnterArray() {
		c.Skip()
		return -1, finish
	}
	for ; c.NextElem(); n++ {
		if !c.EnterObject() {
			c.Skip()
			continue
		}
		var scratch [32]byte
		for key, ok := c.NextField(); ok; key, ok = c.NextField() {
			v := c.Skip()
			if v.Kind == scan.String && string(key.Text(doc, scratch[:0])) == "finish_reason" {
				finish = v
			}
		}
	}
	return n, finish
}

// usageIn finds the usage object of the next value.
func usageIn(c *scan.Cursor, doc []byte) (usage scan.Value) {
	if !c.EnterObject() {
		c.Skip()
		return usage
	}
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		if v := c.Skip(); string(key.Text(doc, scratch[:0])) == "usage" {
			usage = v
		}
	}
	return usage
}

// finishes says whether any finish_reason in a payload is something other than null.
func finishes(payload []byte) bool {
	for {
		k := bytes.Index(payload, keyFinish)
		if k < 0 {
			return false
		}
		payload = bytes.TrimLeft(payload[k+len(keyFinish):], " \t\r\n:")
		if len(payload) > 0 && payload[0] != 'n' {
			return true
		}
	}
}
