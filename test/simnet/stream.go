package simnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Window bounds the bytes of one direction of a stream that are on their way, or
// arrived and not yet read. Writers block past it.
const Window = 256 << 10

// Conn is one end of a stream, with the semantics of a TCP connection: Close sends
// what was written and then FIN, or RST when received bytes were not read; data
// that arrives at a closed end is answered with RST; received bytes can be read
// before the error of a reset shows.
type Conn struct {
	net           *Net
	host          *Host
	local, remote *net.TCPAddr
	peer          *Conn
	in, out       *half
	closed        bool
	reset         bool // RST arrived, or the host crashed
	rd, wd        deadline
	hooks         map[*hook]struct{}
}

type hook struct{ f func() }

// half is one direction of a stream. All fields are guarded by Net.mu.
type half struct {
	net      *Net
	from, to *Conn
	readable sync.Cond
	writable sync.Cond
	buf      []byte // arrived, not read
	flight   []segment
	size     int // bytes in flight
	unacked  int // bytes read whose acknowledgement a cut holds back
	last     time.Time
	timer    *time.Timer
	armed    bool
	finSent  bool
	fin      bool // arrived
}

type segment struct {
	at       time.Time
	data     []byte
	fin, rst bool
}

func connect(a, b *Host, aAddr, bAddr *net.TCPAddr) (client, server *Conn) {
	n := a.net
	client = &Conn{net: n, host: a, local: aAddr, remote: bAddr}
	server = &Conn{net: n, host: b, local: bAddr, remote: aAddr}
	client.peer, server.peer = server, client
	there, back := newHalf(client, server), newHalf(server, client)
	client.out, client.in = there, back
	server.out, server.in = back, there
	n.conns[client], n.conns[server] = struct{}{}, struct{}{}
	return client, server
}

func newHalf(from, to *Conn) *half {
	h := &half{net: from.net, from: from, to: to}
	h.readable.L, h.writable.L = &from.net.mu, &from.net.mu
	return h
}

func (h *half) send(s segment) {
	s.at = time.Now().Add(h.net.delay(h.from.host, h.to.host))
	if s.at.Before(h.last) {
		s.at = h.last
	}
	h.last = s.at
	h.flight = append(h.flight, s)
	h.size += len(s.data)
	h.pump()
}

// pump delivers what is due. The caller holds mu.
func (h *half) pump() {
	n := h.net
	cut := n.cut(h.from.host, h.to.host)
	if !n.cut(h.to.host, h.from.host) && h.unacked > 0 {
		h.unacked = 0
		h.writable.Broadcast()
	}
	for len(h.flight) > 0 && !cut {
		s := h.flight[0]
		if wait := time.Until(s.at); wait > 0 {
			h.arm(wait)
			break
		}
		h.flight[0] = segment{}
		h.flight = h.flight[1:]
		h.size -= len(s.data)
		h.deliver(s)
	}
	h.from.forget()
	h.to.forget()
}

func (h *half) arm(wait time.Duration) {
	if h.armed {
		return
	}
	h.armed = true
	if h.timer != nil {
		h.timer.Reset(wait)
		return
	}
	h.timer = time.AfterFunc(wait, func() {
		h.net.lock()
		defer h.net.unlock()
		h.armed = false
		h.pump()
	})
}

func (h *half) deliver(s segment) {
	to := h.to
	switch {
	case s.rst:
		to.reset = true
		to.out.drop()
		to.wake()
		to.hangup()
	case to.closed && !to.reset:
		if len(s.data) > 0 { // nobody will read it
			to.reset = true
			to.out.drop()
			to.out.send(segment{rst: true})
		}
	case s.fin:
		h.fin = true
		h.readable.Broadcast()
		to.hangup()
	case !to.reset:
		h.buf = append(h.buf, s.data...)
		to.host.traffic.StreamIn += int64(len(s.data))
		h.readable.Broadcast()
	}
}

// drop gives up what was not delivered yet.
func (h *half) drop() {
	h.flight, h.size = nil, 0
}

// forget lets go of an end that has nothing left to do.
func (c *Conn) forget() {
	if (c.closed || c.reset) && len(c.out.flight) == 0 {
		delete(c.net.conns, c)
	}
}

func (c *Conn) wake() {
	c.in.readable.Broadcast()
	c.out.writable.Broadcast()
}

func (c *Conn) err(op string, err error) error {
	if no, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError(op, no)
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	c.net.lock()
	defer c.net.unlock()
	for {
		switch {
		case c.closed:
			return 0, c.err("read", net.ErrClosed)
		case c.rd.passed():
			return 0, c.err("read", os.ErrDeadlineExceeded)
		case len(b) == 0:
			return 0, nil
		case len(c.in.buf) > 0:
			return c.in.take(b), nil
		case c.reset:
			return 0, c.err("read", syscall.ECONNRESET)
		case c.in.fin:
			return 0, io.EOF
		}
		c.net.wait(&c.in.readable)
	}
}

func (h *half) take(b []byte) int {
	n := copy(b, h.buf)
	if h.buf = h.buf[n:]; len(h.buf) == 0 {
		h.buf = nil
	}
	if h.net.cut(h.to.host, h.from.host) {
		h.unacked += n
	} else {
		h.writable.Broadcast()
	}
	return n
}

// Write implements net.Conn. It returns when all bytes are on their way.
func (c *Conn) Write(b []byte) (n int, err error) {
	c.net.lock()
	defer c.net.unlock()
	for {
		free := Window - len(c.out.buf) - c.out.size - c.out.unacked
		switch {
		case c.closed:
			return n, c.err("write", net.ErrClosed)
		case c.reset:
			return n, c.err("write", syscall.ECONNRESET)
		case c.out.finSent:
			return n, c.err("write", syscall.EPIPE)
		case c.wd.passed():
			return n, c.err("write", os.ErrDeadlineExceeded)
		case len(b) == 0:
			return n, nil
		case free > 0:
			k := min(free, len(b))
			data := make([]byte, k)
			copy(data, b)
			b, n = b[k:], n+k
			c.host.traffic.StreamOut += int64(k)
			c.host.traffic.Sends++
			c.out.send(segment{data: data})
			if len(b) == 0 {
				return n, nil
			}
			continue
		}
		c.net.wait(&c.out.writable)
	}
}

// CloseWrite sends FIN after what was written; reading goes on.
func (c *Conn) CloseWrite() error {
	c.net.lock()
	defer c.net.unlock()
	if c.closed {
		return c.err("close", net.ErrClosed)
	}
	if c.reset {
		return c.err("close", syscall.ENOTCONN)
	}
	c.shut()
	return nil
}

func (c *Conn) shut() {
	if !c.out.finSent {
		c.out.finSent = true
		c.out.send(segment{fin: true})
		c.out.writable.Broadcast()
	}
}

// Close implements net.Conn. Bytes written before are still delivered.
func (c *Conn) Close() error {
	c.net.lock()
	defer c.net.unlock()
	if c.closed {
		return c.err("close", net.ErrClosed)
	}
	if len(c.in.buf) > 0 && !c.reset {
		c.abort()
		return nil
	}
	c.finish()
	if !c.reset {
		c.shut()
	}
	c.forget()
	return nil
}

// Reset closes with RST: what was written and not yet delivered is lost.
func (c *Conn) Reset() error {
	c.net.lock()
	defer c.net.unlock()
	if c.closed {
		return c.err("close", net.ErrClosed)
	}
	c.abort()
	return nil
}

// abort closes with RST. The caller holds mu.
func (c *Conn) abort() {
	wasReset := c.reset
	c.finish()
	c.reset = true
	if !wasReset {
		c.out.drop()
		c.out.send(segment{rst: true})
	}
	c.forget()
}

func (c *Conn) finish() {
	c.closed = true
	c.hooks = nil
	c.rd.stop()
	c.wd.stop()
	c.in.buf = nil
	c.wake()
	c.in.writable.Broadcast() // the peer may go on and learn of it
}

// OnHangup calls f once, from another goroutine or from this one, as soon as the
// peer closed its sending side or reset the connection, whether or not anybody
// reads. After disarm has returned f will not be started any more. Closing this
// end disarms.
func (c *Conn) OnHangup(f func()) (disarm func()) {
	c.net.lock()
	defer c.net.unlock()
	h := &hook{f}
	if c.closed {
		return func() {}
	}
	if c.hooks == nil {
		c.hooks = map[*hook]struct{}{}
	}
	c.hooks[h] = struct{}{}
	if c.in.fin || c.reset {
		c.hangup()
	}
	return func() {
		c.net.lock()
		defer c.net.unlock()
		delete(c.hooks, h)
	}
}

func (c *Conn) hangup() {
	for h := range c.hooks {
		delete(c.hooks, h)
		c.net.after = append(c.net.after, h.f)
	}
}

// LocalAddr implements net.Conn; it is a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn; it is a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }
