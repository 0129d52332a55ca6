package simnet

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs f in a bubble with two hosts connected by one stream.
func bubble(t *testing.T, f func(t *testing.T, n *Net, client, server *Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		l, err := n.Host("b").Listen("tcp", ":80")
		must(t, err)
		c, err := n.Host("a").Dial("tcp", "b:80")
		must(t, err)
		s, err := l.Accept()
		must(t, err)
		f(t, n, c.(*Conn), s.(*Conn))
		_ = c.Close()
		_ = s.Close()
		_ = l.Close()
		n.HealAll()
		time.Sleep(time.Minute) // what is on its way arrives
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(n.conns) != 0 {
			t.Errorf("%d connections are still held", len(n.conns))
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, c net.Conn, n int) string {
	t.Helper()
	b := make([]byte, n)
	_, err := io.ReadFull(c, b)
	must(t, err)
	return string(b)
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()
	_, err := c.Write([]byte(s))
	must(t, err)
}

func TestAddressesAndRefusal(t *testing.T) {
	bubble(t, func(t *testing.T, n *Net, c, s *Conn) {
		if c.RemoteAddr().String() != "10.0.0.1:80" || s.LocalAddr().String() != "10.0.0.1:80" {
			t.Errorf("addresses %v %v", c.RemoteAddr(), s.LocalAddr())
		}
		if c.LocalAddr().String() != s.RemoteAddr().String() || s.RemoteAddr().(*net.TCPAddr).IP.String() != "10.0.0.2" {
			t.Errorf("client address %v, as the server sees it %v", c.LocalAddr(), s.RemoteAddr())
		}
		_, err := n.Host("a").Dial("tcp", "10.0.0.1:81")
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial to a port nobody listens on: %v", err)
		}
		_, err = n.Host("a").Dial("tcp", "nobody:80")
		var dns *net.DNSError
		if !errors.As(err, &dns) || !dns.IsNotFound {
			t.Errorf("dial to an unknown name: %v", err)
		}
		if _, err := n.Host("b").Listen("tcp", ":80"); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("second listener: %v", err)
		}
		n.Host("b").SetResolvable(false)
		if _, err = n.Host("a").Dial("tcp", "b:80"); !errors.As(err, &dns) {
			t.Errorf("dial to a hidden name: %v", err)
		}
	})
}

func TestLoopbackListenerIsForItsHostAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		l, err := n.Host("a").Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer l.Close()
		c, err := n.Host("a").Dial("tcp", l.Addr().String())
		must(t, err)
		_ = c.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		if _, err = n.Host("b").Dial("tcp", "a:"+port); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial from elsewhere: %v", err)
		}
	})
}

func TestDialHangsWhileCutAndGoesOnWhenHealed(t *testing.T) {
	bubble(t, func(t *testing.T, n *Net, _, _ *Conn) {
		n.Cut("a", "b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if _, err := n.Host("a").DialContext(ctx, "tcp", "b:80"); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("dial into a cut: %v after %v", err, time.Since(start))
		}
		time.AfterFunc(time.Second, func() { n.Heal("a", "b") })
		start = time.Now()
		c, err := n.Host("a").Dial("tcp", "b:80")
		must(t, err)
		if time.Since(start) != time.Second {
			t.Errorf("connected after %v", time.Since(start))
		}
		_ = c.Close()
	})
}

func TestDelayIsExact(t *testing.T) {
	bubble(t, func(t *testing.T, n *Net, c, s *Conn) {
		n.SetLink("a", "b", Link{Delay: 30 * time.Millisecond})
		n.SetLink("b", "a", Link{Delay: 20 * time.Millisecond})
		start := time.Now()
		write(t, c, "ping")
		read(t, s, 4)
		there := time.Since(start)
		write(t, s, "pong")
		read(t, c, 4)
		if there != 30*time.Millisecond || time.Since(start) != 50*time.Millisecond {
			t.Errorf("there %v, there and back %v", there, time.Since(start))
		}
		start = time.Now()
		d, err := n.Host("a").Dial("tcp", "b:80")
		must(t, err)
		if time.Since(start) != 50*time.Millisecond {
			t.Errorf("handshake took %v", time.Since(start))
		}
		_ = d.Close()
	})
}

func TestJitterKeepsStreamsInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, n *Net, c, s *Conn) {
		n.SetLinks("a", "b", Link{Jitter: 50 * time.Millisecond})
		for i := range 200 {
			write(t, c, string(rune('a'+i%26)))
		}
		for i := range 200 {
			if got := read(t, s, 1); got != string(rune('a'+i%26)) {
				t.Fatalf("byte %d is %q", i, got)
			}
		}
	})
}

func TestWriterBlocksPastTheWindow(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Net, c, s *Conn) {
		must(t, c.SetWriteDeadline(time.Now().Add(time.Second)))
		n, err := c.Write(make([]byte, Window+10))
		if n != Window || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("wrote %d: %v", n, err)
		}
		var ne net.Error
		if !errors.As(err, &ne) || !ne.Timeout() {
			t.Errorf("not a timeout: %v", err)
		}
		must(t, c.SetWriteDeadline(time.Time{}))
		done := make(chan struct{})
		go func() { defer close(done); write(t, c, "0123456789") }()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("wrote past the window")
		default:
		}
		read(t, s, 10)
		<-done
		read(t, s, Window)
	})
}

func TestReadDeadlineMovesWhileReading(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Net, c, _ *Conn) {
		start := time.Now()
		must(t, c.SetReadDeadline(start.Add(time.Hour)))
		time.AfterFunc(time.Second, func() { _ = c.SetReadDeadline(time.Now()) })
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		must(t, c.SetReadDeadline(time.Time{}))
	})
}

func TestHalfClose(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Net, c, s *Conn) {
		write(t, c, "ask")
		must(t, c.CloseWrite())
		b, err := io.ReadAll(s)
		if string(b) != "ask" || err != nil {
			t.Fatalf("%q %v", b, err)
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write after half-close: %v", err)
		}
		write(t, s, "answer")
		read(t, c, 6)
	})
}

func TestCloseDeliversWhatWasWritten(t *testing.T) {
	bubble(t, func(t *testing.T, n *Net, c, s *Conn) {
		n.SetLinks("a", "b", Link{Delay: time.Second})
		write(t, c, "bye")
		must(t, c.Close())
		if b, err := io.ReadAll(s); string(b) != "bye" || err != nil {
			t.Errorf("%q %v", b, err)
		}
		if _, err := c.Read(nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read after close: %v", err)
		}
	})
}

func TestCloseWithUnreadBytesResets(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Net, c, s *Conn) {
		write(t, c, "unread")
		must(t, s.Close())
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: %v", err)
		}
	})
}

func TestWritingToAClosedPeerResets(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Net, c, s *Conn) {
		must(t, s.Close())
		write(t, c, "the first write goes out")
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("second write: %v", err)
		}
	})
}

func TestResetLosesWhatIsOnItsWay(t *testing.T) {
	bubble(t, func(t *testing.T, n *Net, c, s *Conn) {
		write(t, c, "ab")
		n.SetLinks("a", "b", Link{Delay: time.Second})
		write(t, c, "cd")
		must(t, c.Reset())
		if got := read(t, s, 2); got != "ab" {
			t.Errorf("got %q", got)
		}
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: %v", err)
		}
	})
}

func TestDatagrams(t *testing.T) {
	f := func(name string, l Link, cut bool, low, high int, least time.Duration) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := New(7)
				n.SetDefault(l)
				a, err := n.Host("a").ListenPacket("udp", ":5")
				must(t, err)
				b, err := n.Host("b").ListenPacket("udp", ":6")
				must(t, err)
				if cut {
					n.Cut("a", "b")
				}
				start := time.Now()
				for range 1000 {
					if _, err := a.WriteTo([]byte("hello"), b.LocalAddr()); err != nil {
						t.Fatal(err)
					}
				}
				got := 0
				must(t, b.SetReadDeadline(start.Add(time.Minute)))
				for {
					buf := make([]byte, 100)
					k, from, err := b.ReadFrom(buf)
					if errors.Is(err, os.ErrDeadlineExceeded) {
						break
					}
					must(t, err)
					if got++; string(buf[:k]) != "hello" || from.String() != a.LocalAddr().String() || time.Since(start) < least {
						t.Fatalf("%q from %v after %v", buf[:k], from, time.Since(start))
					}
				}
				if got < low || got > high {
					t.Errorf("%d of 1000 arrived, want %d to %d", got, low, high)
				}
				must(t, a.Close())
				must(t, b.Close())
			})
		})
	}
	f("clean", Link{}, false, 1000, 1000, 0)
	f("delayed", Link{Delay: time.Second, Jitter: time.Second}, false, 1000, 1000, time.Second)
	f("lossy", Link{Loss: 0.3}, false, 600, 800, 0)
	f("blocked", Link{Loss: 1}, false, 0, 0, 0)
	f("cut", Link{}, true, 0, 0, 0)
}

// Outside a bubble the same code runs on real time.
func TestOutsideABubble(t *testing.T) {
	n := New(1)
	n.SetDefault(Link{Delay: time.Millisecond})
	l, err := n.Host("b").Listen("tcp", ":0")
	must(t, err)
	done := make(chan error, 1)
	go func() {
		s, err := l.Accept()
		if err == nil {
			_, err = io.Copy(s, s)
			_ = s.Close()
		}
		done <- err
	}()
	c, err := n.Host("a").Dial("tcp", l.Addr().String())
	must(t, err)
	write(t, c, "echo")
	read(t, c, 4)
	must(t, c.Close())
	must(t, <-done)
	must(t, l.Close())
}
