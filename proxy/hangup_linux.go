package proxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// epollWatcher watches all accepted connections with one epoll set and one
// goroutine: EPOLLRDHUP, edge-triggered, so that unread pipelined bytes do not
// wake it. The set's own descriptor is polled by the runtime, so no thread waits.
type epollWatcher struct {
	file *os.File
	ep   int
	gen  atomic.Uint32

	mu     sync.RWMutex
	conns  map[int32]*hangup // guarded by mu
	closed bool              // guarded by mu
}

func newWatcher() (watcher, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return newPollWatcher(), nil
	}
	if err := unix.SetNonblock(ep, true); err != nil {
		_ = unix.Close(ep)
		return nil, fmt.Errorf("epoll set: %w", err)
	}
	return &epollWatcher{
		file:  os.NewFile(uintptr(ep), "hangup"),
		ep:    ep,
		conns: make(map[int32]*hangup),
	}, nil
}

func (w *epollWatcher) add(h *hangup) error {
	h.gen = w.gen.Add(1)
	var ctl error
	err := h.raw.Control(func(fd uintptr) {
		h.fd = int32(fd)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.closed {
			ctl = os.ErrClosed
			return
		}
		ev := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: h.fd, Pad: int32(h.gen)}
		if ctl = unix.EpollCtl(w.ep, unix.EPOLL_CTL_ADD, int(fd), &ev); ctl == nil {
			w.conns[h.fd] = h
		}
	})
	return errors.Join(err, ctl)
}

// remove must come before the descriptor is closed, which takes it out of the set.
func (w *epollWatcher) remove(h *hangup) {
	w.mu.Lock()
	if w.conns[h.fd] == h {
		delete(w.conns, h.fd)
	}
	w.mu.Unlock()
}

func (w *epollWatcher) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	_ = w.file.Close()
}

func (w *epollWatcher) run(ctx context.Context) error {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch connections: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = w.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	events := make([]unix.EpollEvent, 256)
	for ctx.Err() == nil {
		n := 0
		var wait error
		err := raw.Read(func(fd uintptr) bool {
			n, wait = unix.EpollWait(int(fd), events, 0)
			if wait == unix.EINTR {
				n, wait = 0, nil
			}
			return n > 0 || wait != nil
		})
		if err := errors.Join(err, wait); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watch connections: %w", err)
		}
		for _, ev := range events[:n] {
			w.mu.RLock()
			h := w.conns[ev.Fd]
			w.mu.RUnlock()
			if h != nil && h.gen == uint32(ev.Pad) {
				h.fire()
			}
		}
	}
	return nil
}

// setUserTimeout ends a connection whose peer has acknowledged nothing for d, so
// that a peer that vanished without a FIN is noticed too.
func setUserTimeout(fd uintptr, d time.Duration) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
}
