package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
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

	onConnect func() // nil, or called when a connection is there

	resp     *fasthttp.ResponseHeader
	body     bodyReader
	touched  bool      // a byte of a response has come
	reusable bool      // framing allows the connection to be used again
	firstBy  time.Time // until when the first byte of the body must come
	started  bool      // a byte of the body has come
}

// send sends a request and reads the answer's head. When a reused connection turns
// out closed before a byte of an answer came, the request is sent once more on a
// new one: the replica had closed it while idle and has not read the request.
func (x *exchange) send(out *outgoing) error {
	err := x.try(out, false)
	if err == nil || x.call.cause() != nil {
		return err
	}
	if x.conn != nil && x.conn.reused && !x.touched && closedByPeer(err) {
		x.drop()
		return x.try(out, true)
	}
	return err
}

func (x *exchange) try(out *outgoing, fresh bool) error {
	if err := x.connect(fresh); err != nil {
		return err
	}
	if err := x.call.bind(x.conn.base); err != nil {
		return err
	}
	written := x.write(out)
	x.firstBy = x.call.until(time.Now(), x.waits.firstByte)
	if written != nil {
		// The replica may have answered early, 400 or 413 to a long body, and then
		// closed or read no more.
		x.firstBy = x.call.until(time.Now(), time.Second)
	}
	if err := x.readHead(); err != nil {
		if written != nil && !x.touched {
			return x.call.explain(written, errIdleTimeout)
		}
		return x.call.explain(err, errFirstByteTimeout)
	}
	if written != nil {
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
	if x.onConnect != nil {
		x.onConnect()
	}
	return nil
}

func (x *exchange) write(out *outgoing) error {
	c := x.conn
	var store [8][]byte
	batch, size := append(net.Buffers(store[:0]), out.head), len(out.head)
	flush := func() error {
		if err := c.SetWriteDeadline(x.call.until(time.Now(), x.waits.idle)); err != nil {
			return err
		}
		bufs := batch
		_, err := bufs.WriteTo(c.Conn) // one writev where the connection is plain TCP
		batch, size = batch[:0], 0
		return err
	}
	for _, p := range out.body {
		for len(p) > 0 {
			if size >= sendPiece {
				if err := flush(); err != nil {
					return err
				}
			}
			n := min(len(p), sendPiece-size)
			batch, size = append(batch, p[:n]), size+n
			p = p[n:]
		}
	}
	return flush()
}

// readHead reads the head of the final response, skipping interim ones.
func (x *exchange) readHead() error {
	c := x.conn
	if err := c.SetReadDeadline(x.firstBy); err != nil {
		return err
	}
	if _, err := c.br.Peek(1); err != nil {
		return err
	}
	x.touched = true
	if x.resp == nil {
		x.resp = &fasthttp.ResponseHeader{}
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
	x.body = bodyReader{br: c.br}
	switch {
	case status == fasthttp.StatusNoContent || status == fasthttp.StatusNotModified:
		x.body.kind, x.body.left = bodySized, 0
	case size >= 0:
		x.body.kind, x.body.left = bodySized, int64(size)
	case size == -1:
		x.body.kind, x.body.chunks = bodyChunked, chunkReader{br: c.br}
	default:
		x.body.kind, x.reusable = bodyUntilClose, false
	}
	return nil
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
			rest := io.MultiReader(bytes.NewReader(append([]byte(nil), held...)), x.conn.Conn)
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

// Read reads from the answer's body under the limits. It returns io.EOF only at
// the body's proper end. Errors are explained.
func (x *exchange) Read(p []byte) (int, error) {
	if x.conn == nil {
		return 0, net.ErrClosed
	}
	limit := errIdleTimeout
	if x.conn.br.Buffered() == 0 {
		d := x.firstBy
		if x.started {
			d = x.call.until(time.Now(), x.waits.idle)
		} else {
			limit = errFirstByteTimeout
		}
		if err := x.conn.SetReadDeadline(d); err != nil {
			return 0, x.call.explain(err, limit)
		}
	}
	n, err := x.body.Read(p)
	if n > 0 {
		x.started = true
	}
	if err != nil && err != io.EOF {
		err = x.call.explain(err, limit)
	}
	return n, err
}

// close ends the exchange: the connection goes back to its pool when the answer
// was read to its proper end, and is closed otherwise.
func (x *exchange) close() {
	if x.conn == nil {
		return
	}
	x.call.unbind()
	if x.reusable && x.body.done() && x.call.cause() == nil {
		x.pool.put(x.conn)
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

type bodyKind uint8

const (
	bodySized bodyKind = iota
	bodyChunked
	bodyUntilClose
)

// bodyReader reads a response body by its framing. Read returns io.EOF at the
// proper end only; a body that ends early is io.ErrUnexpectedEOF.
type bodyReader struct {
	br     *bufio.Reader
	kind   bodyKind
	left   int64 // of a sized body
	chunks chunkReader
	eof    bool // until close: the end was seen
}

// done reports whether the body has been read to its proper end.
func (b *bodyReader) done() bool {
	switch b.kind {
	case bodySized:
		return b.left == 0
	case bodyChunked:
		return b.chunks.done()
	}
	return b.eof
}

// size is the body's length, or -1 when it is not known beforehand.
func (b *bodyReader) size() int64 {
	if b.kind == bodySized {
		return b.left
	}
	return -1
}

func (b *bodyReader) Read(p []byte) (int, error) {
	switch b.kind {
	case bodySized:
		if b.left == 0 {
			return 0, io.EOF
		}
		n, err := b.br.Read(p[:min(int64(len(p)), b.left)])
		b.left -= int64(n)
		if err == io.EOF && b.left > 0 {
			err = io.ErrUnexpectedEOF
		}
		if b.left == 0 {
			err = nil
		}
		return n, err
	case bodyChunked:
		return b.chunks.Read(p)
	}
	n, err := b.br.Read(p)
	if err == io.EOF {
		b.eof = true
	}
	return n, err
}

// appendRequest appends a request head. path must be one of ours, never a
// client's; fields end with CRLF each.
func appendRequest(dst []byte, path, host string, fields []byte, size int) []byte {
	dst = append(dst, "POST "...)
	dst = append(dst, path...)
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	dst = append(dst, host...)
	dst = append(dst, "\r\nContent-Length: "...)
	dst = strconv.AppendInt(dst, int64(size), 10)
	dst = append(dst, "\r\n"...)
	dst = append(dst, fields...)
	return append(dst, "\r\n"...)
}
