package proxy

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/hearsay-llm/hearsay/proxy/api"
)

// sendPiece is how much of a request body one write deadline covers.
const sendPiece = 256 << 10

// errBadResponse says that what a replica answered is no usable HTTP response.
var errBadResponse = errors.New("bad response")

// outgoing is a request as a replica gets it. The slices are only read.
type outgoing struct {
	head []byte // request line and headers, to the empty line included
	body [][]byte
}

// splice appends the pieces of body with edits made to it. Nothing is copied: a
// long prompt is not moved for the sake of a few bytes. Edits must not overlap and
// are sorted in place.
func splice(dst [][]byte, body []byte, edits []api.Edit) [][]byte {
	slices.SortStableFunc(edits, func(a, b api.Edit) int { return a.Span.Start - b.Span.Start })
	at := 0
	for _, e := range edits {
		if e.Span.Start > at {
			dst = append(dst, body[at:e.Span.Start])
		}
		if e.With != "" {
			dst = append(dst, []byte(e.With))
		}
		at = e.Span.End
	}
	if at < len(body) {
		dst = append(dst, body[at:])
	}
	return dst
}

// size is the length of the body.
func (o *outgoing) size() (n int) {
	for _, p := range o.body {
		n += len(p)
	}
	return n
}

// waits are the limits that roll while an exchange runs.
type waits struct {
	connect   time.Duration
	firstByte time.Duration // from the request sent to the first byte of the answer's body
	idle      time.Duration // between two pieces in either direction
}

// exchange is one request sent to one replica, and its answer. The exchange owns
// its connection until close.
type exchange struct {
	call  *call
	pool  *connPool
	conn  *upConn
	waits waits
	heart *heart // sounded while nothing comes; nil: none

	onConnect func() // nil, or called when a connection is there

	resp     *fasthttp.ResponseHeader
	body     bodyReader
	sent     bool      // the request is on its way, or did not get through
	written  error     // what sending it ended with
	touched  bool      // a byte of a response has come
	reusable bool      // framing allows the connection to be used again
	firstBy  time.Time // until when the first byte of the body must come
	started  bool      // the body has begun: for a stream, its first event has come
	stream   bool      // the body is one of events
	hasty    bool      // the replica is of a kind that closes connections after streams
}

// send sends a request and reads the answer's head. It returns errQuiet when the
// client is to hear something first, and goes on where it was when it is called
// again.
//
// When a reused connection turns out closed, and the replica has provably not read
// the request whole, it is sent once more on a new one: the replica had closed the
// connection while it was idle. That needs no judgement of what a request does. Proof
// is that not all of it could be written, or what unread says.
func (x *exchange) send(out *outgoing) error {
	err := x.try(out, false)
	if err == nil || err == errQuiet || x.call.cause() != nil {
		return err
	}
	if x.conn == nil || !x.conn.reused || x.touched || !closedByPeer(err) {
		return err
	}
	x.pool.learn(x.conn)
	if x.written == nil && !x.conn.unread(err) {
		return err
	}
	x.drop()
	x.sent = false
	return x.try(out, true)
}

func (x *exchange) try(out *outgoing, fresh bool) error {
	if !x.sent {
		if err := x.connect(fresh); err != nil {
			return err
		}
		if err := x.call.bind(x.conn.base); err != nil {
			return err
		}
		x.sent, x.written = true, x.write(out)
		x.firstBy = x.call.until(time.Now(), x.waits.firstByte)
		if x.written != nil {
			// The replica may have answered early, 400 or 413 to a long body, and then
			// closed or read no more.
			x.firstBy = x.call.until(time.Now(), time.Second)
		}
	}
	if err := x.readHead(); err != nil {
		switch {
		case err == errQuiet:
			return err
		case x.written != nil && !x.touched:
			return x.call.explain(x.written, errIdleTimeout)
		}
		return x.call.explain(err, errFirstByteTimeout)
	}
	if x.written != nil {
		x.reusable = false
	}
	return nil
}

func (x *exchange) connect(fresh bool) error {
	var c *upConn
	if !fresh {
		c = x.pool.take()
	}
	if c == nil {
		ctx, cancel := withTimeout(x.call, x.waits.connect)
		defer cancel()
		var err error
		if c, err = x.pool.dial(ctx); err != nil {
			return x.call.explain(err, errConnectTimeout)
		}
	}
	x.conn, x.touched = c, false
	c.heart = x.heart
	c.before = c.wrote
	if x.onConnect != nil {
		x.onConnect()
	}
	return nil
}

func (x *exchange) write(out *outgoing) error {
	b := batches.Get().(*batch)
	defer b.free()
	b.add(out.head)
	flush := func() error {
		defer b.clear()
		return x.conn.send(&b.bufs, x.call.until(time.Now(), x.waits.idle))
	}
	for _, p := range out.body {
		for len(p) > 0 {
			if b.size >= sendPiece {
				if err := flush(); err != nil {
					return err
				}
			}
			n := min(len(p), sendPiece-b.size)
			b.add(p[:n])
			p = p[n:]
		}
	}
	return flush()
}

// batch is what one call to the system writes.
type batch struct {
	bufs net.Buffers
	room [8][]byte // of most
	size int       // bytes
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) add(p []byte) {
	if b.size == 0 {
		b.bufs = b.room[:0]
	}
	b.bufs, b.size = append(b.bufs, p), b.size+len(p)
}

// clear forgets what was written.
func (b *batch) clear() {
	clear(b.room[:])
	b.bufs, b.size = nil, 0
}

func (b *batch) free() {
	b.clear()
	batches.Put(b)
}

// readHead reads the head of the final response, skipping interim ones.
func (x *exchange) readHead() error {
	c := x.conn
	c.by = x.firstBy
	if err := c.wait(); err != nil {
		return err
	}
	if _, err := c.reader().Peek(1); err != nil {
		return err
	}
	x.touched = true
	if c.reused {
		x.pool.good(c)
	}
	if x.resp == nil {
		x.resp = heads.Get().(*fasthttp.ResponseHeader)
	}
	for {
		if err := x.parseHead(); err != nil {
			return err
		}
		if x.resp.StatusCode() >= 200 {
			break
		}
		if x.resp.StatusCode() == fasthttp.StatusSwitchingProtocols {
			return errBadResponse
		}
	}
	h := x.resp
	status, size := h.StatusCode(), h.ContentLength()
	x.reusable = !h.ConnectionClose()
	x.body = bodyReader{}
	switch {
	case status == fasthttp.StatusNoContent || status == fasthttp.StatusNotModified:
		x.body.kind, x.body.left = bodySized, 0
	case size >= 0:
		x.body.kind, x.body.left = bodySized, int64(size)
	case size == -1:
		x.body.kind = bodyChunked
	default:
		x.body.kind, x.reusable = bodyUntilClose, false
	}
	return nil
}

// heads are those of answers.
var heads = sync.Pool{New: func() any { return new(fasthttp.ResponseHeader) }}

// freeHead gives the head up: nobody looks at the answer any more.
func (x *exchange) freeHead() {
	if x.resp != nil {
		x.resp.Reset()
		heads.Put(x.resp)
		x.resp = nil
	}
}

// parseHead parses one response head, with a larger reader when it needs one.
func (x *exchange) parseHead() error {
	for {
		x.resp.Reset()
		err := x.resp.Read(x.conn.br)
		var small *fasthttp.ErrSmallBuffer
		switch {
		case err == nil:
			return nil
		case errors.As(err, &small) && x.conn.br.Size() < maxHead:
			held, _ := x.conn.br.Peek(x.conn.br.Buffered())
			rest := io.MultiReader(bytes.NewReader(append([]byte(nil), held...)), x.conn)
			x.conn.br = bufio.NewReaderSize(rest, min(maxHead, 4*x.conn.br.Size()))
		case errors.Is(err, fasthttp.ErrTimeout), closedByPeer(err):
			return err
		default:
			var ne net.Error
			if errors.As(err, &ne) {
				return err
			}
			return errBadResponse
		}
	}
}

// wait blocks, under the limits, until the next Read will not. Nothing is held
// for reading meanwhile, nor by a caller who gives its buffer back before. Its error
// is errQuiet or nil.
func (x *exchange) wait() error {
	x.limit()
	return x.conn.wait()
}

// idle reports whether a Read would have to wait for the replica.
func (x *exchange) idle() bool {
	return x.conn != nil && x.conn.pending() == 0 && x.conn.err == nil && !x.body.done()
}

// Read reads from the answer's body under the limits. It returns io.EOF only at
// the body's proper end. Errors are explained.
func (x *exchange) Read(p []byte) (int, error) {
	if x.conn == nil {
		return 0, net.ErrClosed
	}
	if x.idle() {
		x.limit()
	}
	x.body.br = x.conn.reader()
	n, err := x.body.Read(p)
	if n > 0 && !x.stream {
		x.started = true
	}
	if err != nil && err != io.EOF {
		err = x.explain(err)
	}
	return n, err
}

// limit sets the time by which the replica must send something.
func (x *exchange) limit() {
	x.conn.by = x.firstBy
	if x.started {
		x.conn.by = x.call.until(time.Now(), x.waits.idle)
	}
}

// explain turns what reading the body ended with into the reason behind it.
func (x *exchange) explain(err error) error {
	if x.started {
		return x.call.explain(err, errIdleTimeout)
	}
	return x.call.explain(err, errFirstByteTimeout)
}

// close ends the exchange: the connection goes back to its pool when the answer
// was read to its proper end, and is closed otherwise.
func (x *exchange) close() {
	if x.conn == nil {
		return
	}
	x.call.unbind()
	if x.reusable && x.body.done() && x.call.cause() == nil {
		x.conn.streamed = x.body.kind == bodyChunked
		x.pool.put(x.conn, x.hasty)
	} else {
		x.pool.discard(x.conn)
	}
	x.conn = nil
}

// drop closes the connection whatever its state.
func (x *exchange) drop() {
	x.reusable = false
	x.close()
}

// closedByPeer reports whether err says that the other side closed the connection.
func closedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}

// appendRequest appends a request head; a method of "" is POST, and others have no body.
// path must be one of ours, never a client's; fields end with CRLF each.
func appendRequest(dst []byte, method, path, host string, fields []byte, size int) []byte {
	dst = append(dst, cmp.Or(method, "POST")...)
	dst = append(dst, ' ')
	dst = append(dst, path...)
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	dst = append(dst, host...)
	dst = append(dst, "\r\n"...)
	if method == "" || method == "POST" {
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, int64(size), 10)
		dst = append(dst, "\r\n"...)
	}
	dst = append(dst, fields...)
	return append(dst, "\r\n"...)
}
