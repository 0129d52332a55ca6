package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// newLeaderWithin is the promise of ARCHITECTURE's failure table.
const newLeaderWithin = 5 * time.Second

// When the leader dies another leads, and resizing goes on: real engines come and
// go as processes, each step is one decision on the record, and none is stopped
// before it has drained.
func TestLeaderKilledThenScale(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// The actuator's engines outlive their routers by design. The shell around each
	// ends it when this test's process is gone, so that an aborted run leaves none.
	engine := fmt.Sprintf("trap 'exit 0' TERM; %s engine-sim --port {port} --model {model} --speed 2 & "+
		"while kill -0 %d && kill -0 $!; do sleep 1; done 2>/dev/null; kill -9 0", binary, os.Getpid())
	p := cluster(t, harness.ProcsConfig{
		Dir: dir, Routers: 3,
		PoolYAML: fmt.Sprintf("    scale: {min: 1, max: 6, actuator: process, cooldown: 1s, down_window: 1s, dir: %q, command: [sh, -c, %q]}\n"+
			"    drain: {deadline: 1m}\n", filepath.Join(dir, "engines"), engine),
	})
	t.Cleanup(func() { endEngines(t, p, dir) })
	joined(t, p.Routers)
	setTarget(t, p.Routers[0], "chat", 2)
	ready(t, p.Routers, 2)
	done(t, p.Routers) // an outcome that the old leader did not commit is superseded

	voters(t, p.Routers, 3)

	dead, alive := leader(t, p.Routers)
	old := ask[status](t, dead, "status").Router
	dead.Kill()
	began := time.Now()
	poll(t, newLeaderWithin, "another router leads", func() (bool, string) {
		seen := ""
		for _, r := range alive {
			s := ask[status](t, r, "status").Router
			seen += fmt.Sprintf("%s: leader %q, term %d; ", r.Name, s.Raft.Leader, s.Raft.Term)
			if s.Raft.Leader == "" || s.Raft.Leader == old.ID || s.Raft.Term <= old.Raft.Term {
				return false, seen
			}
		}
		return true, seen
	})
	t.Logf("a new leader stood %v after the old one's end", time.Since(began).Round(10*time.Millisecond))
	leaders := 0
	for _, m := range ask[[]member](t, alive[0], "members") {
		if m.Leader {
			leaders++
			if m.ID == old.ID || m.State != "alive" {
				t.Errorf("the leader is %+v", m)
			}
		}
	}
	if leaders != 1 {
		t.Errorf("%d leaders are listed", leaders)
	}

	setTarget(t, alive[0], "chat", 4)
	ready(t, alive, 4)
	done(t, alive)

	drains(t, p, alive)
	done(t, alive)
	chain(t, alive[1])

	// It comes back as the member it was, knows the outcome, and serves.
	start(t, p, dead)
	joined(t, p.Routers)
	if got := ask[status](t, dead, "status").Router.ID; got != old.ID {
		t.Errorf("it came back as %s, was %s", got, old.ID)
	}
	ready(t, p.Routers, 2)
	if resp, body := whole(t, dead.API+"/v1/chat/completions", chat("hello", 2, false, "")); resp.StatusCode != http.StatusOK {
		t.Errorf("status %d, %s", resp.StatusCode, body)
	}
}

// drains scales from four to two while a stream runs on every engine: the engines
// that go finish theirs first.
func drains(t *testing.T, p *harness.Procs, alive []*harness.Proc) {
	t.Helper()
	before := ask[[]replica](t, alive[0], "replicas")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	streams := map[string]*bufio.Reader{}
	for i := 0; len(streams) < 4 && i < 40; i++ {
		resp := post(ctx, t, alive[i%2].API+"/v1/chat/completions", chat(long(fmt.Sprintf("drain %d", i), 10), 400, true, ""), "x-hearsay-debug", "1")
		defer func() { _ = resp.Body.Close() }()
		at := resp.Header.Get("X-Hearsay-Replica")
		if streams[at] == nil {
			streams[at] = bufio.NewReader(resp.Body)
			events(t, streams[at], 1)
		}
	}
	if len(streams) != 4 {
		t.Fatalf("streams run on %d of 4 engines", len(streams))
	}
	pids := p.Started()
	if len(pids) != 4 {
		t.Errorf("%d engine processes run: %v", len(pids), pids)
	}
	setTarget(t, alive[1], "chat", 2)
	for at, r := range streams {
		all := events(t, r, 1000)
		if len(all) < 399 || all[len(all)-1] != "[DONE]" {
			t.Errorf("the stream at %s was cut after %d events", at, len(all))
		}
	}
	ready(t, alive, 2)
	poll(t, patience, "two engine processes are left", func() (bool, string) {
		n := 0
		for _, pid := range pids {
			if harness.Alive(pid) {
				n++
			}
		}
		return n == 2, fmt.Sprint(n)
	})
	after := ask[[]replica](t, alive[0], "replicas")
	for _, r := range after {
		if !slices.ContainsFunc(before, func(b replica) bool { return b.ID == r.ID }) {
			t.Errorf("scaling down brought %s", r.ID)
		}
	}
}

// ready waits until every router knows n replicas of the pool, all ready.
func ready(t *testing.T, routers []*harness.Proc, n int) {
	t.Helper()
	poll(t, 2*patience, fmt.Sprintf("%d replicas are ready on every router", n), func() (bool, string) {
		for _, r := range routers {
			ps := ask[[]pool](t, r, "pools")
			if len(ps) != 1 || ps[0].Replicas != n || ps[0].Ready != n || ps[0].Target != n {
				return false, fmt.Sprintf("%s: %+v, decisions %+v", r.Name, ps, ask[[]decision](t, r, "decisions"))
			}
		}
		return true, ""
	})
}

// voters waits until every router counts n voters: with fewer, the loss of one
// could leave no majority.
func voters(t *testing.T, routers []*harness.Proc, n int) {
	t.Helper()
	poll(t, patience, fmt.Sprintf("every router counts %d voters", n), func() (bool, string) {
		for _, r := range routers {
			if v := ask[status](t, r, "status").Router.Raft.Voters; len(v) != n {
				return false, fmt.Sprintf("%s: %v", r.Name, v)
			}
		}
		return true, ""
	})
}

// done waits until no decision is under way.
func done(t *testing.T, routers []*harness.Proc) {
	t.Helper()
	poll(t, 2*patience, "every decision is done", func() (bool, string) {
		for _, r := range routers {
			ds := ask[[]decision](t, r, "decisions")
			for _, d := range ds {
				if d.Outcome == "" {
					return false, fmt.Sprintf("%s: %+v", r.Name, d)
				}
			}
		}
		return true, ""
	})
}

// chain checks the record: newest first, each decision changes the target once,
// from where the one before it had left it, with a reason, and was carried out.
func chain(t *testing.T, r *harness.Proc) {
	t.Helper()
	ds := ask[[]decision](t, r, "decisions")
	for i, d := range ds {
		t.Logf("%s: %d to %d by %s: %s, %s %s", d.ID, d.From, d.To, d.By, d.Reason, d.Outcome, d.Detail)
		if d.From == d.To || d.Reason == "" || d.By == "" || d.ID == "" || d.Outcome != "done" {
			t.Errorf("decision %+v", d)
		}
		if i+1 < len(ds) && d.From != ds[i+1].To {
			t.Errorf("decision %s starts from %d, the one before it ended at %d", d.ID, d.From, ds[i+1].To)
		}
	}
	if len(ds) < 3 || ds[0].To != 2 || ds[0].From != 4 || ds[1].To != 4 {
		t.Errorf("%d decisions: %+v", len(ds), ds)
	}
}

// endEngines ends the cluster and checks that none of its engines lives on.
func endEngines(t *testing.T, p *harness.Procs, dir string) {
	pids := p.Started()
	p.Close()
	poll(t, patience, "no engine process is left in "+dir, func() (bool, string) {
		for _, pid := range pids {
			if harness.Alive(pid) {
				return false, fmt.Sprint(pid)
			}
		}
		return true, ""
	})
}
