package console

import (
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/state"
)

// A pool whose replicas prefill and decode apart has a target for each role, and none for
// replicas that it does not have.
func TestTargetsOfRoles(t *testing.T) {
	f := newFake()
	url := start(t, f, "") + "/admin/v1/pools/chat/target"
	call := func(body string, status int, says string) {
		t.Helper()
		if code, out := do(t, "PUT", url, body); code != status || !strings.Contains(out, says) {
			t.Errorf("%s: %d %s, want %d with %q", body, code, out, status, says)
		}
	}
	last := func() *state.Decision { return f.commits[len(f.commits)-1].Decision }

	call(`{"to":2,"role":"cook"}`, 400, `role is \"cook\"`)
	call(`{"to":2,"role":"prefill"}`, 400, "pool chat has no replicas of role prefill")
	call(`{"to":2}`, 200, "")
	f.store.SetReplicas(state.SourceStatic, "chat", []state.Replica{
		{ID: "127.0.0.1:8000", URL: "http://127.0.0.1:8000", Role: state.RolePrefill},
		{ID: "127.0.0.1:8001", URL: "http://127.0.0.1:8001", Role: state.RoleDecode},
		{ID: "127.0.0.1:8002", URL: "http://127.0.0.1:8002", Role: state.RoleDecode},
	})
	call(`{"to":2}`, 400, "say which with --role")
	call(`{"release":true}`, 400, "say which with --role")
	call(`{"to":2,"role":"both"}`, 400, "no replicas of role both")
	call(`{"to":3,"role":"decode"}`, 200, "")
	if d := last(); d.Role != state.RoleDecode || d.From != 2 || d.To != 3 {
		t.Errorf("%+v", d)
	}
	_, out := do(t, "GET", strings.TrimSuffix(url, "/chat/target"), "")
	if out = strings.Join(strings.Fields(out), ""); !strings.Contains(out, `"targets":[{"role":"prefill","target":0,"target_set":false,"held":false},{"role":"decode"`) {
		t.Errorf("pools: %s", out)
	}
}

// What keeps a role below its target is among the warnings, whichever role it is.
func TestWarningsOfRolesBelowTheirTargets(t *testing.T) {
	f := newFake()
	f.store.SetReplicas(state.SourceStatic, "chat", []state.Replica{
		{ID: "127.0.0.1:8000", URL: "http://127.0.0.1:8000", Role: state.RolePrefill},
		{ID: "127.0.0.1:8001", URL: "http://127.0.0.1:8001", Role: state.RoleDecode},
	})
	facts := f.store.View().Facts.Clone()
	facts.Index++
	facts.Targets[state.TargetKey{Pool: "chat", Role: state.RolePrefill}] = 1
	facts.Targets[state.TargetKey{Pool: "chat", Role: state.RoleDecode}] = 3
	f.store.SetFacts(facts)
	_, body := do(t, "GET", start(t, f, "")+"/admin/v1/status", "")
	if want := "pool chat (decode) has 1 of 3 replicas: start engine: nope: not found"; !strings.Contains(body, want) {
		t.Errorf("lacks %q: %s", want, body)
	}
	if strings.Contains(body, "pool chat (prefill) has") || strings.Contains(body, "pool chat has") {
		t.Errorf("warns of what is as it should be: %s", body)
	}
}

// A target of none is told from none.
func TestTargetOfNoneIsTold(t *testing.T) {
	f := newFake()
	url := start(t, f, "") + "/admin/v1/pools"
	told := func(want string) {
		t.Helper()
		_, out := do(t, "GET", url, "")
		if out = strings.Join(strings.Fields(out), ""); !strings.Contains(out, want) {
			t.Errorf("lacks %s: %s", want, out)
		}
	}
	told(`"target":0,"target_set":false`)
	facts := f.store.View().Facts.Clone()
	facts.Index++
	facts.Targets[state.TargetKey{Pool: "chat", Role: state.RoleBoth}] = 0
	f.store.SetFacts(facts)
	told(`"target":0,"target_set":true`)
}
