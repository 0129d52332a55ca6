// Command kube tries routers with a real Kubernetes control plane: etcd, API server,
// controller manager and scheduler, built from their sources below -dir. It runs all of
// it in a network of its own, in which Pods have addresses that are no loopback
// addresses, and which ends with it, whatever happens. A stand-in for a node's kubelet
// runs a simulated engine for each Pod, so that a Pod is ready when its engine is.
// Routers are processes, with a service account that may do what docs/operate.md asks
// for. It fails where a check does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/bench/table"
)

type options struct {
	bin, dir, module string
	only             string
	keep, build      bool
	inside           string
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/hearsay", "the hearsay binary")
	flag.StringVar(&o.dir, "dir", "bin/kube", "where Kubernetes' binaries are, or are built")
	flag.StringVar(&o.module, "module", "test/kube/binaries", "module that says of what sources")
	flag.StringVar(&o.only, "only", "", "checks to make: those whose name contains this; what they build on is made all the same")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory with logs and say where it is")
	flag.BoolVar(&o.build, "build", false, "build the binaries, and no more")
	flag.StringVar(&o.inside, "inside", "", "directory for data and logs; set for the process that this one starts in a network of its own")
	flag.Parse()
	procs.Main("kube", func(ctx context.Context) error { return run(ctx, &o) })
}

func run(ctx context.Context, o *options) (err error) {
	for _, path := range []*string{&o.bin, &o.dir, &o.module} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if o.inside != "" {
		return inside(ctx, o)
	}
	if err := build(ctx, o.module, o.dir); err != nil || o.build {
		return err
	}
	dir, err := os.MkdirTemp("", "hearsay-kube-")
	if err != nil {
		return err
	}
	if o.keep {
		fmt.Fprintf(os.Stderr, "logs are kept in %s\n", dir)
	} else {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	return enter(ctx, o, dir)
}

// enter runs this command again in a network of its own. What runs there ends with it.
func enter(ctx context.Context, o *options, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "-inside", dir, "-bin", o.bin, "-dir", o.dir, "-only", o.only)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	if err := separate(cmd); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start in a network of its own, which takes root, or a system that lets users make namespaces: %w", err)
	}
	var exit *exec.ExitError
	switch err := cmd.Wait(); {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &exit):
		return errors.New("see above")
	default:
		return err
	}
}

// inside starts all that there is and makes the checks.
func inside(ctx context.Context, o *options) error {
	if err := addresses(); err != nil {
		return fmt.Errorf("make a network: %w", err)
	}
	t, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer t.close()
	results := t.try(ctx, o.only)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return report(results)
}

// result is what came of one check.
type result struct {
	name, detail string
	err          error
	took         time.Duration
}

// shown is how much of a result the table has, in characters.
const shown = 100

// report prints a line for each check, and below the table what was cut off in it.
func report(results []result) error {
	failed := 0
	var rows [][]string
	var whole strings.Builder
	for _, r := range results {
		text := strings.TrimSpace("ok " + r.detail)
		if r.err != nil {
			failed++
			text = "FAILED: " + strings.Join(strings.Fields(r.err.Error()), " ")
		}
		if short := clip(text, shown); short != text {
			fmt.Fprintf(&whole, "\n%s:\n  %s\n", r.name, clip(text, 4000))
			text = short
		}
		rows = append(rows, []string{r.name, text, fmt.Sprintf("%.1f", r.took.Seconds())})
	}
	table.Print(os.Stdout, "Routers with Kubernetes "+version, 2, []string{"check", "result", "s"}, rows)
	fmt.Print(whole.String())
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(results))
	}
	fmt.Printf("\nAll %d checks passed.\n", len(results))
	return nil
}

// clip cuts a text to so many characters.
func clip(text string, most int) string {
	r := []rune(text)
	if len(r) <= most {
		return text
	}
	return string(r[:most-1]) + "…"
}
