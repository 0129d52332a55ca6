package proxy

import (
	"bufio"
	"bytes"
	"io"

	"github.com/valyala/fasthttp"
)

// The HTTP server would take a body's whole announced size from memory before a
// byte of it has come, rounded up to a power of two, and keep its reader with it.
// So it is given heads only, and believes every request to have no body: bodies are
// read here.

// headEnd finds where a request's head ends in what a client sends: behind the first
// empty line that follows another one. The zero value is at a head's start.
type headEnd struct {
	line   int  // bytes of the present line so far
	cr     bool // the present line starts with CR
	begun  bool // the request line has come
	done   bool // the head has come
	fields int  // bytes behind the request line
}

// find returns how many of the next bytes belong to the head, or to empty lines
// before it.
func (e *headEnd) find(p []byte) int {
	for at := 0; at < len(p); {
		n := bytes.IndexByte(p[at:], '\n')
		line := p[at:]
		if n >= 0 {
			line = line[:n+1]
		}
		if e.line == 0 {
			e.cr = line[0] == '\r'
		}
		e.line += len(line)
		if e.begun {
			e.fields += len(line)
		}
		at += len(line)
		if n < 0 {
			break
		}
		empty := e.line == 1 || e.line == 2 && e.cr
		e.line = 0
		if empty && e.begun {
			e.done = true
			return at
		}
		e.begun = e.begun || !empty
	}
	return len(p)
}

// agrees reports whether the HTTP server has seen the head end where find has: raw
// is its header block. It is empty for a head that has no fields.
func (e *headEnd) agrees(raw []byte) bool {
	return e.done && (len(raw) == e.fields || len(raw) == 0 && e.fields <= len("\r\n"))
}

// noBody makes the HTTP server leave a request's body alone.
func noBody(h *fasthttp.RequestHeader) (none fasthttp.RequestConfig) {
	if h.ContentLength() != 0 {
		h.SetContentLength(0)
	}
	return none
}

const (
	// bodyStart is what a body's buffer starts with, bytes.
	bodyStart = 16 << 10
	// bodyGrowth is how far a buffer goes ahead of what has come of a body whose
	// size was announced. A client that sends nothing of it costs bodyStart.
	bodyGrowth = 8
)

// readBody reads a request's body whole, and nothing behind it. size is its
// announced size, negative for one in chunks.
func (c *clientConn) readBody(size int64) ([]byte, error) {
	switch limit := c.limits.BodyBytes; {
	case size == 0:
		return nil, nil
	case size < 0:
		return c.readChunks(limit)
	case size > int64(limit):
		return nil, fasthttp.ErrBodyTooLarge
	case size == int64(len(c.ahead)): // a short one comes with its head
		body := c.ahead
		c.ahead = nil
		return body, nil
	}
	body := buffer{limit: int(size), charge: c.charge}
	for len(body.b) < int(size) {
		if len(body.b) == cap(body.b) {
			if err := body.grow(max(bodyGrowth*len(body.b), bodyStart)); err != nil {
				return nil, err
			}
		}
		n, err := c.receive(body.b[len(body.b):cap(body.b)])
		if body.b = body.b[:len(body.b)+n]; err != nil && len(body.b) < int(size) {
			return nil, unexpected(err)
		}
	}
	return body.b, nil
}

// readChunks reads a body that comes in chunks.
func (c *clientConn) readChunks(limit int) ([]byte, error) {
	br := readers.Get().(*bufio.Reader)
	br.Reset(receiver{c})
	defer func() {
		if n := br.Buffered(); n > 0 { // the next request's
			held, _ := br.Peek(n)
			c.ahead = append(bytes.Clone(held), c.ahead...)
		}
		br.Reset(nil)
		readers.Put(br)
	}()
	in := chunkReader{br: br}
	body := buffer{limit: limit + 1, charge: c.charge}
	for {
		if len(body.b) == cap(body.b) {
			if err := body.grow(max(2*cap(body.b), bodyStart)); err != nil {
				return nil, err
			}
		}
		n, err := in.Read(body.b[len(body.b):cap(body.b)])
		switch body.b = body.b[:len(body.b)+n]; {
		case len(body.b) > limit:
			return nil, fasthttp.ErrBodyTooLarge
		case err == io.EOF:
			return body.trim(), nil
		case err != nil:
			return nil, err
		}
	}
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// receiver reads a connection's bytes whatever they are.
type receiver struct{ *clientConn }

func (r receiver) Read(p []byte) (int, error) { return r.receive(p) }

// buffer gathers bytes. It charges memory before it takes it.
type buffer struct {
	b      []byte
	limit  int // bytes
	charge func(n int64) bool
}

// grow makes room for size bytes in all, or for as many as the limit allows.
func (b *buffer) grow(size int) error {
	size = min(size, b.limit)
	if size <= cap(b.b) {
		return nil
	}
	if !b.charge(int64(size - cap(b.b))) {
		return errBudget
	}
	b.b = append(make([]byte, 0, size), b.b...)
	return nil
}

// trim returns the bytes, in memory of their size where much was left over: a body
// may be held for minutes.
func (b *buffer) trim() []byte {
	if spare := cap(b.b) - len(b.b); spare > len(b.b)/8 && spare > 1<<10 {
		b.charge(-int64(spare))
		b.b = append(make([]byte, 0, len(b.b)), b.b...)
	}
	return b.b
}
