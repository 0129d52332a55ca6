package console

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/routing/balance"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

func TestSetPolicy(t *testing.T) {
	f := newFake()
	url := start(t, f, "")
	put := func(pool, body string, status int, parts ...string) {
		t.Helper()
		got, out := do(t, "PUT", url+"/admin/v1/pools/"+pool+"/policy", body, "Idempotency-Key", "k")
		if got != status {
			t.Errorf("%s %s: status %d: %s", pool, body, got, out)
		}
		for _, p := range parts {
			if !strings.Contains(out, p) {
				t.Errorf("%s %s: %s lacks %q", pool, body, out, p)
			}
		}
	}
	put("chat", `{"policy":"auto"}`, 200, `"index": 1`)
	if c := f.commits[0]; c.Kind != state.CommandSetPolicy || c.Pool != "chat" || c.Policy != "auto" || c.ID != "set_policy:k" {
		t.Errorf("%+v", c)
	}
	put("chat", `{"policy":"best"}`, 400, `policy \"best\" is unknown: use ttft, `)
	put("chat", `{}`, 400)
	put("chat", `{"polcy":"auto"}`, 400)
	put("none", `{"policy":"auto"}`, 404)
	put("chat", `{"policy":""}`, 200, "has the policy of its configuration, ttft: nothing changed")
	if len(f.commits) != 1 {
		t.Errorf("%+v", f.commits)
	}
	facts := state.NewFacts()
	facts.Index, facts.Policies["chat"], facts.Policies["gone"] = 9, "auto", "auto"
	f.store.SetFacts(facts)
	put("chat", `{"policy":"auto"}`, 200, "policy auto, set already: nothing changed")
	put("gone", `{"policy":""}`, 200)
	put("chat", `{"policy":""}`, 200)
	if c := f.commits[len(f.commits)-1]; len(f.commits) != 3 || c.Pool != "chat" || c.Policy != "" {
		t.Errorf("%+v", f.commits)
	}
	f.err = ErrNoLeader
	put("chat", `{"policy":"session"}`, 503, "no_leader")

	_, out := do(t, "GET", url+"/admin/v1/pools", "")
	var list []Pool
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	if p := list[0]; p.Policy != "auto" || p.FilePolicy != "" || p.Effective != "ttft" || p.Sharing != -1 {
		t.Errorf("%+v", p)
	}
	f.store.SetWeights(&state.Weights{Pools: map[string]state.PoolBalance{"chat": {LoadOnly: true, Picks: 50, Sharing: 0.01}}})
	if _, out := do(t, "GET", url+"/admin/v1/pools", ""); !strings.Contains(out, `"effective_policy": "ttft_load"`) || !strings.Contains(out, `"sharing_ratio": 0.01`) {
		t.Error(out)
	}
}

func TestDiagnoseOverHTTP(t *testing.T) {
	f := newFake()
	url := start(t, f, "")
	ask := func(query string) (list []Diagnosis) {
		t.Helper()
		status, out := do(t, "GET", url+"/admin/v1/diagnose"+query, "")
		if err := json.Unmarshal([]byte(out), &list); status != 200 || err != nil {
			t.Fatalf("status %d, %v: %s", status, err, out)
		}
		return list
	}
	if d := ask("")[0]; d.Pool != "chat" || d.Findings[0].Class != balance.Healthy {
		t.Errorf("%+v", d)
	}
	for range 3 {
		f.partings = append(f.partings, prefix.Parting{Path: "messages[0].content", Byte: 12, Value: prefix.ValueTimestamp, Shared: 30, Prompt: 9000, Again: 8500})
	}
	f.store.SetWeights(&state.Weights{Pools: map[string]state.PoolBalance{"chat": {Picks: 50, Hot: []state.HotPrefix{{Mark: 7, Tokens: 512, Share: 0.4, Holders: 2}}}}})
	d := ask("?pool=chat")[0]
	if f := d.Findings[0]; f.Class != balance.BrokenPrefix || !strings.Contains(f.Text, "messages[0].content, byte 12") || !strings.Contains(f.Text, "timestamp") {
		t.Errorf("%+v", f)
	}
	if len(d.Hot) != 1 || d.Hot[0] != (HotPrefix{512, 0.4, 2}) || d.Sharing != 0 {
		t.Errorf("%+v", d)
	}
	if status, _ := do(t, "GET", url+"/admin/v1/diagnose?pool=none", ""); status != 404 {
		t.Errorf("status %d", status)
	}
}
