package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/harness"
)

const model = "sim-70b"

// binary is the hearsay binary that TestMain built.
var binary string

// shared is one healthy cluster of three routers and three engines for the tests
// that break nothing. It is started by the first that asks.
var shared struct {
	once  sync.Once
	procs *harness.Procs
	err   error
	dir   string
}

func TestMain(m *testing.M) {
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "hearsay-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary, shared.dir = filepath.Join(dir, "hearsay"), filepath.Join(dir, "shared")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/hearsay-llm/hearsay/cmd/hearsay").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build hearsay: %v\n%s", err, out)
		return 1
	}
	defer func() {
		if shared.procs != nil {
			shared.procs.Close()
		}
	}()
	return m.Run()
}

// healthy is the shared cluster. Tests leave it as they found it.
func healthy(t *testing.T) *harness.Procs {
	t.Helper()
	shared.once.Do(func() {
		if shared.err = os.Mkdir(shared.dir, 0o700); shared.err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		shared.procs, shared.err = harness.StartProcs(ctx, harness.ProcsConfig{
			Bin: binary, Dir: shared.dir, Routers: 3, Engines: 3, Model: model,
			EngineArgs: []string{"--speed", "4"},
			// The leader decides for a fourth replica, without effect.
			PoolYAML: "    scale: {min: 4, max: 8, actuator: dry_run}\n",
		})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	logsOnFailure(t, shared.procs)
	return shared.procs
}

// cluster is one of the test's own, ended with the test.
func cluster(t *testing.T, cfg harness.ProcsConfig) *harness.Procs {
	t.Helper()
	cfg.Bin, cfg.Model = binary, model
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	p, err := harness.StartProcs(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	logsOnFailure(t, p)
	return p
}

// logsOnFailure shows the end of the routers' logs when the test has failed.
func logsOnFailure(t *testing.T, p *harness.Procs) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, r := range p.Routers {
			log := r.Log()
			t.Logf("end of %s's log:\n%s", r.Name, log[max(0, len(log)-3000):])
		}
	})
}
