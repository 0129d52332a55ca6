package proxy

import (
	"net"
	"syscall"
	"time"
)

// vanishedAfter is about when a connection ends whose other end has vanished without a
// word, all packets to it lost. It is less than the silence within an answer that pools
// allow, and more than networks need to recover.
const vanishedAfter = 15 * time.Second

// Dialer makes connections to other machines. One whose other end has vanished is
// found out also while a request waits for the first byte of its answer, which may
// take many minutes: by what nobody acknowledges (Linux), and in silence by probes. A
// machine that lives acknowledges, whatever its process does.
func Dialer() *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: vanishedAfter / 3, Interval: vanishedAfter / 3, Count: 2},
		Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { setUserTimeout(fd, vanishedAfter) })
		},
	}
}
