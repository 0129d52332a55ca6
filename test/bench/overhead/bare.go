package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"sync"

	"github.com/valyala/fasthttp"
)

// runBare is the least that a proxy on the router's own foundation does, until ctx ends:
// fasthttp's server reads a request whole, it is sent over a kept connection, and the
// answer is handed on as it comes. Nothing is parsed, hashed, picked, watched, limited in
// time or counted. What it takes is the foundation's; what a router takes beyond is its
// own.
func runBare(ctx context.Context, ln net.Listener, engine string) error {
	b := &bare{engine: engine}
	defer b.close()
	server := &fasthttp.Server{
		Handler:                       b.serve,
		MaxRequestBodySize:            64 << 20,
		NoDefaultServerHeader:         true,
		NoDefaultContentType:          true,
		NoDefaultDate:                 true,
		DisableHeaderNamesNormalizing: true,
	}
	return serveEach(ctx, ln, func(c net.Conn) { _ = server.ServeConn(c) })
}

// bare keeps connections to the engine.
type bare struct {
	engine string

	mu    sync.Mutex
	idle  []*bareConn // guarded by mu
	ended bool        // guarded by mu
}

// bareConn is a connection to the engine, and the answer that is read from it.
type bareConn struct {
	net.Conn
	b    *bare
	in   *bufio.Reader
	head []byte
	body []byte
	resp fasthttp.ResponseHeader
}

func (b *bare) take() (*bareConn, error) {
	b.mu.Lock()
	if n := len(b.idle) - 1; n >= 0 {
		c := b.idle[n]
		b.idle = b.idle[:n]
		b.mu.Unlock()
		return c, nil
	}
	b.mu.Unlock()
	c, err := net.Dial("tcp", b.engine)
	if err != nil {
		return nil, err
	}
	return &bareConn{Conn: c, b: b, in: bufio.NewReaderSize(c, 8<<10)}, nil
}

func (b *bare) put(c *bareConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		_ = c.Close()
		return
	}
	b.idle = append(b.idle, c)
}

func (b *bare) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	for _, c := range b.idle {
		_ = c.Close()
	}
}

func (b *bare) serve(ctx *fasthttp.RequestCtx) {
	c, err := b.take()
	if err == nil {
		err = c.ask(ctx)
	}
	if err != nil {
		ctx.Error(err.Error(), fasthttp.StatusBadGateway)
	}
}

// ask sends the request and sets up the answer.
func (c *bareConn) ask(ctx *fasthttp.RequestCtx) error {
	body := ctx.Request.Body()
	h := append(c.head[:0], ctx.Method()...)
	h = append(append(append(h, ' '), ctx.RequestURI()...), " HTTP/1.1\r\nHost: "...)
	h = append(append(h, c.b.engine...), "\r\nContent-Length: "...)
	h = strconv.AppendInt(h, int64(len(body)), 10)
	c.head = append(h, "\r\nContent-Type: application/json\r\n\r\n"...)
	bufs := net.Buffers{c.head, body}
	if _, err := bufs.WriteTo(c.Conn); err != nil {
		return err
	}
	c.resp.Reset()
	if err := c.resp.Read(c.in); err != nil {
		return err
	}
	ctx.SetStatusCode(c.resp.StatusCode())
	ctx.Response.Header.SetContentTypeBytes(c.resp.ContentType())
	n := c.resp.ContentLength()
	if n < 0 {
		ctx.SetBodyStream(&bareStream{c: c, in: httputil.NewChunkedReader(c.in)}, -1)
		return nil
	}
	if cap(c.body) < n {
		c.body = make([]byte, n)
	}
	if _, err := io.ReadFull(c.in, c.body[:n]); err != nil {
		return err
	}
	ctx.SetBody(c.body[:n])
	c.b.put(c)
	return nil
}

// bareStream is an answer in chunks. The server has it written piece by piece.
type bareStream struct {
	c     *bareConn
	in    io.Reader
	piece [4 << 10]byte
}

// SupportsBodyWriteTo makes the server use WriteTo.
func (s *bareStream) SupportsBodyWriteTo() bool { return true }

func (s *bareStream) Read(p []byte) (int, error) { return s.in.Read(p) }

// WriteTo hands on the answer; each write is sent at once.
func (s *bareStream) WriteTo(w io.Writer) (n int64, err error) {
	for {
		k, err := s.in.Read(s.piece[:])
		if k > 0 {
			m, werr := w.Write(s.piece[:k])
			if n += int64(m); werr != nil {
				_ = s.c.Close()
				return n, werr
			}
		}
		switch {
		case err == io.EOF:
			if _, err = s.c.in.Discard(len("\r\n")); err == nil {
				s.c.b.put(s.c)
			}
			return n, err
		case err != nil:
			_ = s.c.Close()
			return n, err
		}
	}
}
