package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
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

func demo(t *testing.T, args []string, end func(*exec.Cmd) error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tmp := t.TempDir()
	var out output
	cmd := exec.CommandContext(ctx, binary, append([]string{"demo", "--routers", "3", "--replicas", "2"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Dir = tmp
	harness.KillWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	poll(t, patience, "the demo prints its URLs", func() (bool, string) {
		select {
		case err := <-exited:
			t.Fatalf("the demo ended: %v\n%s", err, out.String())
		default:
		}
		return strings.Contains(out.String(), "hearsay status --server"), out.String()
	})
	var routers []*harness.Proc
	for _, m := range demoRouter.FindAllStringSubmatch(out.String(), -1) {
		routers = append(routers, &harness.Proc{Name: m[1], API: m[1], Admin: m[2]})
	}
	if len(routers) != 3 {
		t.Fatalf("3 routers' URLs are not printed:\n%s", out.String())
	}
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
	for _, u := range demoURL.FindAllString(out.String(), -1) {
		if c, err := net.DialTimeout("tcp", strings.TrimPrefix(u, "http://"), time.Second); err == nil {
			_ = c.Close()
			t.Errorf("%s still listens", u)
		}
	}
	if left, _ := os.ReadDir(tmp); len(left) != 0 {
		t.Errorf("left in the temporary directory: %v", fmt.Sprint(left))
	}
}
