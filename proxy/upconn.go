package proxy

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	// readerSize holds a usual response head and a burst of events.
	readerSize = 8 << 10
	// waitSize holds what usually comes at a time: an event or a few, or a short answer
	// with its head.
	waitSize = 2 << 10
)

// readers are those of readerSize.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readerSize) }}

// upConn is one connection to a replica. It belongs to one call at a time, or
// lies idle in its pool.
//
// A stream spends its life waiting, so a connection has a reader, which is from
// a pool, only while there is something to read: wait receives the next bytes in
// a little room of the connection's own, and a reader takes them from there.
type upConn struct {
	net.Conn
	base     net.Conn // what to close at once: TLS would first try to say goodbye
	raw      syscall.RawConn
	pool     *connPool
	since    time.Time // idle since
	reused   bool
	idled    time.Duration // before this use
	streamed bool          // its last answer came in pieces, of no stated length
	wrote    uint64        // bytes of requests, of all uses
	before   uint64        // wrote when this use began

	by      time.Time // by when the next bytes must come; zero: no limit
	readBy  limit
	writeBy limit
	heart   *heart // nil, or sounded while nothing comes

	br    *bufio.Reader // nil while nothing is buffered
	from  int           // in[from:to] has come and is not read yet
	to    int
	err   error // what the wait ended with, for the next Read
	burst bool  // the last wait brought more than in holds
	in    [waitSize]byte
}

// wait blocks until something has come, be it the end or an error: then the next
// read does not block. A connection from which much comes at a time keeps its
// reader, others give it back meanwhile. It returns errQuiet, and may be called
// again, when a client is to be told first that it is waited.
func (c *upConn) wait() error {
	switch {
	case c.pending() > 0 || c.err != nil:
	case c.burst && c.br != nil:
		_, c.err = c.br.Peek(1)
		c.burst = c.br.Buffered() >= waitSize
	default:
		c.release()
		c.from = 0
		c.to, c.err = c.receive(c.in[:], true)
		c.burst = c.to == waitSize
	}
	if c.err == errQuiet {
		c.err = nil
		return errQuiet
	}
	return nil
}

// receive reads from the network, until by, and sounds the heart meanwhile. Where
// nothing is held that was read in part, the heart may end the wait.
func (c *upConn) receive(p []byte, clean bool) (int, error) {
	for {
		by, beat := c.by, false
		if h := c.heart; h != nil && h.every > 0 && (by.IsZero() || h.due.Before(by)) {
			by, beat = h.due, true
		}
		if !c.readBy.serves(by) {
			if err := c.SetReadDeadline(by); err != nil {
				return 0, err
			}
			c.readBy.at = by
		}
		n, err := c.Conn.Read(p)
		if n == 0 && c.readBy.early(err, by) {
			continue
		}
		if !beat || n > 0 || !timedOut(err) {
			return n, err
		}
		if err := c.heart.sound(clean); err != nil {
			return 0, err
		}
	}
}

// send writes all of bufs, under one limit, and uses them up.
func (c *upConn) send(bufs *net.Buffers, by time.Time) error {
	for {
		if c.pool.tls != nil || !c.writeBy.serves(by) { // TLS can't go on with a write that was cut short
			if err := c.SetWriteDeadline(by); err != nil {
				return err
			}
			c.writeBy.at = by
		}
		n, err := bufs.WriteTo(c.Conn) // one writev where the connection is plain TCP
		c.wrote += uint64(n)
		if !c.writeBy.early(err, by) {
			return err
		}
	}
}

// timedOut reports whether err says that a deadline passed.
func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// pending is how many bytes have come that nobody has taken.
func (c *upConn) pending() int {
	n := c.to - c.from
	if c.br != nil {
		n += c.br.Buffered()
	}
	return n
}

// Read hands out what a wait has brought before it reads on. It is for the reader.
func (c *upConn) Read(p []byte) (int, error) {
	if c.from < c.to {
		n := copy(p, c.in[c.from:c.to])
		c.from += n
		return n, nil
	}
	if c.err != nil {
		return 0, c.err
	}
	return c.receive(p, false)
}

// reader is where the connection is read from, until the next wait.
func (c *upConn) reader() *bufio.Reader {
	if c.br == nil {
		c.br = readers.Get().(*bufio.Reader)
		c.br.Reset(c)
	}
	return c.br
}

// release gives the reader back, and what is in it up.
func (c *upConn) release() {
	if c.br != nil && c.br.Size() == readerSize { // a larger one was for one head
		c.br.Reset(nil)
		readers.Put(c.br)
	}
	c.br = nil
}

// unread reports whether the replica can't have read anything of what was sent in
// this use, now that reading has failed with err: it had closed the connection in
// order, and its system, whose last word on that says what has come, acknowledged
// none of it. A reset has no such word: a replica that has read a request may reset
// the connection before its system acknowledges it.
func (c *upConn) unread(err error) bool {
	if c.raw == nil || c.pool.tls != nil || errors.Is(err, syscall.ECONNRESET) {
		return false // with TLS other bytes are sent than were written
	}
	n, ok := acked(c.raw)
	return ok && n <= c.before+1 // the connection's first packet counts as one
}

// stale reports whether an idle connection was closed by the replica, or has said
// something that nobody asked for.
func (c *upConn) stale() bool {
	if c.raw == nil {
		return false
	}
	gone, pending := peek(c.raw)
	return gone || pending
}
