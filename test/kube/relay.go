package main

import (
	"context"
	"io"
	"net"
	"sync"
)

// relay stands between routers and the API server, and can be cut.
type relay struct {
	to string
	ln net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex
	down  bool              // guarded by mu
	conns map[net.Conn]bool // guarded by mu; of both sides
}

func newRelay(to string) (*relay, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{to: to, ln: ln, conns: map[net.Conn]bool{}}
	r.wg.Go(r.accept)
	return r, nil
}

func (r *relay) addr() string { return r.ln.Addr().String() }

func (r *relay) accept() {
	for {
		in, err := r.ln.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.join(in) })
	}
}

// keep notes a connection, unless the relay is cut.
func (r *relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.down {
		r.conns[c] = true
	}
	return !r.down
}

func (r *relay) drop(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
	_ = c.Close()
}

// join carries bytes both ways until one side ends.
func (r *relay) join(in net.Conn) {
	defer r.drop(in)
	if !r.keep(in) {
		return
	}
	out, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", r.to)
	if err != nil {
		return
	}
	defer r.drop(out)
	if !r.keep(out) {
		return
	}
	done := make(chan struct{}, 2)
	carry := func(a, b net.Conn) {
		_, _ = io.Copy(a, b)
		done <- struct{}{}
	}
	r.wg.Go(func() { carry(in, out) })
	r.wg.Go(func() { carry(out, in) })
	<-done
}

// cut ends all connections, and new ones at once, until mend.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = true
	for c := range r.conns {
		_ = c.Close()
	}
}

func (r *relay) mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = false
}

// close ends the relay and waits for what it started.
func (r *relay) close() {
	_ = r.ln.Close()
	r.cut()
	r.wg.Wait()
}
