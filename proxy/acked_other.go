//go:build !linux

package proxy

import "syscall"

// acked is not known here.
func acked(syscall.RawConn) (uint64, bool) { return 0, false }
