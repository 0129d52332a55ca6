package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// Without a majority requests flow and nothing can be changed; when the others come
// back from their disks, all is as it was. Stopped whole and started again, the
// cluster still knows its facts and what its replicas hold.
func TestNoQuorumThenRestart(t *testing.T) {
	t.Parallel()
	p := cluster(t, harness.ProcsConfig{Routers: 3, Engines: 2, EngineArgs: []string{"--speed", "4"}})
	joined(t, p.Routers)
	voters(t, p.Routers, 3)
	setTarget(t, p.Routers[2], "chat", 5)
	left, dead := p.Routers[0], p.Routers[1:]
	poll(t, patience, "the target is known", func() (bool, string) {
		ps := ask[[]pool](t, left, "pools")
		return ps[0].Target == 5 && ps[0].Held, fmt.Sprintf("%+v", ps)
	})
	id := ask[status](t, left, "status").Router.ID
	for _, r := range dead {
		r.Kill()
	}
	poll(t, patience, "the one left knows that it has no leader", func() (bool, string) {
		s := ask[status](t, left, "status")
		return s.Router.Raft.Leader == "" && s.Alive == 1, fmt.Sprintf("%+v", s)
	})
	if s := ask[status](t, left, "status"); !s.Ready {
		t.Errorf("without quorum it is not ready: %+v", s)
	}
	prompt := long("what is learned alone", 300)
	resp, body := whole(t, left.API+"/v1/chat/completions", chat(prompt, 2, false, ""), "x-hearsay-debug", "1")
	holder := resp.Header.Get("X-Hearsay-Replica")
	if resp.StatusCode != http.StatusOK {
		t.Errorf("without quorum: status %d, %s", resp.StatusCode, body)
	}
	if resp, body := put(t, left.Admin+"/admin/v1/pools/chat/target", `{"to":6}`); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "no_leader") {
		t.Errorf("a write without quorum: status %d, %s", resp.StatusCode, body)
	}

	for _, r := range dead {
		start(t, p, r)
	}
	joined(t, p.Routers)
	for _, r := range p.Routers {
		if ps := ask[[]pool](t, r, "pools"); ps[0].Target != 5 || !ps[0].Held {
			t.Errorf("%s: the target is %+v", r.Name, ps)
		}
	}
	setTarget(t, dead[0], "chat", 6)

	for _, r := range p.Routers {
		if err := r.Stop(patience); err != nil {
			t.Fatalf("stop %s: %v", r.Name, err)
		}
	}
	for _, r := range p.Routers {
		if err := p.Start(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range p.Routers {
		if err := r.WaitReady(t.Context(), patience); err != nil {
			t.Fatal(err)
		}
		e := explain(t, r, chat(prompt+" And then?", 2, true, ""))
		if !slices.ContainsFunc(e.Candidates, func(c candidate) bool { return c.Replica == holder && c.MatchedTokens > e.PromptTokens/2 }) {
			t.Errorf("restarted, %s does not know that %s holds the prompt: %+v", r.Name, holder, e)
		}
	}
	joined(t, p.Routers)
	if got := ask[status](t, left, "status").Router.ID; got != id {
		t.Errorf("%s came back as %s", id, got)
	}
	for _, r := range p.Routers {
		if ps := ask[[]pool](t, r, "pools"); ps[0].Target != 6 {
			t.Errorf("%s: the target is %+v", r.Name, ps)
		}
	}
}

// start starts a router again and waits until it is ready.
func start(t *testing.T, p *harness.Procs, r *harness.Proc) {
	t.Helper()
	if err := p.Start(r); err != nil {
		t.Fatal(err)
	}
	if err := r.WaitReady(t.Context(), patience); err != nil {
		t.Fatal(err)
	}
}
