//go:build !linux

package harness

import (
	"os/exec"
	"syscall"
)

// KillWithParent does nothing on this system.
func KillWithParent(*exec.Cmd) {}

// ownGroup puts the child, and what it starts, into a process group that can be
// ended as one.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
