package proxy

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// acked is how many bytes the peer's system has acknowledged on a TCP connection
// since it was opened, and one for its opening. ok is false where that is unknown.
func acked(raw syscall.RawConn) (n uint64, ok bool) {
	err := raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n, ok = info.Bytes_acked, true
		}
	})
	return n, ok && err == nil
}
