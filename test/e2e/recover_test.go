package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// tool runs the command-line tool against a router and wants an exit code.
func tool(t *testing.T, r *harness.Proc, code int, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), "HEARSAY_SERVER="+r.Admin)
	out, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("hearsay %s: exit code %d, want %d (%v): %s", strings.Join(args, " "), got, code, err, out)
	}
	return string(out)
}

// Two of three voters are lost with their disks. The third is made the only voter by
// an operator, as docs/operate.md says; nothing that was committed is lost, and two
// new routers join it and vote.
func TestQuorumLostForGoodIsRecovered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := cluster(t, harness.ProcsConfig{Routers: 3, Engines: 1, Dir: dir})
	joined(t, p.Routers)
	voters(t, p.Routers, 3)
	left, dead := p.Routers[0], p.Routers[1:]
	setTarget(t, left, "chat", 5)
	data := func(r *harness.Proc) string { return filepath.Join(dir, r.Name) }
	before, after := filepath.Join(dir, "before.json"), filepath.Join(dir, "after.json")
	tool(t, left, 0, "snapshot", "save", before)
	cluster := ask[status](t, left, "status").Router.Raft.ClusterID

	for _, r := range dead {
		r.Kill()
		if err := os.RemoveAll(data(r)); err != nil {
			t.Fatal(err)
		}
	}
	poll(t, patience, "the one left knows that it has no leader", func() (bool, string) {
		s := ask[status](t, left, "status")
		return s.Router.Raft.Leader == "", fmt.Sprintf("%+v", s)
	})
	if out := tool(t, left, 1, "snapshot", "save", after); !strings.Contains(out, "no leader") {
		t.Errorf("save without a leader: %s", out)
	}
	tool(t, left, 0, "snapshot", "save", after, "--stale")
	if out := tool(t, left, 1, "leave"); !strings.Contains(out, "no leader") {
		t.Errorf("leave without a leader: %s", out)
	}
	if out := tool(t, left, 1, "snapshot", "restore", after, "--data-dir", data(left)); !strings.Contains(out, "in use by another router") {
		t.Errorf("restore under a running router: %s", out)
	}
	if err := left.Stop(patience); err != nil {
		t.Fatal(err)
	}
	if out := tool(t, left, 0, "snapshot", "restore", after, "--data-dir", data(left)); !strings.Contains(out, "the only voter") {
		t.Errorf("restore: %s", out)
	}
	start(t, p, left)
	poll(t, patience, "it leads", func() (bool, string) {
		s := ask[status](t, left, "status")
		return s.Router.Raft.Leader == s.Router.ID && s.Router.Raft.ClusterID == cluster, fmt.Sprintf("%+v", s)
	})
	if ps := ask[[]pool](t, left, "pools"); ps[0].Target != 5 || !ps[0].Held {
		t.Errorf("the target is %+v", ps)
	}
	setTarget(t, left, "chat", 6)
	for _, r := range dead {
		start(t, p, r)
	}
	joined(t, p.Routers)
	voters(t, p.Routers, 3)
	for _, r := range p.Routers {
		if ps := ask[[]pool](t, r, "pools"); ps[0].Target != 6 {
			t.Errorf("%s: the target is %+v", r.Name, ps)
		}
	}

	// The snapshot of the beginning still fits the running cluster.
	tool(t, dead[0], 0, "snapshot", "restore", before)
	if ps := ask[[]pool](t, dead[0], "pools"); ps[0].Target != 5 {
		t.Errorf("restored: the target is %+v", ps)
	}

	// The recovered one leaves; the others go on, and its process has ended by itself.
	tool(t, left, 0, "leave")
	if err := left.Wait(patience); err != nil {
		t.Errorf("after leave it ended with %v", err)
	}
	setTarget(t, dead[1], "chat", 4)
}

// SIGHUP makes a router read its file again, and ends nothing.
func TestSIGHUPReloads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := cluster(t, harness.ProcsConfig{Routers: 1, Engines: 1, Dir: dir})
	r := p.Routers[0]
	file := filepath.Join(dir, r.Name+".yaml")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b = []byte(strings.Replace(string(b), "    model: ", "    aliases: [fresh]\n    model: ", 1))
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	fresh := strings.Replace(chat("hello", 2, false, ""), model, "fresh", 1)
	if resp, _ := whole(t, r.API+"/v1/chat/completions", fresh); resp.StatusCode != http.StatusNotFound {
		t.Errorf("before: status %d", resp.StatusCode)
	}
	if err := r.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	poll(t, patience, "the new name is served", func() (bool, string) {
		resp, body := whole(t, r.API+"/v1/chat/completions", fresh)
		return resp.StatusCode == http.StatusOK, body
	})
	if out := tool(t, r, 0, "reload"); !strings.Contains(out, "nothing to take") {
		t.Errorf("reload of the same file: %s", out)
	}
}
