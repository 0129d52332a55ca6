package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// usage is what processes have used so far.
type usage struct {
	cpu    time.Duration
	writes int64 // write and writev; send and sendmsg are not counted by the kernel
}

// used reads the usage of a process and its children. The kernel's clock of a
// process runs in nanoseconds, and threads that have ended are in it.
func used(pid int) (u usage, err error) {
	for _, pid := range family(pid) {
		var ts unix.Timespec
		if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil {
			return u, fmt.Errorf("CPU clock of process %d: %w", pid, err)
		}
		u.cpu += time.Duration(ts.Nano())
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
		if err != nil {
			return u, err
		}
		_, rest, _ := bytes.Cut(b, []byte("syscw: "))
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		n, err := strconv.ParseInt(string(line), 10, 64)
		if err != nil {
			return u, fmt.Errorf("writes of process %d: %w", pid, err)
		}
		u.writes += n
	}
	return u, nil
}

// family is a process and its children; grandchildren there are none.
func family(pid int) []int {
	out := []int{pid}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, s := range strings.Fields(string(b)) {
		if n, err := strconv.Atoi(s); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// segments is how many pieces of data a connection has received: for small answers,
// how many writes the other side made.
func segments(c *net.TCPConn) (n int64) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = int64(info.Data_segs_in)
		}
	})
	return n
}

// sleepUntil sleeps closer to the mark than a timer of the run time does.
func sleepUntil(t time.Time) {
	for d := time.Until(t); d > 0; d = time.Until(t) {
		ts := unix.NsecToTimespec(d.Nanoseconds())
		_ = unix.Nanosleep(&ts, nil)
	}
}

// ownGroup makes a process the head of a group that is told to end when this process
// dies, and that no key pressed at the terminal reaches.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// signalGroup signals a process and its children.
func signalGroup(pid int, sig syscall.Signal) { _ = syscall.Kill(-pid, sig) }
