package proxy

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// States of a client connection, as far as shutdown and deadlines care.
const (
	connNew    int32 = iota // accepted, nothing read yet
	connActive              // a request is being read or answered
	connIdle                // kept alive between requests
	connClosed              // claimed by shutdown
)

// writePiece bounds what one write deadline covers, so that a slow but living
// client is never cut while it makes progress.
const writePiece = 64 << 10

// firstSize holds a small request. The HTTP server waits for the next request with
// room for one byte. It is less than bodyLeast: what lies there is never given to others.
const firstSize = 1 << 10

// clientConn is an accepted connection. It rolls its own deadlines, since those of
// the HTTP server are absolute and would cut healthy streams: every read of a
// request and every 64 KiB written have so much time. It knows when its peer has
// gone. Read and Write are called from the goroutine that serves it.
type clientConn struct {
	net.Conn
	limits   *Limits
	watch    watcher // nil when nobody watches it
	hang     hangup
	notify   notifier // the connection's own word, instead of a watcher
	accepted time.Time
	head     headEnd         // of the request now being read; the serving goroutine's
	ahead    []byte          // came behind it and is not read yet; the serving goroutine's
	first    [firstSize]byte // where a request's first bytes come
	began    time.Time       // when the request now being read began; the serving goroutine's
	reading  bool            // a request is being read, not answered; the serving goroutine's
	rest     time.Time       // until when a request may be waited for; zero: for ever. The serving goroutine's
	readBy   limit           // the serving goroutine's
	writeBy  limit           // the serving goroutine's
	tls      bool            // it wraps another one: a write that was cut short can't be gone on with
	state    atomic.Int32
	closed   atomic.Bool
	budget   *budget
	bodies   *bodyPool
	body     []byte // of the request, until freeBody; the serving goroutine's
	held     int64  // bytes of the request charged to budget; the serving goroutine's
	over     bool   // the budget refused more; the serving goroutine's
	linger   bool   // unread bytes are expected when it closes; the serving goroutine's
}

// NetConn lets others find what is wrapped.
func (c *clientConn) NetConn() net.Conn { return c.Conn }

// OnHangup arms f for the time of one request; it is called at once when the peer
// has already gone. Without any means to know, f is never called.
func (c *clientConn) OnHangup(f func()) (disarm func()) {
	switch {
	case c.notify != nil:
		return c.notify.OnHangup(f)
	case c.watch != nil:
		return c.hang.arm(f)
	}
	return func() {}
}

// Read gives the HTTP server the next bytes of a request's head, and none of what
// follows it.
func (c *clientConn) Read(p []byte) (int, error) {
	if c.head.done {
		return 0, errHead
	}
	if len(c.ahead) == 0 && !c.reading && len(p) < firstSize {
		n, err := c.receive(c.first[:])
		if n == 0 {
			return 0, err
		}
		c.ahead = c.first[:n]
	}
	if len(c.ahead) > 0 {
		n := c.head.find(c.ahead[:min(len(p), len(c.ahead))])
		return c.receive(p[:n])
	}
	n, err := c.receive(p)
	if c.reading && !c.charge(int64(n)) {
		c.over = true
		return 0, errBudget
	}
	end := c.head.find(p[:n])
	if end < n {
		c.ahead = append(c.bodies.get(n-end), p[end:n]...)
	}
	return end, err
}

// errHead says that the HTTP server does not see a head's end where it is.
var errHead = errors.New("unclear end of a request's head")

// receive reads what the client sends, under the time limits of a request.
func (c *clientConn) receive(p []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(p, c.ahead)
		if n == len(c.ahead) {
			c.bodies.put(c.ahead)
			c.ahead = nil
		} else {
			c.ahead = c.ahead[n:]
		}
		return n, nil
	}
	by := c.rest
	if c.reading {
		by = time.Now().Add(c.limits.ReadStall)
		if end := c.began.Add(c.limits.ReadTotal); end.Before(by) {
			by = end
		}
	}
	for {
		if !c.readBy.serves(by) {
			if err := c.Conn.SetReadDeadline(by); err != nil {
				return 0, err
			}
			c.readBy.at = by
		}
		n, err := c.Conn.Read(p)
		if n > 0 || !c.readBy.early(err, by) {
			return n, err
		}
	}
}

// charge adds n bytes to what the request holds, if the budget allows them: it reports
// whether it does. Fewer are always allowed.
func (c *clientConn) charge(n int64) bool {
	if c.budget == nil {
		return true
	}
	if !c.budget.take(n) {
		return false
	}
	c.held += n
	return true
}

// freeBody gives back the request's body and what it was charged: it is needed no
// more.
func (c *clientConn) freeBody() {
	c.bodies.put(c.body)
	c.body = nil
	if c.held > 0 {
		c.budget.give(c.held)
		c.held = 0
	}
}

// errBudget says that all requests together hold too many bytes.
var errBudget = errors.New("too many request bytes held")

// budget bounds the bytes of requests held at a time. Safe for concurrent use.
type budget struct {
	limit int64
	used  atomic.Int64
}

// take charges n bytes, unless that is too much. What is refused holds up nobody else
// while the refusal is on its way.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) <= b.limit || n <= 0 {
		return true
	}
	b.used.Add(-n)
	return false
}

func (b *budget) give(n int64) { b.used.Add(-n) }

// SetReadDeadline is the HTTP server's wish. It has a say between requests only, and
// counts from the next read on.
func (c *clientConn) SetReadDeadline(t time.Time) error {
	if !c.reading {
		c.rest = t
	}
	return nil
}

func (c *clientConn) Write(p []byte) (n int, err error) {
	for {
		m, err := c.writeBefore(p[n:min(len(p), n+writePiece)], time.Now().Add(c.limits.WriteStall))
		if n += m; err != nil || n == len(p) {
			return n, err
		}
	}
}

// writeBefore writes p whole until then.
func (c *clientConn) writeBefore(p []byte, by time.Time) (n int, err error) {
	for {
		if c.tls || !c.writeBy.serves(by) {
			if err := c.SetWriteDeadline(by); err != nil {
				return n, err
			}
			c.writeBy.at = by
		}
		m, err := c.Conn.Write(p[n:])
		if n += m; !c.writeBy.early(err, by) {
			return n, err
		}
	}
}

func (c *clientConn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	if c.linger {
		c.lingerOn()
	}
	if c.watch != nil {
		c.watch.remove(&c.hang)
	}
	return c.Conn.Close()
}

// lingerTime is how long a refused client may go on sending.
const lingerTime = 2 * time.Second

// lingerOn says goodbye and drops what the client still sends. Closing at once
// would reset the connection and with it the answer that says what was wrong.
func (c *clientConn) lingerOn() {
	w, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || w.CloseWrite() != nil || c.Conn.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c.Conn)
}

// socket is what lies under c and the connections it wraps (TLS).
func socket(c net.Conn) net.Conn {
	for {
		w, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = w.NetConn()
	}
}

// reset closes the connection so that the client can't take what it got for whole:
// under TLS without the goodbye that says so.
func (c *clientConn) reset() {
	under := socket(c.Conn)
	if l, ok := under.(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0)
	}
	if under != c.Conn {
		_ = under.Close()
	}
}

// active says that the first byte of a request is there. Called by the serving
// goroutine.
func (c *clientConn) active() {
	c.state.CompareAndSwap(connNew, connActive)
	c.state.CompareAndSwap(connIdle, connActive)
	c.began, c.reading = time.Now(), true
}

// answering says that the request has been read whole.
func (c *clientConn) answering() { c.reading = false }

// idle says that an answer has been sent.
func (c *clientConn) idle() {
	c.reading, c.head = false, headEnd{}
	c.freeBody()
	c.state.CompareAndSwap(connActive, connIdle)
}

// closeIdle closes the connection unless a request is under way on it. One that
// has just been accepted gets a second to say something.
func (c *clientConn) closeIdle(now time.Time) {
	if c.state.CompareAndSwap(connIdle, connClosed) ||
		now.Sub(c.accepted) >= time.Second && c.state.CompareAndSwap(connNew, connClosed) {
		_ = c.Close()
	}
}
