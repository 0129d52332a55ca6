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
// announced size, negative for one in chunks. The body is valid until freeBody.
func (c *clientConn) readBody(size int64) ([]byte, error) {
	switch limit := c.limits.BodyBytes; {
	case size == 0:
		return nil, nil
	case size < 0:
		body := buffer{limit: limit + 1, charge: c.charge, pool: c.bodies}
		return c.own(&body, c.readChunks(&body))
	case size > int64(limit):
		return nil, fasthttp.ErrBodyTooLarge
	case size == int64(len(c.ahead)): // a short one comes with its head
		c.body, c.ahead = c.ahead, nil
		return c.body, nil
	}
	body := buffer{limit: int(size), charge: c.charge, pool: c.bodies}
	return c.own(&body, c.readSized(&body))
}

// own keeps what was read of a body, or gives it back.
func (c *clientConn) own(body *buffer, err error) ([]byte, error) {
	if err != nil {
		body.drop()
		return nil, err
	}
	c.body = body.b
	return body.b, nil
}

// readSized reads as many bytes as the limit says.
func (c *clientConn) readSized(body *buffer) error {
	for len(body.b) < body.limit {
		if len(body.room()) == 0 {
			if err := body.grow(max(bodyGrowth*len(body.b), bodyStart)); err != nil {
				return err
			}
		}
		n, err := c.receive(body.room())
		if body.b = body.b[:len(body.b)+n]; err != nil && len(body.b) < body.limit {
			return unexpected(err)
		}
	}
	return nil
}

// readChunks reads a body that comes in chunks. The limit is one byte more than it
// may have.
func (c *clientConn) readChunks(body *buffer) error {
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
	for {
		if len(body.room()) == 0 {
			if err := body.grow(max(2*len(body.b), bodyStart)); err != nil {
				return err
			}
		}
		n, err := in.Read(body.room())
		switch body.b = body.b[:len(body.b)+n]; {
		case len(body.b) == body.limit:
			return fasthttp.ErrBodyTooLarge
		case err == io.EOF:
			body.trim()
			return nil
		case err != nil:
			return err
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

// buffer gathers bytes, in memory of the pool. It charges memory before it takes it.
type buffer struct {
	b      []byte
	limit  int // bytes
	charge func(n int64) bool
	pool   *bodyPool
}

// room is where the next bytes go.
func (b *buffer) room() []byte { return b.b[len(b.b):min(cap(b.b), b.limit)] }

// grow makes room for size bytes in all, or for as many as the limit allows.
func (b *buffer) grow(size int) error {
	size = min(size, b.limit)
	if size <= cap(b.b) {
		return nil
	}
	_, size = bodyClass(size)
	if !b.charge(int64(size - cap(b.b))) {
		return errBudget
	}
	b.move(size)
	return nil
}

// move puts the bytes into another buffer.
func (b *buffer) move(size int) {
	old := b.b
	b.b = append(b.pool.get(size), old...)
	b.pool.put(old)
}

// trim puts the bytes into memory of their size where much was left over: a body may
// be held for minutes.
func (b *buffer) trim() {
	if spare := cap(b.b) - len(b.b); spare > len(b.b)/8 && spare > 1<<10 {
		had := cap(b.b)
		b.move(len(b.b))
		b.charge(int64(cap(b.b) - had))
	}
}

// drop gives the memory back. What is charged stays so.
func (b *buffer) drop() {
	b.pool.put(b.b)
	b.b = nil
}
