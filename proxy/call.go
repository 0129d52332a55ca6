package proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Why a call was given up from outside.
var (
	errClientGone = errors.New("client went away")
	errShutdown   = errors.New("router is shutting down")
)

// timeoutError says which of the pool's time limits ended an attempt.
type timeoutError string

const (
	errConnectTimeout   timeoutError = "connect timeout"
	errFirstByteTimeout timeoutError = "first byte timeout"
	errIdleTimeout      timeoutError = "idle timeout"
	errTotalTimeout     timeoutError = "total timeout"
)

func (e timeoutError) Error() string { return string(e) }
func (e timeoutError) Timeout() bool { return true }

// call is what one client request may be waiting on. cancel ends the wait at once
// in every phase: a dial by its context, everything later by closing the upstream
// connection under it.
type call struct {
	ctx  context.Context
	stop context.CancelCauseFunc
	end  time.Time   // total limit; zero: none
	gone atomic.Bool // cancelled

	mu    sync.Mutex
	conn  net.Conn // guarded by mu; the upstream connection in use
	parts []*call  // guarded by mu; given up with it
}

func newCall() *call {
	ctx, stop := context.WithCancelCause(context.Background())
	return &call{ctx: ctx, stop: stop}
}

// cancel gives the call up. Safe from any goroutine, any number of times; the
// first cause counts. It does not block.
func (c *call) cancel(cause error) {
	c.gone.Store(true) // first: who sees the context end must find the cause
	c.stop(cause)
	c.mu.Lock()
	conn, parts := c.conn, c.parts
	c.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
	for _, p := range parts {
		p.cancel(cause)
	}
}

// part makes a call that can be given up alone, and is with c.
func (c *call) part() *call {
	ctx, stop := context.WithCancelCause(c.ctx)
	p := &call{ctx: ctx, stop: stop, end: c.end}
	c.mu.Lock()
	c.parts = append(c.parts[:len(c.parts):len(c.parts)], p)
	c.mu.Unlock()
	if cause := c.cause(); cause != nil {
		p.cancel(cause)
	}
	return p
}

// forget lets the parts go, which nothing waits on any more.
func (c *call) forget() {
	c.mu.Lock()
	parts := c.parts
	c.parts = nil
	c.mu.Unlock()
	for _, p := range parts {
		p.release()
	}
}

// cause is why the call was given up, or nil.
func (c *call) cause() error {
	if !c.gone.Load() {
		return nil
	}
	return context.Cause(c.ctx)
}

// bind makes conn the one that cancel closes; it fails when the call has been
// given up already.
func (c *call) bind(conn net.Conn) error {
	c.mu.Lock()
	c.conn = conn
	c.mu.Unlock()
	if err := c.cause(); err != nil {
		c.unbind()
		return err
	}
	return nil
}

func (c *call) unbind() {
	c.mu.Lock()
	c.conn = nil
	c.mu.Unlock()
}

// release frees what the call's context holds.
func (c *call) release() { c.stop(context.Canceled) }

// until is the deadline d from now, or the call's end when that is earlier.
func (c *call) until(now time.Time, d time.Duration) time.Time {
	t := now.Add(d)
	if !c.end.IsZero() && c.end.Before(t) {
		return c.end
	}
	return t
}

// explain turns an I/O error into the reason behind it: why the call was given
// up, or which limit passed.
func (c *call) explain(err error, limit timeoutError) error {
	if err == nil {
		return nil
	}
	if cause := c.cause(); cause != nil {
		return cause
	}
	if timedOut(err) || errors.Is(err, context.DeadlineExceeded) {
		if !c.end.IsZero() && !time.Now().Before(c.end) {
			return errTotalTimeout
		}
		return limit
	}
	return err
}

// withTimeout bounds a part of the call, within its total limit.
func withTimeout(c *call, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithDeadline(c.ctx, c.until(time.Now(), d))
}
