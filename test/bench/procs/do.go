package procs

import (
	"context"
	"fmt"
	"os/exec"
)

// Do runs a command in a directory; what it printed is the error's.
func Do(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", args[0], err, out)
	}
	return nil
}
