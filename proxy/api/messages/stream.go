package messages

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

const (
	// maxWaiting bounds what waits for a block before it, bytes.
	maxWaiting = 4 << 20
	// maxCalls bounds the calls of tools in one answer.
	maxCalls = 1024
	// maxName bounds the id and the name of a call, bytes.
	maxName = 4 << 10
)

// Stream makes Anthropic's events of a chat completion's chunks. It serves one answer and must not be used by two
// goroutines at once. Where nothing has to wait, it allocates nothing after the first chunk.
type Stream struct {
	asked  Asked
	family api.Family

	started, ended bool
	failed         *api.Error
	usage          api.Usage
	end            outcome

	id      []byte    // the message's, as it is written
	next    int       // index of the first of open
	open    []part    // blocks that have not ended; the first one is being written
	tools   []tool    // all calls so far
	waiting int       // bytes in open
	scratch [512]byte // for arguments, decoded
}

// part is a block of the answer that has not ended.
type part struct {
	kind    blockKind // textBlock, thinkingBlock or callBlock
	tool    int       // of a call: which one
	begun   bool      // its start has been written
	waiting []byte    // inner bytes of a string, not yet written
}

// tool is a call of a tool.
type tool struct {
	index    int64  // the engine's
	id, name []byte // JSON strings
	input    object
	empty    bool // all that came is {}, which some engines write before the arguments
	written  bool // some of its arguments have been written
}

// NewStream returns a Stream for an answer; family is how the engine writes usage.
func NewStream(asked Asked, family api.Family) *Stream {
	return &Stream{asked: asked, family: family}
}

// Started says whether the client has been sent anything.
func (s *Stream) Started() bool { return s.started }

// Ended says whether the last event has been appended: message_stop, or an error. What comes after is ignored.
func (s *Stream) Ended() bool { return s.ended }

// Failed is the error the stream ended with, nil if there was none.
func (s *Stream) Failed() *api.Error { return s.failed }

// Event appends the events for one chunk: the payload of an event of the engine's, its data lines joined by LF, [DONE]
// included. An error in it, or a payload that can't be read, ends the stream with an error event. payload is not kept.
func (s *Stream) Event(dst, payload []byte) []byte {
	payload = bytes.TrimSpace(payload)
	switch {
	case s.ended || len(payload) == 0:
		return dst
	case string(payload) == "[DONE]":
		return s.finish(dst)
	}
	var a answer
	if !a.read(payload) {
		return s.fail(dst, unusable())
	}
	if a.failure {
		return s.fail(dst, Error(0, payload))
	}
	if u, ok := a.count(s.family); ok {
		s.usage = u
	}
	if !s.started {
		dst = s.start(dst, a.id)
	}
	c := scan.Reread(a.choices)
	for some := c.EnterArray(); some && c.NextElem(); {
		var ch choice
		switch fine := ch.read(c.Skip().Raw(a.choices)); {
		case !fine:
			return s.fail(dst, unusable())
		case ch.index == 0:
			if dst = s.choice(dst, &ch); s.ended {
				return dst
			}
		}
	}
	return dst
}

// End appends the end of a stream whose [DONE] did not come. err is why; nil says that the engine's body ended in order,
// and then the answer is whole if the engine said how it ended.
func (s *Stream) End(dst []byte, err *api.Error) []byte {
	switch {
	case s.ended:
		return dst
	case err == nil && isString(s.end.finish):
		return s.finish(dst)
	case err == nil:
		err = api.BadGateway("stream_broken")
	}
	return s.fail(dst, err)
}

func (s *Stream) start(dst, id []byte) []byte {
	s.started = true
	s.id = appendID(s.id[:0], id, &s.asked)
	dst = append(dst, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":"...)
	dst = append(dst, s.id...)
	dst = append(dst, `,"type":"message","role":"assistant","model":`...)
	dst = scan.AppendQuoted(dst, s.asked.Model)
	dst = append(dst, `,"content":[],"stop_reason":null,"stop_sequence":null,"usage":`...)
	dst = appendUsage(dst, s.usage)
	return append(dst, "}}\n\n"...)
}

func (s *Stream) choice(dst []byte, ch *choice) []byte {
	if isString(ch.finish) && s.end.finish == nil {
		s.end.finish = bytes.Clone(ch.finish)
	}
	if ch.stop != nil && s.end.stop == nil {
		s.end.stop = bytes.Clone(ch.stop)
	}
	if s.asked.Thinking {
		dst = s.say(dst, thinkingBlock, inner(ch.reasoning))
	}
	dst = s.say(dst, textBlock, inner(ch.content))
	if said := inner(ch.refusal); len(said) > 0 {
		s.end.refused = true
		dst = s.say(dst, textBlock, said)
	}
	c := scan.Reread(ch.call)
	for some := c.EnterArray(); some && !s.ended && c.NextElem(); {
		var k call
		if !k.read(c.Skip().Raw(ch.call)) {
			return s.fail(dst, unusable())
		}
		dst = s.call(dst, &k)
	}
	return dst
}

// say adds to the text or the thinking.
func (s *Stream) say(dst []byte, kind blockKind, said []byte) []byte {
	if len(said) == 0 || s.ended {
		return dst
	}
	if n := len(s.open); n == 0 || s.open[n-1].kind != kind {
		s.open = append(s.open, part{kind: kind})
	}
	return s.add(dst, len(s.open)-1, said)
}

// call adds to a call of a tool, or begins one.
func (s *Stream) call(dst []byte, k *call) []byte {
	t := s.find(k)
	if t < 0 {
		if len(s.tools) == maxCalls {
			return s.fail(dst, unusable())
		}
		t = len(s.tools)
		s.end.calls = true
		s.tools = append(s.tools, tool{index: k.index})
		s.open = append(s.open, part{kind: callBlock, tool: t})
	}
	one := &s.tools[t]
	if len(k.id) > maxName || len(k.name) > maxName {
		return s.fail(dst, unusable())
	}
	if one.id == nil && len(inner(k.id)) > 0 {
		one.id = bytes.Clone(k.id)
	}
	if one.name == nil && len(inner(k.name)) > 0 {
		one.name = bytes.Clone(k.name)
	}
	at := -1
	for i := range s.open {
		if s.open[i].kind == callBlock && s.open[i].tool == t {
			at = i
		}
	}
	return s.arguments(dst, at, one, inner(k.arguments))
}

// find finds the call that a piece belongs to, -1 for a new one. Some engines number no calls, or all of them 0; then
// a name begins another call where the id is
// another or the call before is whole.
func (s *Stream) find(k *call) int {
	named := len(inner(k.name)) > 0
	for t := len(s.tools) - 1; t >= 0; t-- {
		one := &s.tools[t]
		if k.index >= 0 && one.index != k.index {
			continue
		}
		another := len(inner(k.id)) > 0 && one.id != nil && !bytes.Equal(one.id, k.id)
		if named && (another || k.index < 0 && one.input.whole) {
			return -1
		}
		return t
	}
	return -1
}

// arguments adds to the arguments of the call at a place in open, -1 for one that has ended.
func (s *Stream) arguments(dst []byte, at int, one *tool, piece []byte) []byte {
	placeholder := !one.input.some && string(piece) == "{}"
	blank := s.feed(one, piece)
	switch {
	case at < 0 && !blank:
		return s.fail(dst, unusable())
	case at < 0:
		return dst
	case placeholder:
		one.empty = true
		return s.advance(dst)
	case one.empty && blank:
		return dst
	}
	one.empty = false
	return s.add(dst, at, piece)
}

// feed follows a call's arguments and says whether this piece is white space. What comes behind {} begins anew.
func (s *Stream) feed(one *tool, piece []byte) (blank bool) {
	blank = true
	for len(piece) > 0 {
		n, used := scan.Decode(s.scratch[:], piece)
		decoded := s.scratch[:n]
		piece = piece[used:]
		if blank = blank && len(bytes.TrimSpace(decoded)) == 0; !blank && one.empty {
			one.empty, one.input = false, object{}
		}
		one.input.feed(decoded)
	}
	return blank
}

// add adds inner bytes of a string to a block in open: to the first one at once, to others for later.
func (s *Stream) add(dst []byte, at int, piece []byte) []byte {
	p := &s.open[at]
	switch {
	case len(piece) == 0:
	case at == 0 && p.begun:
		dst = s.delta(dst, p, piece)
	default:
		if s.waiting += len(piece); s.waiting > maxWaiting {
			return s.fail(dst, unusable())
		}
		p.waiting = append(p.waiting, piece...)
	}
	return s.advance(dst)
}

// advance writes what need not wait: the beginning of the first block in open, and its end once it is whole and another
// one waits.
func (s *Stream) advance(dst []byte) []byte {
	for len(s.open) > 0 {
		p := &s.open[0]
		if !p.begun {
			if p.kind == callBlock && s.tools[p.tool].name == nil {
				return dst
			}
			dst = s.begin(dst, p)
		}
		if len(s.open) == 1 || p.kind == callBlock && !s.tools[p.tool].input.whole {
			return dst
		}
		dst = s.close(dst)
	}
	return dst
}

// begin writes a block's beginning and what waits of it.
func (s *Stream) begin(dst []byte, p *part) []byte {
	p.begun = true
	dst = s.event(dst, "content_block_start")
	dst = append(dst, `,"content_block":{"type":`...)
	switch p.kind {
	case textBlock:
		dst = append(dst, `"text","text":""`...)
	case thinkingBlock:
		dst = append(dst, `"thinking","thinking":"","signature":""`...)
	default:
		one := &s.tools[p.tool]
		dst = appendCallID(append(dst, `"tool_use","id":`...), one.id, s.id, p.tool)
		dst = append(append(dst, `,"name":`...), one.name...)
		dst = append(dst, `,"input":{}`...)
	}
	dst = append(dst, "}}\n\n"...)
	if len(p.waiting) > 0 {
		dst = s.delta(dst, p, p.waiting)
		s.waiting -= len(p.waiting)
		p.waiting = nil
	}
	return dst
}

// delta writes a piece of the first block in open.
func (s *Stream) delta(dst []byte, p *part, piece []byte) []byte {
	dst = s.event(dst, "content_block_delta")
	switch p.kind {
	case textBlock:
		dst = append(dst, `,"delta":{"type":"text_delta","text":"`...)
	case thinkingBlock:
		dst = append(dst, `,"delta":{"type":"thinking_delta","thinking":"`...)
	default:
		s.tools[p.tool].written = true
		dst = append(dst, `,"delta":{"type":"input_json_delta","partial_json":"`...)
	}
	return append(append(dst, piece...), "\"}}\n\n"...)
}

// close writes the end of the first block in open, which has begun.
func (s *Stream) close(dst []byte) []byte {
	p := &s.open[0]
	switch {
	case p.kind == thinkingBlock:
		dst = s.event(dst, "content_block_delta")
		dst = append(dst, `,"delta":{"type":"signature_delta",`+unsigned+"}}\n\n"...)
	case p.kind == callBlock && !s.tools[p.tool].written:
		dst = s.delta(dst, p, []byte("{}"))
	}
	dst = append(s.event(dst, "content_block_stop"), "}\n\n"...)
	s.next++
	s.open = slices.Delete(s.open, 0, 1)
	return dst
}

// event writes the beginning of an event that is about the first block in open.
func (s *Stream) event(dst []byte, name string) []byte {
	dst = append(append(dst, "event: "...), name...)
	dst = append(append(dst, "\ndata: {\"type\":\""...), name...)
	return strconv.AppendInt(append(dst, `","index":`...), int64(s.next), 10)
}

// finish ends the message.
func (s *Stream) finish(dst []byte) []byte {
	if !s.started || s.end.broken() {
		return s.fail(dst, unusable())
	}
	for len(s.open) > 0 {
		p := &s.open[0]
		if p.kind == callBlock && s.tools[p.tool].name == nil {
			return s.fail(dst, unusable())
		}
		if !p.begun {
			dst = s.begin(dst, p)
		}
		dst = s.close(dst)
	}
	s.ended = true
	dst = append(dst, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"...)
	dst = s.end.append(dst, &s.asked)
	dst = append(dst, `},"usage":`...)
	dst = appendUsage(dst, s.usage)
	return append(dst, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...)
}

// fail ends the stream with an error event.
func (s *Stream) fail(dst []byte, err *api.Error) []byte {
	s.ended, s.failed = true, err
	s.open = nil
	dst = append(dst, "event: error\ndata: "...)
	dst = err.AppendAnthropic(dst)
	return append(dst, '\n', '\n')
}

// object follows the text of a JSON object that comes in pieces.
type object struct {
	depth                 int
	inside, escaped       bool // of a string
	some, whole, isObject bool
}

// feed reads the next piece. whole is set once the object has ended; text that does not begin with a brace never is.
func (o *object) feed(piece []byte) {
	for _, b := range piece {
		switch {
		case o.escaped:
			o.escaped = false
		case o.inside:
			o.escaped = b == '\\'
			o.inside = b != '"'
		case b == '"':
			o.inside = true
		case b == '{', b == '[':
			o.isObject = o.isObject || b == '{' && !o.some
			o.depth++
		case b == '}', b == ']':
			o.depth--
			o.whole = o.whole || o.depth == 0 && o.isObject
		case b == ' ', b == '\n', b == '\r', b == '\t':
			continue
		}
		o.some = true
	}
}
