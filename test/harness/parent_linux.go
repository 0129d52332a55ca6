package harness

import (
	"os/exec"
	"syscall"
)

// KillWithParent makes the kernel end the child when this process dies, so that an
// aborted test leaves nothing running.
func KillWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// ownGroup puts the child, and what it starts, into a process group that can be
// ended as one. It comes after KillWithParent.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr.Setpgid = true }
