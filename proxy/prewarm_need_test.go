package proxy

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// A prompt goes only where nobody waits for what it would take.
func TestRoomForAPromptThatWarms(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		var log bytes.Buffer
		g, p := warmRig(t, w, 2, &log, says(jsonAnswer(200, good)))
		read := func(change func(r *state.Reading)) {
			time.Sleep(10 * time.Millisecond)
			r := state.UnknownReading("e1")
			r.OK, r.Reader, r.At = true, "r1", g.store.Clock().Stamp(time.Now())
			change(&r)
			g.store.ApplyReading(r)
		}
		base := g.store.View().Pools[0].Spec
		f := func(name string, want bool, change func(spec *state.PoolSpec, w *state.Weight) func()) {
			t.Helper()
			spec, weight := base, state.Weight{Slow: 1}
			read(func(*state.Reading) {})
			undo := change(&spec, &weight)
			g.store.SetPools([]state.PoolSpec{spec})
			g.store.SetWeights(&state.Weights{At: time.Now(), Replicas: map[state.ReplicaID]state.Weight{"e1": weight}})
			v := g.store.View()
			if got := p.hasRoom(v, v.Pools[0], v.Replica("e1"), time.Now()); got != want {
				t.Errorf("%s: room is %v", name, got)
			}
			if undo != nil {
				undo()
			}
		}
		load := func(n, prefilled int) func() {
			var ends []func()
			for i := range n {
				ticket := g.store.Begin(g.store.View().Replica("e1"), 100)
				if i < prefilled {
					ticket.FirstToken()
				}
				ends = append(ends, func() { ticket.End() })
			}
			return func() {
				for _, end := range ends {
					end()
				}
			}
		}
		type spec = state.PoolSpec
		type weight = state.Weight
		f("idle", true, func(*spec, *weight) func() { return nil })
		f("a prefill runs", false, func(*spec, *weight) func() { return load(1, 0) })
		f("streams run", true, func(*spec, *weight) func() { return load(3, 3) })
		f("the last place but one", true, func(s *spec, _ *weight) func() { s.MaxInFlight = 4; return load(2, 2) })
		f("the last place", false, func(s *spec, _ *weight) func() { s.MaxInFlight = 4; return load(3, 3) })
		f("one place, and it is free", true, func(s *spec, _ *weight) func() { s.MaxInFlight = 1; return nil })
		f("another router's prefill runs", false, func(*spec, *weight) func() {
			rows := state.Rows{Router: "b", Boot: 2, Seq: 1, Rows: []state.Row{{Replica: "e1", Load: state.Load{InFlight: 1, Prefill: 1}}}}
			g.store.ApplyRows(rows)
			return func() { rows.Seq, rows.Rows, rows.Full = 2, nil, true; g.store.ApplyRows(rows) }
		})
		f("requests wait at another router", false, func(*spec, *weight) func() {
			rows := state.Rows{Router: "b", Boot: 2, Seq: 3, Backlogs: []state.Backlog{{Pool: "chat", Requests: 1}}}
			g.store.ApplyRows(rows)
			return func() { rows.Seq, rows.Backlogs, rows.Full = 4, nil, true; g.store.ApplyRows(rows) }
		})
		f("requests wait inside", false, func(*spec, *weight) func() { read(func(r *state.Reading) { r.Waiting = 1 }); return nil })
		f("its KV is full", false, func(*spec, *weight) func() { read(func(r *state.Reading) { r.KVUsage = 0.95 }); return nil })
		f("ejected", false, func(_ *spec, w *weight) func() { w.Ejected = true; return nil })
		f("busy", false, func(_ *spec, w *weight) func() { w.BusyUntil = time.Now().Add(time.Second); return nil })
		f("drains", false, func(*spec, *weight) func() {
			g.store.SetDrain("e1", true, "")
			return func() { g.store.SetDrain("e1", false, "") }
		})
		f("tokens may cost", false, func(s *spec, _ *weight) func() { s.Engine = state.EngineOpenAI; return nil })
		f("tokens may cost, and shall", true, func(s *spec, _ *weight) func() { s.Engine, s.PrewarmPaid = state.EngineOpenAI, true; return nil })
	})
}

// A prompt goes with the salt of its tenant and with no wish of its client.
func TestWhatAPromptThatWarmsSays(t *testing.T) {
	f := func(name string, spec state.PoolSpec, kind state.EngineKind, last bool, body string, want map[string]any) {
		t.Helper()
		spec.Model = "m"
		ask, err := api.Parse(api.Chat, []byte(body))
		must(t, err)
		x := &warmPrompt{endpoint: api.Chat, seed: prefix.Seed{Tenant: "acme"}, body: []byte(body)}
		out := splice(nil, x.body, warmEdits(&spec, &state.ReplicaView{Replica: state.Replica{Engine: kind}}, x, &ask, last))
		var got map[string]any
		if err := json.Unmarshal(bytes.Join(out, nil), &got); err != nil {
			t.Fatalf("%s: %v in %s", name, err, out)
		}
		for key, v := range want {
			if got[key] != v {
				t.Errorf("%s: %s is %v, want %v", name, key, got[key], v)
			}
		}
		if n := bytes.Count(bytes.Join(out, nil), []byte(`"priority"`)); n > 1 {
			t.Errorf("%s: %d priorities", name, n)
		}
	}
	const plain = `{"model":"m","messages":[{"role":"user","content":"x"}]}`
	wishes := `{"priority":-5,"cache_salt":"mine","service_tier":"priority","stream":true,"max_tokens":9,` + plain[1:]
	isolated := state.PoolSpec{Isolation: isolateTenants}
	f("isolated", isolated, state.EngineVLLM, true, plain, map[string]any{"cache_salt": saltOf("acme"), "priority": 100.0, "max_tokens": 1.0, "stream": false})
	f("isolated, SGLang", isolated, state.EngineSGLang, false, wishes, map[string]any{"cache_salt": saltOf("acme"), "priority": nil, "max_tokens": 1.0})
	f("shared", state.PoolSpec{}, state.EngineVLLM, true, plain, map[string]any{"cache_salt": nil, "priority": 100.0})
	f("wishes", state.PoolSpec{}, state.EngineVLLM, true, wishes, map[string]any{
		"cache_salt": "mine", "priority": 100.0, "service_tier": "default", "stream": false, "max_tokens": 1.0,
	})
}
