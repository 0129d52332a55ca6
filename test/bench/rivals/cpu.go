package main

import (
	"syscall"
	"time"
)

// cpuTime is what the process has used so far, collection of garbage included.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
