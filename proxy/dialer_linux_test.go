package proxy

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// What the kernel is told, which acts on it: a peer whose packets are lost needs a
// network of one's own (make chaos-net, fault "replica gone").
func TestVanishedPeersAreNoticed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	c, err := Dialer().Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	option := func(name int) (v int) {
		t.Helper()
		var got error
		if err := raw.Control(func(fd uintptr) { v, got = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, name) }); err != nil || got != nil {
			t.Fatal(err, got)
		}
		return v
	}
	if ms := option(unix.TCP_USER_TIMEOUT); ms != int(vanishedAfter.Milliseconds()) {
		t.Errorf("what is not acknowledged ends it after %d ms", ms)
	}
	idle, every, count := option(unix.TCP_KEEPIDLE), option(unix.TCP_KEEPINTVL), option(unix.TCP_KEEPCNT)
	if s := idle + every*count; s != int(vanishedAfter.Seconds()) {
		t.Errorf("silence ends it after %d+%d*%d s", idle, count, every)
	}
}
