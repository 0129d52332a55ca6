package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
	build := append(append([]string{"build"}, raceFlags...), "-o", binary, "github.com/hearsay-llm/hearsay/cmd/hearsay")
	if out, err := exec.Command("go", build...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build hearsay: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	if p := shared.procs; p != nil {
		p.Close()
		for _, proc := range slices.Concat(p.Routers, p.Engines) {
			if bad := badLog(proc); bad != "" {
				fmt.Fprintf(os.Stderr, "%s wrote:\n%s\n", proc.Name, bad)
				code = 1
			}
		}
	}
	return code
}

// lookAtSources makes the result depend on every source file: go test takes it from
// its cache while the test's own binary and the files that tests looked at are as
// they were, and of the binary that is tested it knows nothing.
var lookAtSources = sync.OnceValue(func() error {
	return filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bin" || d.Name() == "out" || strings.HasPrefix(d.Name(), ".") && d.Name() != ".."):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".sum"):
			_, err = os.Stat(path)
		}
		return err
	})
})

// healthy is the shared cluster. Tests leave it as they found it.
func healthy(t *testing.T) *harness.Procs {
	t.Helper()
	shared.once.Do(func() {
		if shared.err = lookAtSources(); shared.err != nil {
			return
		}
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
	watchLogs(t, shared.procs)
	return shared.procs
}

// cluster is one of the test's own, ended with the test.
func cluster(t *testing.T, cfg harness.ProcsConfig) *harness.Procs {
	t.Helper()
	if err := lookAtSources(); err != nil {
		t.Fatal(err)
	}
	cfg.Bin, cfg.Model = binary, model
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	p, err := harness.StartProcs(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	watchLogs(t, p)
	t.Cleanup(p.Close)
	return p
}

// badLog is the part of a process's log that tells of a panic, a data race or an
// error, empty if there is none.
func badLog(proc *harness.Proc) string {
	log := proc.Log()
	for _, bad := range []string{"DATA RACE", "panic:", "goroutine 1 [", `"level":"error"`} {
		if at := strings.Index(log, bad); at >= 0 {
			from := max(0, at-500)
			return log[from:min(len(log), from+4000)]
		}
	}
	return ""
}

// watchLogs fails the test when a process's log is bad, and shows the end of the
// routers' logs when the test has failed for whatever reason.
func watchLogs(t *testing.T, p *harness.Procs) {
	t.Cleanup(func() {
		for _, proc := range slices.Concat(p.Routers, p.Engines) {
			if bad := badLog(proc); bad != "" {
				t.Errorf("%s wrote:\n%s", proc.Name, bad)
			}
		}
		if !t.Failed() {
			return
		}
		for _, r := range p.Routers {
			log := r.Log()
			t.Logf("end of %s's log:\n%s", r.Name, log[max(0, len(log)-3000):])
		}
	})
}
