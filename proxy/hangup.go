package proxy

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"
)

// notifier is a connection that tells by itself when its peer has gone. f is
// called at most once, from any goroutine, and must not block; the returned
// function disarms it.
type notifier interface {
	OnHangup(f func()) (disarm func())
}

// watcher learns that peers of accepted connections have closed or reset them
// while nobody reads. run blocks until ctx ends; add and remove are safe for
// concurrent use, before, during and after run.
type watcher interface {
	add(h *hangup) error
	remove(h *hangup)
	run(ctx context.Context) error
	close()
}

// hangup is one accepted connection's place in a watcher. It calls the armed
// function once when the peer has gone; a function armed later than that is
// called from within arm.
type hangup struct {
	raw syscall.RawConn
	fd  int32
	gen uint32 // tells this connection from earlier ones with the same fd

	mu   sync.Mutex
	gone bool   // guarded by mu
	f    func() // guarded by mu
	id   uint64 // guarded by mu; which arming f belongs to
}

// arm sets the function to call when the peer goes. One is armed at a time.
func (h *hangup) arm(f func()) (disarm func()) {
	h.mu.Lock()
	if h.gone {
		h.mu.Unlock()
		f()
		return func() {}
	}
	h.f = f
	h.id++
	id := h.id
	h.mu.Unlock()
	return func() {
		h.mu.Lock()
		if h.id == id {
			h.f = nil
		}
		h.mu.Unlock()
	}
}

// fire notes that the peer has gone.
func (h *hangup) fire() {
	h.mu.Lock()
	f := h.f
	h.gone, h.f = true, nil
	h.mu.Unlock()
	if f != nil {
		f()
	}
}

// armed reports whether somebody waits for this peer to go.
func (h *hangup) armed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.f != nil && !h.gone
}

// unwrap finds, under c and the connections it wraps (TLS), one that notifies by
// itself or one with a descriptor. Both are nil when there is neither.
func unwrap(c net.Conn) (notifier, syscall.RawConn) {
	for {
		if n, ok := c.(notifier); ok {
			return n, nil
		}
		if s, ok := c.(syscall.Conn); ok {
			if raw, err := s.SyscallConn(); err == nil {
				return nil, raw
			}
		}
		w, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil, nil
		}
		c = w.NetConn()
	}
}

// pollInterval is how often the fallback watcher looks at each armed connection.
const pollInterval = 250 * time.Millisecond

// pollWatcher is the watcher for systems without one of their own: it peeks at
// every connection that somebody waits on, four times a second.
type pollWatcher struct {
	mu    sync.Mutex
	conns map[*hangup]struct{} // guarded by mu
}

func newPollWatcher() *pollWatcher {
	return &pollWatcher{conns: make(map[*hangup]struct{})}
}

func (w *pollWatcher) add(h *hangup) error {
	w.mu.Lock()
	w.conns[h] = struct{}{}
	w.mu.Unlock()
	return nil
}

func (w *pollWatcher) remove(h *hangup) {
	w.mu.Lock()
	delete(w.conns, h)
	w.mu.Unlock()
}

func (w *pollWatcher) close() {}

func (w *pollWatcher) run(ctx context.Context) error {
	t := time.NewTicker(pollInterval)
	defer t.Stop()
	var armed []*hangup
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		armed = armed[:0]
		w.mu.Lock()
		for h := range w.conns {
			if h.armed() {
				armed = append(armed, h)
			}
		}
		w.mu.Unlock()
		for _, h := range armed {
			if peerClosed(h.raw) {
				h.fire()
			}
		}
	}
}
