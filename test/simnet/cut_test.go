package simnet

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestCutHoldsStreams(t *testing.T) {
	bubble(t, func(t *testing.T, n *Net, c, s *Conn) {
		n.CutOneWay("a", "b")
		write(t, c, "held")
		write(t, s, "free")
		read(t, c, 4)
		must(t, s.SetReadDeadline(time.Now().Add(time.Hour)))
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read through a cut: %v", err)
		}
		must(t, s.SetReadDeadline(time.Time{}))
		n.HealOneWay("a", "b")
		read(t, s, 4)
	})
}

// Without acknowledgements the other direction stalls after a window.
func TestOneWayCutStallsTheOtherDirectionInTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, n *Net, c, s *Conn) {
		n.CutOneWay("a", "b")
		must(t, s.SetWriteDeadline(time.Now().Add(time.Second)))
		go func() { _, _ = io.Copy(io.Discard, c) }()
		if n, err := s.Write(make([]byte, 2*Window)); n != Window || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("wrote %d: %v", n, err)
		}
		n.Heal("a", "b")
		must(t, s.SetWriteDeadline(time.Time{}))
		write(t, s, "goes on")
		must(t, s.Close())
		synctest.Wait()
	})
}

func TestHangup(t *testing.T) {
	f := func(name string, hang func(t *testing.T, c, s *Conn), want int32) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *Net, c, s *Conn) {
				var calls, disarmed atomic.Int32
				s.OnHangup(func() { calls.Add(1) })
				s.OnHangup(func() { disarmed.Add(1) })()
				hang(t, c, s)
				synctest.Wait()
				if calls.Load() != want || disarmed.Load() != 0 {
					t.Errorf("%d calls, %d disarmed", calls.Load(), disarmed.Load())
				}
			})
		})
	}
	f("nothing happens", func(t *testing.T, c, _ *Conn) { write(t, c, "more") }, 0)
	f("peer closes", func(t *testing.T, c, _ *Conn) { must(t, c.Close()) }, 1)
	f("peer closes behind unread bytes", func(t *testing.T, c, _ *Conn) { write(t, c, "x"); must(t, c.Close()) }, 1)
	f("peer half-closes", func(t *testing.T, c, _ *Conn) { must(t, c.CloseWrite()) }, 1)
	f("peer half-closes, then resets", func(t *testing.T, c, _ *Conn) { must(t, c.CloseWrite()); must(t, c.Reset()) }, 1)
	f("peer resets", func(t *testing.T, c, _ *Conn) { must(t, c.Reset()) }, 1)
	f("own end closes", func(t *testing.T, _, s *Conn) { must(t, s.Close()) }, 0)
	f("armed when the peer is gone already", func(t *testing.T, c, s *Conn) {
		must(t, c.Close())
		called := false
		s.OnHangup(func() { called = true })
		if !called {
			t.Error("not called")
		}
	}, 1)
	f("callback uses the connection", func(t *testing.T, c, s *Conn) {
		s.OnHangup(func() { _ = s.SetReadDeadline(time.Now()) })
		must(t, c.Close())
	}, 1)
}

func TestCrashResetsAndRestartServesAgain(t *testing.T) {
	bubble(t, func(t *testing.T, n *Net, c, s *Conn) {
		b := n.Host("b")
		ip := b.IP().String()
		b.Crash()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("peer reads: %v", err)
		}
		if _, err := s.Read(make([]byte, 1)); err == nil {
			t.Error("the crashed end still reads")
		}
		if _, err := n.Host("a").Dial("tcp", "b:80"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial to a crashed host: %v", err)
		}
		if _, err := b.Listen("tcp", ":80"); !errors.Is(err, syscall.ENETDOWN) {
			t.Errorf("listen on a crashed host: %v", err)
		}
		b.Restart()
		l, err := b.Listen("tcp", ":80")
		must(t, err)
		defer l.Close()
		d, err := n.Host("a").Dial("tcp", "b:80")
		must(t, err)
		_ = d.Close()
		if b.IP().String() != ip {
			t.Errorf("address moved from %s to %s", ip, b.IP())
		}
		b.Readdress()
		if b.IP().String() == ip {
			t.Error("address did not move")
		}
	})
}
