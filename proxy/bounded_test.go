package proxy

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// pair is the two ends of a connection over loopback. A net.Pipe takes no deadline any
// more once its other end is closed.
func pair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	if a, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// What a replica says of its answer's size is used, and not believed.
func TestAnAnswerIsReadWholeUpToALimit(t *testing.T) {
	f := func(kind bodyKind, size int64, sent string, limit int, want string, most int, fault error) {
		t.Helper()
		ours, theirs := pair(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.WriteString(theirs, sent)
			_ = theirs.Close()
		}()
		defer func() {
			_ = ours.Close()
			<-done
		}()
		x := &exchange{
			call: newCall(), conn: &upConn{Conn: ours, base: ours},
			waits: waits{idle: time.Minute}, body: bodyReader{kind: kind, left: size},
		}
		defer x.call.release()
		got, err := readBounded(x, limit)
		if string(got) != want || !errors.Is(err, fault) || got == nil {
			t.Errorf("%d bytes sent, %d announced, at most %d: %q, %v", len(sent), size, limit, got, err)
		}
		if cap(got) > most {
			t.Errorf("%d bytes announced, %d sent: %d bytes taken", size, len(sent), cap(got))
		}
		if err == nil && !x.body.done() {
			t.Error("the body is not at its end")
		}
	}
	long := strings.Repeat("x", 3000)
	f(bodySized, 0, "", 100, "", 0, nil)
	f(bodySized, 5, "hello", 100, "hello", 5, nil)
	f(bodySized, 3000, long, 3000, long, 3000, nil)
	f(bodySized, 3000, long, 2999, long, 3000, errTooLong)
	f(bodySized, 3000, long[:2999], 3000, long[:2999], 3000, io.ErrUnexpectedEOF)
	f(bodySized, 1<<40, "hello", 1<<20, "hello", relayBuffer, io.ErrUnexpectedEOF)
	f(bodyChunked, 0, "5\r\nhello\r\n0\r\n\r\n", 5, "hello", 1<<10, nil)
	f(bodyChunked, 0, "5\r\nhello\r\n0\r\n\r\n", 4, "hello", 1<<10, errTooLong)
	f(bodyUntilClose, 0, long, 3000, long, 4<<10, nil)
}

func TestTheHostOfAClientIsTold(t *testing.T) {
	f := func(a net.Addr, want string) {
		t.Helper()
		if got := string(appendHost([]byte("for "), a)); got != "for "+want {
			t.Errorf("%v: %q", a, got)
		}
	}
	f(&net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 80}, "10.1.2.3")
	f(&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 80}, "2001:db8::1")
	f(&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0", Port: 80}, "fe80::1%eth0")
	f(&net.UDPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 80}, "10.1.2.3")
	f(&net.UnixAddr{Name: "/run/x", Net: "unix"}, "unknown")
	f((*net.TCPAddr)(nil), "unknown")
	f(nil, "unknown")
}
