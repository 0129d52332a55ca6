//go:build !unix

package proxy

import "syscall"

// peerClosed cannot be answered here without reading.
func peerClosed(syscall.RawConn) bool { return false }

func peek(syscall.RawConn) (gone, pending bool) { return false, false }
