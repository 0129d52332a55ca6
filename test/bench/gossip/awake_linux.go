package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// keepAwake keeps the processors from halting until stop is called, by processes
// that count nowhere: one for each processor, of the class that only runs when
// nothing else wants to. What waking a halted processor costs is charged to whom it
// wakes for, falls as soon as others are awake anyway, and differs by the machine.
func keepAwake() (stop func(), err error) {
	var list []*exec.Cmd
	stop = func() {
		for _, cmd := range list {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for range runtime.NumCPU() {
		cmd := exec.Command(self, "-spin")
		cmd.Stderr = os.Stderr
		harness.KillWithParent(cmd)
		if err := cmd.Start(); err != nil {
			stop()
			return nil, err
		}
		list = append(list, cmd)
	}
	return stop, nil
}

// spin is one of keepAwake's processes; it ends by being killed.
func spin() error {
	runtime.LockOSThread()
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
		return fmt.Errorf("run at idle priority: %w", err)
	}
	for n := uint64(1); n != 0; n++ { // for some centuries
	}
	return nil
}
