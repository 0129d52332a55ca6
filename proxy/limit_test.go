package proxy

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A deadline that is left where it was ends nothing early, and nothing late.
func TestLimitsHoldToTheMoment(t *testing.T) {
	const stall = 3 * time.Second
	f := func(name string, wait time.Duration, use func(ours, theirs net.Conn) (again func() error)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				defer func() { _, _ = ours.Close(), theirs.Close() }()
				again := use(ours, theirs)
				time.Sleep(wait)
				began := time.Now()
				if err := again(); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != stall {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		})
	}
	piece := []byte("x")
	for _, wait := range []time.Duration{0, time.Second, limitSlack, stall, time.Minute} {
		f("replica's bytes", wait, func(ours, theirs net.Conn) func() error {
			c := &upConn{Conn: ours, by: time.Now().Add(stall)}
			go func() { _, _ = theirs.Write(piece) }()
			if _, err := c.receive(make([]byte, 1), false); err != nil {
				t.Fatal(err)
			}
			return func() error {
				c.by = time.Now().Add(stall)
				_, err := c.receive(make([]byte, 1), false)
				return err
			}
		})
		f("request to a replica", wait, func(ours, theirs net.Conn) func() error {
			c := &upConn{Conn: ours, pool: &connPool{}}
			go func() { _, _ = theirs.Read(make([]byte, 1)) }()
			if err := c.send(&net.Buffers{piece}, time.Now().Add(stall)); err != nil {
				t.Fatal(err)
			}
			return func() error {
				go func() { _, _ = theirs.Read(make([]byte, 1)) }()
				err := c.send(&net.Buffers{piece, piece}, time.Now().Add(stall))
				if c.wrote != 2 {
					t.Errorf("%d bytes were sent", c.wrote)
				}
				return err
			}
		})
		f("answer to a client", wait, func(ours, theirs net.Conn) func() error {
			c := &clientConn{Conn: ours, limits: &Limits{WriteStall: stall}}
			go func() { _, _ = theirs.Read(make([]byte, 1)) }()
			if _, err := c.Write(piece); err != nil {
				t.Fatal(err)
			}
			return func() error {
				go func() { _, _ = theirs.Read(make([]byte, 1)) }()
				n, err := c.Write([]byte("xy"))
				if n != 1 {
					t.Errorf("%d bytes were written", n)
				}
				return err
			}
		})
		f("request of a client", wait, func(ours, theirs net.Conn) func() error {
			c := &clientConn{Conn: ours, limits: &Limits{ReadStall: stall, ReadTotal: time.Hour}, reading: true, began: time.Now()}
			go func() { _, _ = theirs.Write(piece) }()
			if _, err := c.receive(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			return func() error {
				_, err := c.receive(make([]byte, 1))
				return err
			}
		})
	}
}

// One that lies where it was spares the setting.
func TestALimitServesForAWhile(t *testing.T) {
	now := time.Now()
	l := limit{at: now}
	f := func(by time.Time, want bool) {
		t.Helper()
		if l.serves(by) != want {
			t.Errorf("%v: %v", by.Sub(now), !want)
		}
	}
	f(now, true)
	f(now.Add(limitSlack-1), true)
	f(now.Add(limitSlack), false)
	f(now.Add(-1), false) // it would pass too late
	f(time.Time{}, false)
	l = limit{}
	f(time.Time{}, true)
	f(now, false)
}
