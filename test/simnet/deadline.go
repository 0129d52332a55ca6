package simnet

import (
	"net"
	"sync"
	"time"
)

type deadline struct {
	at    time.Time
	timer *time.Timer
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.setDeadline(&c.rd, &c.in.readable, t)
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.setDeadline(&c.wd, &c.out.writable, t)
}

func (c *Conn) setDeadline(d *deadline, wake *sync.Cond, t time.Time) error {
	c.net.lock()
	defer c.net.unlock()
	if c.closed {
		return c.err("set", net.ErrClosed)
	}
	d.set(t, wake)
	return nil
}

// set moves the deadline and wakes those who wait now and when it passes.
func (d *deadline) set(t time.Time, wake *sync.Cond) {
	d.stop()
	d.at = t
	if wait := time.Until(t); !t.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, func() {
			wake.L.Lock()
			defer wake.L.Unlock()
			wake.Broadcast()
		})
	}
	wake.Broadcast()
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }
