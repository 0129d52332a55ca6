package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/test/enginesim"
)

// result is what a user sees of one call of the tool.
type result struct {
	code        int
	out, errOut string
}

// call runs the tool in this process as main does. It takes over the process's
// standard streams meanwhile: tests that call it are not parallel.
func call(t *testing.T, args ...string) result {
	t.Helper()
	return callWith(t, "", args...)
}

// callWith is call with a standard input.
func callWith(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	dir := t.TempDir()
	file := func(name, content string) *os.File {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	in, out, errOut := os.Stdin, os.Stdout, os.Stderr
	os.Stdin, os.Stdout, os.Stderr = file("in", stdin), file("out", ""), file("err", "")
	defer func() { os.Stdin, os.Stdout, os.Stderr = in, out, errOut }()
	code := run(append([]string{}, args...)) // of nil, cobra would make the test's own flags
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	return result{code, read("out"), read("err")}
}

// wants checks the exit code and that the text has all parts, on standard output
// for code 0, else on standard error.
func (r result) wants(t *testing.T, code int, parts ...string) {
	t.Helper()
	text := r.out
	if code != 0 {
		text = r.errOut
		if r.out != "" {
			t.Errorf("a call that failed wrote to standard output: %q", r.out)
		}
	}
	if r.code != code {
		t.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.out, r.errOut)
	}
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is not in:\n%s", p, text)
		}
	}
}

var columns = regexp.MustCompile(` {2,}`)

// table checks that the output's table from the line that begins with head[0] on
// has these columns, all aligned, and gives its rows' cells.
func (r result) table(t *testing.T, head ...string) [][]string {
	t.Helper()
	lines := strings.Split(strings.TrimRight(r.out, "\n"), "\n")
	for len(lines) > 0 && !strings.HasPrefix(lines[0], head[0]+" ") {
		lines = lines[1:]
	}
	if len(lines) == 0 {
		t.Fatalf("no table with column %s in:\n%s", head[0], r.out)
	}
	if got := columns.Split(strings.TrimRight(lines[0], " "), -1); strings.Join(got, "|") != strings.Join(head, "|") {
		t.Errorf("columns %q, want %q", got, head)
	}
	starts := []int{0}
	for _, gap := range columns.FindAllStringIndex(strings.TrimRight(lines[0], " "), -1) {
		starts = append(starts, gap[1])
	}
	var rows [][]string
	for _, line := range lines[1:] {
		if line == "" {
			break
		}
		for _, at := range starts {
			if at >= len(line) || line[at] == ' ' || at > 0 && line[at-1] != ' ' {
				t.Errorf("not aligned at column %d:\n%s\n%s", at, lines[0], line)
			}
		}
		rows = append(rows, columns.Split(strings.TrimRight(line, " "), -1))
	}
	return rows
}

// rig is one router over two simulated engines, in this process.
type rig struct {
	api, admin string
	engines    []string // their hosts, which are the replicas' ids
}

const rigModel = "sim-70b"

// newRig starts one and ends it with the test.
func newRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir() // before the cleanup below, so that it goes after the router
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 8)
	running := 0
	start := func(run func(context.Context) error) {
		running++
		go func() { ended <- run(ctx) }()
	}
	t.Cleanup(func() {
		stop()
		http.DefaultClient.CloseIdleConnections()
		for range running {
			if err := <-ended; err != nil {
				t.Errorf("end of the rig: %v", err)
			}
		}
	})
	r := &rig{}
	pool := node.PoolConfig{Name: "chat", Model: rigModel, Aliases: []string{"default"}}
	pool.Scale = node.ScaleConfig{Min: 1, Max: 5}
	for range 2 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cfg := enginesim.DefaultConfig()
		cfg.Speed = 20
		start(func(ctx context.Context) error { return enginesim.New(cfg).Serve(ctx, ln) })
		r.engines = append(r.engines, ln.Addr().String())
		pool.Replicas = append(pool.Replicas, node.ReplicaConfig{URL: "http://" + ln.Addr().String()})
	}
	cfg := node.Defaults()
	cfg.Node = node.NodeConfig{Name: "rig", DataDir: dir}
	cfg.API.Debug = true
	cfg.Pools = []node.PoolConfig{pool}
	taken, deps := newPlaces(), node.Deps{Log: zerolog.Nop()}
	defer taken.close()
	taken.lend(&deps)
	at, err := taken.router(2000)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listen.API, cfg.Listen.Admin, cfg.Listen.Cluster = at.api, at.admin, at.cluster
	cfg.Finish()
	deps.Load = func() (node.Config, error) { // the file was changed meanwhile
		next := cfg
		next.API.MaxConnections = 7
		next.Pools = slices.Clone(cfg.Pools)
		next.Pools[0].Policy = "session"
		return next, nil
	}
	n, err := node.New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	start(n.Run)
	info := n.Info()
	r.api, r.admin = "http://"+info.API, "http://"+info.Admin
	t.Setenv("HEARSAY_SERVER", r.admin)
	within(t, "the router is ready and leads", func() bool {
		ok, _ := n.Ready()
		return ok && n.Info().Raft.Leader != ""
	})
	return r
}

// within polls until ok, at most 20 s.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	bound := time.NewTimer(20 * time.Second)
	defer bound.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-bound.C:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// isJSON decodes what the tool printed.
func isJSON[T any](t *testing.T, r result) T {
	t.Helper()
	var v T
	r.wants(t, 0)
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatalf("output is not JSON: %v\n%s", err, r.out)
	}
	return v
}

// writeTemp puts text into a file of the test's and gives its path.
func writeTemp(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
