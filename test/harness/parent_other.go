//go:build !linux

package harness

import "os/exec"

// KillWithParent does nothing on this system.
func KillWithParent(*exec.Cmd) {}
