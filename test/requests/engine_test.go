package requests

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// call is a request as a fake engine got it.
type call struct {
	line   string // the request line
	raw    string // the head as it came, with its empty line
	fields textproto.MIMEHeader
	body   []byte
	conn   net.Conn
	nth    int // of the calls at this engine, from 1
}

// path is what the request line asks for.
func (c *call) path() string {
	parts := strings.Split(c.line, " ")
	if len(parts) != 3 {
		return c.line
	}
	return parts[1]
}

// write sends exactly these bytes.
func (c *call) write(s string) bool {
	_, err := io.WriteString(c.conn, s)
	return err == nil
}

// engine is a fake engine on a socket of its own. It records calls (POSTs; what
// routers read of it is answered with 404, which shows that it lives) and leaves the
// answer's bytes to answer, which reports whether the connection goes on.
type engine struct {
	url    string
	ln     net.Listener
	answer func(*call) bool

	wg    sync.WaitGroup
	mu    sync.Mutex
	got   []*call           // guarded by mu
	conns map[net.Conn]bool // guarded by mu
	bad   []string          // guarded by mu; requests whose framing the engine can't follow
}

func newEngine(t testing.TB, w wire, name string, answer func(*call) bool) *engine {
	t.Helper()
	ln, addr := w.listen(t, name)
	e := &engine{url: "http://" + addr, ln: ln, answer: answer, conns: map[net.Conn]bool{}}
	e.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.conns[c] = true
			e.mu.Unlock()
			e.wg.Go(func() { e.serve(c) })
		}
	})
	return e
}

func (e *engine) stop() {
	_ = e.ln.Close()
	e.mu.Lock()
	for c := range e.conns {
		_ = c.Close()
	}
	e.mu.Unlock()
	e.wg.Wait()
}

func (e *engine) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		e.mu.Lock()
		delete(e.conns, c)
		e.mu.Unlock()
	}()
	br := bufio.NewReader(c)
	for {
		in, err := readCall(br)
		if err != nil {
			if err != io.EOF {
				e.mu.Lock()
				e.bad = append(e.bad, err.Error())
				e.mu.Unlock()
			}
			return
		}
		in.conn = c
		if !strings.HasPrefix(in.line, "POST ") {
			if !in.write("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") {
				return
			}
			continue
		}
		e.mu.Lock()
		e.got = append(e.got, in)
		in.nth = len(e.got)
		e.mu.Unlock()
		if !e.answer(in) {
			return
		}
	}
}

// readCall reads one request, strictly: a router sends no chunks, one length, and
// lines that end with CRLF.
func readCall(br *bufio.Reader) (*call, error) {
	var head bytes.Buffer
	for !bytes.HasSuffix(head.Bytes(), []byte("\r\n\r\n")) {
		line, err := br.ReadBytes('\n')
		if err != nil {
			if head.Len() == 0 && len(line) == 0 {
				return nil, io.EOF
			}
			if isReset(err) {
				return nil, io.EOF
			}
			return nil, fmt.Errorf("head ends in %q: %w", line, err)
		}
		head.Write(line)
	}
	in := &call{raw: head.String()}
	in.line, _, _ = strings.Cut(in.raw, "\r\n")
	fields, err := textproto.NewReader(bufio.NewReader(strings.NewReader(in.raw[len(in.line)+2:]))).ReadMIMEHeader()
	if err != nil {
		return nil, fmt.Errorf("head %q: %w", in.raw, err)
	}
	in.fields = fields
	if len(fields["Transfer-Encoding"]) > 0 || len(fields["Content-Length"]) > 1 {
		return nil, fmt.Errorf("framing of %q", in.raw)
	}
	size, err := strconv.Atoi("0" + fields.Get("Content-Length"))
	if err != nil {
		return nil, fmt.Errorf("length of %q: %w", in.raw, err)
	}
	in.body = make([]byte, size)
	if _, err := io.ReadFull(br, in.body); err != nil {
		return nil, fmt.Errorf("body of %d bytes: %w", size, err)
	}
	return in, nil
}

func isReset(err error) bool {
	return strings.Contains(err.Error(), "reset") || strings.Contains(err.Error(), "closed")
}

// calls are those so far.
func (e *engine) calls() []*call {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*call(nil), e.got...)
}

// Answers.

const (
	good = `{"id":"c1","object":"chat.completion","model":"llama","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`

	role       = `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	word       = `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}` + "\n\n"
	finish     = `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	usageChunk = `data: {"id":"c1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}` + "\n\n"
	done       = "data: [DONE]\n\n"

	streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	lastChunk  = "0\r\n\r\n"
)

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// answered is a whole response with a body.
func answered(status int, contentType, body string, fields ...string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n%s",
		status, contentType, len(body), strings.Join(append(fields, ""), "\r\n"), body)
}

func jsonAnswer(status int, body string, fields ...string) string {
	return answered(status, "application/json", body, fields...)
}

// says answers every call with the same bytes and keeps the connection.
func says(s string) func(*call) bool { return func(c *call) bool { return c.write(s) } }

// events is a stream of these events, one chunk each.
func events(list ...string) string {
	var b strings.Builder
	b.WriteString(streamHead)
	for _, e := range list {
		b.WriteString(chunk(e))
	}
	b.WriteString(lastChunk)
	return b.String()
}

// script is an engine's part that the test writes as it goes.
type script struct {
	mu    sync.Mutex
	bytes string // guarded by mu
	keep  bool   // guarded by mu
}

// next sets the answer to the calls from here on, and whether the connection goes on
// behind it.
func (s *script) next(bytes string, keep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes, s.keep = bytes, keep
}

func (s *script) answer(c *call) bool {
	s.mu.Lock()
	bytes, keep := s.bytes, s.keep
	s.mu.Unlock()
	return c.write(bytes) && keep
}

// serves answers as an engine does: a stream where one is asked for, with usage
// where that is asked for, and JSON otherwise.
func serves(c *call) bool {
	if !bytes.Contains(c.body, []byte(`"stream":true`)) {
		return c.write(jsonAnswer(200, good))
	}
	list := []string{role, word, finish}
	if bytes.Contains(c.body, []byte(`"include_usage":true`)) {
		list = append(list, usageChunk)
	}
	return c.write(events(append(list, done)...))
}
