package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
)

// incoming is a request as a fake engine got it.
type incoming struct {
	*http.Request
	body []byte
	conn net.Conn
	br   *bufio.Reader
	n    int // number on its connection, from 1
}

// write sends exactly these bytes.
func (in *incoming) write(s string) error {
	_, err := io.WriteString(in.conn, s)
	return err
}

// gone blocks until the other side has closed.
func (in *incoming) gone() { _, _ = in.br.ReadByte() }

// engine is a fake engine: it reads requests with a lenient parser, records them,
// and leaves the answer to handle, which says whether the connection goes on.
type engine struct {
	name   string
	url    string
	ln     net.Listener
	handle func(in *incoming) (keep bool)

	wg     sync.WaitGroup
	mu     sync.Mutex
	bodies []string
	heads  []http.Header
	paths  []string
	conns  map[net.Conn]bool
	dials  int
	closes int // handlers that saw the other side close
}

func newEngine(w wire, name string, handle func(in *incoming) bool) *engine {
	e := &engine{name: name, ln: w.listen(name), handle: handle, conns: map[net.Conn]bool{}}
	addr := e.ln.Addr().String()
	if _, ok := w.(sim); ok {
		addr = name + ":80"
	}
	e.url = "http://" + addr
	e.wg.Go(func() {
		for {
			c, err := e.ln.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.conns[c] = true
			e.dials++
			e.mu.Unlock()
			e.wg.Go(func() { e.serve(c) })
		}
	})
	return e
}

func (e *engine) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		e.mu.Lock()
		delete(e.conns, c)
		e.mu.Unlock()
	}()
	br := bufio.NewReader(c)
	for n := 1; ; n++ {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		e.mu.Lock()
		e.bodies = append(e.bodies, string(body))
		e.heads = append(e.heads, req.Header)
		e.paths = append(e.paths, req.URL.Path)
		e.mu.Unlock()
		if !e.handle(&incoming{req, body, c, br, n}) {
			return
		}
	}
}

// waitGone notes that the handler saw the other side close.
func (e *engine) waitGone(in *incoming) {
	in.gone()
	e.mu.Lock()
	e.closes++
	e.mu.Unlock()
}

func (e *engine) seen() (n int, closes int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.bodies), e.closes
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
