package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// output collects what a process writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

var (
	demoURL    = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	demoRouter = regexp.MustCompile(`(?m)^r\d+ +(http://127\.0\.0\.1:\d+) +(http://127\.0\.0\.1:\d+)$`)
)

// The demo shows where it listens, works, resizes its pool, and leaves nothing: no
// process, no port, no file.
func TestDemo(t *testing.T) {
	t.Parallel()
	f := func(name string, args []string, end func(*exec.Cmd) error) {
		t.Run(name, func(t *testing.T) { demo(t, args, end) })
	}
	f("ended by its duration", []string{"--duration", "12s", "--traffic"}, func(*exec.Cmd) error { return nil })
	f("ended by SIGINT", nil, func(c *exec.Cmd) error { return c.Process.Signal(syscall.SIGINT) })
}

// demoProcess is a demo that has printed its URLs.
type demoProcess struct {
	cmd     *exec.Cmd
	out     *output
	exited  chan error
	routers []*harness.Proc
}

// startDemo starts one with its temporary files below tmp.
func startDemo(ctx context.Context, t *testing.T, tmp string, args ...string) *demoProcess {
	t.Helper()
	out := &output{}
	cmd := exec.CommandContext(ctx, binary, append([]string{"demo", "--routers", "3", "--replicas", "2"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = tmp
	harness.KillWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &demoProcess{cmd: cmd, out: out, exited: make(chan error, 1)}
	go func() { d.exited <- cmd.Wait() }()
	return d
}

// wait waits until it has printed its URLs.
func (d *demoProcess) wait(t *testing.T) *demoProcess {
	t.Helper()
	poll(t, patience, "the demo prints its URLs", func() (bool, string) {
		select {
		case err := <-d.exited:
			t.Fatalf("the demo ended: %v\n%s", err, d.out.String())
		default:
		}
		return strings.Contains(d.out.String(), "  "+binary+" status"), d.out.String()
	})
	for _, m := range demoRouter.FindAllStringSubmatch(d.out.String(), -1) {
		d.routers = append(d.routers, &harness.Proc{Name: m[1], API: m[1], Admin: m[2]})
	}
	if len(d.routers) != 3 {
		t.Fatalf("3 routers' URLs are not printed:\n%s", d.out.String())
	}
	return d
}

func demo(t *testing.T, args []string, end func(*exec.Cmd) error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tmp := t.TempDir()
	d := startDemo(ctx, t, tmp, args...).wait(t)
	cmd, out, exited, routers := d.cmd, d.out, d.exited, d.routers
	for _, r := range routers {
		if resp, body := whole(t, r.API+"/v1/chat/completions", chat("hello demo", 3, true, "")); resp.StatusCode != http.StatusOK || !strings.Contains(body, "[DONE]") {
			t.Errorf("%s: status %d, %s", r.API, resp.StatusCode, body)
		}
	}
	joined(t, routers)
	setTarget(t, routers[1], "chat", 3)
	ready(t, routers, 3)
	books, _ := filepath.Glob(filepath.Join(tmp, "*/*/*/processes.json"))
	if len(books) != 1 {
		t.Errorf("records of started engines: %v", books)
	}
	pids := harness.StartedIn(tmp)
	if len(pids) != 1 {
		t.Errorf("started engines: %v", pids)
	}
	if err := end(cmd); err != nil {
		t.Fatal(err)
	}
	if err := <-exited; err != nil {
		t.Errorf("exit: %v\n%s", err, out.String())
	}
	if !strings.HasSuffix(out.String(), "stopped\n") {
		t.Errorf("output:\n%s", out.String())
	}
	for _, pid := range pids {
		if harness.Alive(pid) {
			t.Errorf("engine process %d lives on", pid)
		}
	}
	if left, _ := os.ReadDir(tmp); len(left) != 0 {
		t.Errorf("left in the temporary directory: %v", fmt.Sprint(left))
	}
}

// Two demos started at one instant share nothing; one that is killed takes its
// engines with it, and the next one removes what it left.
func TestDemosSideBySideAndKilled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tmp := t.TempDir()
	both := [2]*demoProcess{startDemo(ctx, t, tmp), startDemo(ctx, t, tmp)}
	taken := map[string]*demoProcess{}
	for _, d := range both {
		d.wait(t)
		for _, u := range demoURL.FindAllString(d.out.String(), -1) {
			if other := taken[u]; other != nil && other != d {
				t.Errorf("%s is both demos'", u)
			}
			taken[u] = d
		}
		joined(t, d.routers)
		if s := ask[status](t, d.routers[0], "status"); s.Members != len(d.routers) {
			t.Errorf("a demo of %d routers has %d members", len(d.routers), s.Members)
		}
	}
	setTarget(t, both[0].routers[0], "chat", 4)
	ready(t, both[0].routers, 4)
	pids := harness.StartedIn(tmp)
	if len(pids) != 2 {
		t.Errorf("started engines: %v", pids)
	}
	if err := both[0].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-both[0].exited
	for _, pid := range pids {
		poll(t, patience, "the killed demo's engine ends", func() (bool, string) { return !harness.Alive(pid), fmt.Sprint(pid) })
	}
	next := startDemo(ctx, t, tmp).wait(t)
	if !strings.Contains(next.out.String(), "which a killed demo had left") {
		t.Errorf("output:\n%s", next.out.String())
	}
	for _, d := range []*demoProcess{both[1], next} {
		if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := <-d.exited; err != nil {
			t.Errorf("exit: %v\n%s", err, d.out.String())
		}
	}
	if left, _ := os.ReadDir(tmp); len(left) != 0 {
		t.Errorf("left in the temporary directory: %v", fmt.Sprint(left))
	}
}
