package proxy

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/proxy/api/messages"
	"github.com/hearsay-llm/hearsay/proxy/sse"
)

const (
	relayBuffer = 16 << 10
	// peekBytes is how much of a stream is looked at for its first event before
	// the answer begins.
	peekBytes = 64 << 10
	// peekHeld is the same where the events that announce it are held: they repeat
	// instructions and tools.
	peekHeld = 1 << 20
	// tailBytes of a long answer are kept to find its usage in.
	tailBytes = 32 << 10
	// goodbye is how long the end of a stream's framing may take after its last
	// event.
	goodbye = time.Second
)

// errBroken ends a client's body without its proper end: what came from the
// replica was not whole.
var errBroken = errors.New("answer broke off")

// relay is a replica's answer on its way to the client. The HTTP server drives it
// in the goroutine that serves the client: each Write is one piece sent, and
// nothing is read from the replica while the client does not take what was read
// before.
type relay struct {
	r       *request
	buf     *[]byte
	stream  bool
	encoded bool   // the body is compressed
	whole   bool   // ahead is all of it
	ahead   []byte // read before the answer began
	passed  int    // comments that the client has got before
	json    bool   // the body must be a JSON object
	tail    []byte // the end of a long answer that is no stream

	framer  *sse.Framer
	message *messages.Stream // makes events of Messages of what comes; nil: what comes is passed on
	events  []byte           // those it made
	remarks int              // comments that came

	deltas api.Deltas
	typed  api.Events // of a stream of Responses
	sink   api.AnswerSink
	last   time.Time // when the last event came
	failed error     // why the replica's side ended early
	torn   bool      // the stream ended within an event that had been passed on in part
	ended  bool      // the replica's side came to its proper end

	read     api.Response // of a whole answer
	finished bool
}

// byteOrderMark may stand before a stream's first line.
var byteOrderMark = []byte{0xEF, 0xBB, 0xBF}

var (
	relayBuffers = sync.Pool{New: func() any { b := make([]byte, relayBuffer); return &b }}
	framers      = sync.Pool{New: func() any { return new(sse.Framer) }}
)

// watch makes the relay follow an event stream.
func (a *relay) watch() {
	r := a.r
	a.stream, r.x.stream = true, true
	a.framer = framers.Get().(*sse.Framer)
	switch r.ask.Endpoint {
	case api.Chat, api.Completions, api.Responses, api.Messages:
		if r.ask.N == 1 {
			a.sink = r.job.Answer()
		}
	}
	names := r.names()
	opts := sse.Options{DropUsage: r.usage, Model: names.Model, Of: names.Of, Tag: names.Tag, Previous: names.Previous}
	switch opts.Typed = r.ask.Endpoint.Shape() == api.Typed; {
	case opts.Typed:
		opts.OnData = func(payload []byte) {
			named := a.typed.ID != ""
			if a.typed.Read(payload, a.sink); !named && a.typed.ID != "" {
				r.job.Named(a.typed.ID)
			}
		}
	case a.sink != nil:
		switch {
		case r.native:
			opts.OnData = func(payload []byte) { a.deltas.ReadEvent(payload, a.sink) }
		case r.chat != nil:
			opts.OnData = func(payload []byte) { a.deltas.Read(payload, a.sink) }
		default:
			opts.OnChunk = func(payload []byte) (from, to int) { return a.deltas.Read(payload, a.sink) }
			opts.OnText = func(inner []byte, escaped bool) { a.deltas.Text(inner, escaped, a.sink) }
		}
	}
	if r.chat != nil {
		a.message = messages.NewStream(r.chat.asked, r.family())
		opts.DropUsage = true // nothing of an event is passed on before the whole is there
		watch := opts.OnData
		opts.OnData = func(payload []byte) {
			if watch != nil {
				watch(payload)
			}
			a.events = a.message.Event(a.events, payload)
		}
	}
	a.framer.Reset(opts)
}

// load reads a whole answer as far as it is kept; a longer one is relayed from
// there.
func (a *relay) load() *failure {
	r := a.r
	if r.legs != nil {
		r.answered()
	}
	ep := r.ask.Endpoint
	// What is kept may be shown without a body, but where nothing else tells its end.
	plain := ep == api.Other || ep == api.Stored && r.x.body.kind != bodyUntilClose
	a.json = !a.encoded && !plain && meansJSON(r.x.resp.ContentType())
	limit := r.s.limits.UsageBytes
	names := r.names()
	if r.chat != nil || names.Tag != "" {
		limit = maxTranslated
	}
	b, err := readBounded(&r.x, limit)
	a.ahead = b
	switch {
	case err == nil:
		a.whole = true
	case !errors.Is(err, errTooLong):
		return r.unsent(err)
	case r.chat != nil:
		return broken("answer_too_long", false)
	}
	if names.Any() && r.chat == nil && !a.encoded {
		a.ahead = api.Rewrite(b, names)
	}
	if !a.whole {
		a.keep(b)
		return nil
	}
	if r.ask.N == 1 {
		a.sink = r.job.Answer()
	}
	a.read = api.ReadResponse(b, r.family(), a.sink)
	if a.read.ID != "" && ep == api.Responses {
		r.job.Named(a.read.ID)
	}
	if a.json && !a.read.Object {
		return broken("bad_response", true)
	}
	if a.read.Error && r.x.resp.StatusCode() < 300 {
		return a.refusal(b)
	}
	if r.chat != nil {
		return a.toMessage(b)
	}
	return nil
}

// size is the length of the body as the client will see it, -1 when it is not
// known. A stream's length never is: engines have been wrong about it.
func (a *relay) size() int {
	if a.stream {
		return -1
	}
	if n := a.r.x.body.size(); n >= 0 {
		return len(a.ahead) + int(n)
	}
	return -1
}

// next returns the next piece for the client, with an error when the replica's
// side has ended: io.EOF for a proper end. The slice is valid until the next call.
func (a *relay) next() ([]byte, error) {
	x := &a.r.x
	if a.stream && a.framer.Done() {
		x.waits.idle, x.started = min(x.waits.idle, goodbye), true
	}
	for {
		if a.stream && x.idle() {
			a.rest()
			if err := x.wait(); err != nil {
				return nil, err
			}
		}
		if a.buf == nil {
			a.buf = relayBuffers.Get().(*[]byte)
		}
		n, err := x.Read(*a.buf)
		p := (*a.buf)[:n]
		if !a.stream {
			a.keep(p)
			if err == io.EOF && a.json && x.body.kind == bodyUntilClose && !bytes.HasSuffix(bytes.TrimSpace(a.tail), []byte("}")) {
				err = io.ErrUnexpectedEOF
			}
			return p, err
		}
		if n > 0 {
			events := a.framer.Events()
			var ferr error
			p, ferr = a.framer.Feed(p)
			if a.message != nil {
				p = a.made()
			}
			if a.framer.Events() > events {
				a.event()
			}
			if ferr != nil {
				return p, ferr
			}
		}
		if err != nil && err != io.EOF && a.framer.Done() {
			// The answer is whole; what is missing is the end of its framing.
			x.reusable = false
			return p, io.EOF
		}
		if err == io.EOF {
			if a.runsOn() {
				x.body.kind, x.reusable = bodyUntilClose, false
				err = nil
			} else {
				a.torn = a.torn || !a.framer.Between()
				p = bytes.Clone(p)
				rest := a.framer.End()
				if a.cutShort() || a.unended() {
					return p, io.ErrUnexpectedEOF
				}
				if a.message != nil {
					if rest, err = a.ends(); err != nil {
						return append(p, rest...), err
					}
				}
				return append(p, rest...), io.EOF
			}
		}
		if len(p) > 0 || err != nil {
			return p, err
		}
	}
}

// event notes that an event has come.
func (a *relay) event() {
	if a.framer.Leading() == a.framer.Events() {
		return // the answer is still waited for
	}
	a.r.x.started = true
	if a.framer.FirstIsError() {
		return // no token came
	}
	a.last = a.r.s.core.now()
	if a.r.first == 0 {
		a.r.first = time.Since(a.r.began)
		if a.r.ask.Endpoint != api.Stored {
			a.r.s.metrics.ttft.WithLabelValues(a.r.pool).Observe(a.r.first.Seconds())
			a.r.job.toldFirst(a.r.first)
		}
		a.r.job.First()
		if a.r.legs != nil {
			a.r.answered()
		}
	}
}

// SupportsBodyWriteTo lets the HTTP server hand each piece on as it comes.
func (a *relay) SupportsBodyWriteTo() bool { return true }

// WriteTo relays the rest of the answer: one Write per piece.
func (a *relay) WriteTo(w io.Writer) (n int64, err error) {
	defer func() {
		if p := recover(); p != nil {
			a.r.s.panicked(p)
			a.failed, err = errBroken, errBroken
		}
	}()
	h := &a.r.heart
	if a.r.phase = phaseStreaming; h.w != nil {
		a.ahead = bytes.TrimPrefix(a.ahead, byteOrderMark) // a stream begins but once
	}
	a.r.releaseBody()
	h.w, h.answer = w, a
	write := func(p []byte) bool {
		if len(p) == 0 {
			return true
		}
		m, werr := w.Write(p)
		n += int64(m)
		if werr != nil {
			err, h.stall = errClientGone, timedOut(werr)
		} else if h.every > 0 {
			h.start(time.Now())
		}
		return werr == nil
	}
	if a.stream && a.framer.Done() {
		a.r.place.Leave()
	}
	if !write(a.ahead) {
		return n, err
	}
	a.ahead = nil
	for a.failed == nil {
		p, rerr := a.next()
		if rerr != nil || a.stream && a.framer.Done() {
			a.r.place.Leave() // before the client can know that this was the end
		}
		if !write(p) {
			return n, err
		}
		if rerr == io.EOF {
			a.ended = true
			return n, nil
		}
		a.failed = rerr
	}
	if a.stream && !errors.Is(a.failed, errClientGone) && a.framer.Between() && !a.torn && a.framer.Error() == nil {
		write(a.goodbye())
	}
	return n, errBroken
}

// Read is there for the HTTP server's interface; it uses WriteTo.
func (a *relay) Read([]byte) (int, error) { return 0, errBroken }

// CloseWithError is called by the HTTP server when the answer has been written,
// with what went wrong.
func (a *relay) CloseWithError(err error) error {
	defer func() {
		if p := recover(); p != nil {
			a.r.s.panicked(p)
			a.r.end(api.Internal().Status)
		}
	}()
	a.finish(err)
	return nil
}

// keep remembers the end of a long answer.
func (a *relay) keep(p []byte) {
	if len(p) >= tailBytes {
		a.tail = append(a.tail[:0], p[len(p)-tailBytes:]...)
		return
	}
	if n := len(a.tail) + len(p) - tailBytes; n > 0 {
		a.tail = a.tail[:copy(a.tail, a.tail[n:])]
	}
	if a.tail == nil {
		a.tail = make([]byte, 0, tailBytes)
	}
	a.tail = append(a.tail, p...)
}
