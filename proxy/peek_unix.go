//go:build unix

package proxy

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// peerClosed reports, without blocking and without consuming anything, whether
// the peer has closed or reset the connection.
func peerClosed(raw syscall.RawConn) bool {
	gone, _ := peek(raw)
	return gone
}

// peek tells whether the peer has gone and whether unread bytes wait.
func peek(raw syscall.RawConn) (gone, pending bool) {
	var b [1]byte
	err := raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch err {
		case nil:
			gone, pending = n == 0, n > 0
		case unix.EAGAIN, unix.EINTR:
		default:
			gone = true
		}
	})
	return gone || err != nil, pending
}
