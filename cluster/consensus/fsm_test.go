package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/state"
)

var chat = state.TargetKey{Pool: "chat", Role: state.RoleBoth}

func decision(id string, from, to int, by string) *state.Decision {
	return &state.Decision{ID: id, Pool: "chat", Role: state.RoleBoth, From: from, To: to, By: by}
}

func TestCommands(t *testing.T) {
	m := newMachine(func(*state.Facts) {})
	index := uint64(0)
	f := func(c state.Command, code state.RefusalCode) {
		t.Helper()
		index++
		before := m.facts
		r := m.apply(&c, index)
		if r.Code != code {
			t.Errorf("%s: %q (%s), want %q", c.Kind, r.Code, r.Reason, code)
		}
		if code != "" && m.facts != before {
			t.Errorf("%s: refused, and changed the facts", c.Kind)
		}
		if code == "" && m.facts.Index != index {
			t.Errorf("%s: index %d", c.Kind, m.facts.Index)
		}
	}
	set := func(epoch uint64, d *state.Decision) state.Command {
		return state.Command{Kind: state.CommandSetTarget, Epoch: epoch, Decision: d}
	}
	settle := func(id string, o state.Outcome) state.Command {
		return state.Command{Kind: state.CommandSettle, Settles: id, Outcome: o}
	}
	f(state.Command{Kind: state.CommandSetClusterID, Cluster: "x"}, "")
	f(state.Command{Kind: state.CommandSetClusterID, Cluster: "y"}, state.RefusedSettled)
	f(state.Command{Kind: state.CommandBeginTerm, Router: "r1"}, "")
	e := m.facts.Epoch
	if e != 3 || m.facts.Leader != "r1" {
		t.Fatalf("epoch %d, leader %q", e, m.facts.Leader)
	}
	f(set(0, decision("d0", 0, 2, "r1")), state.RefusedStaleEpoch)
	f(set(e-1, decision("d0", 0, 2, "r1")), state.RefusedStaleEpoch)
	f(set(e, decision("d1", 0, 2, "r1")), "")
	f(set(e, decision("d1", 2, 3, "r1")), state.RefusedInvalid)
	f(set(e, decision("d2", 2, 3, "r1")), state.RefusedOverlap)
	f(settle("d1", "perhaps"), state.RefusedInvalid)
	f(settle("d9", state.OutcomeDone), state.RefusedUnknown)
	f(settle("d1", state.OutcomeDone), "")
	f(settle("d1", state.OutcomeDone), "")
	f(settle("d1", state.OutcomeFailed), state.RefusedSettled)
	f(set(e, decision("d2", 1, 3, "r1")), state.RefusedChanged)
	f(set(e, decision("d2", 2, 3, "r1")), "")
	c := set(0, decision("op1", 99, 5, state.ByOperator))
	c.Hold = true
	f(c, "")
	if d := m.facts.Decision("d2"); d.Outcome != state.OutcomeSuperseded {
		t.Errorf("an operator's target leaves %+v", d)
	}
	if d := m.facts.Decision("op1"); d.From != 3 || m.facts.Targets[chat] != 5 || d.Index != index || d.Epoch != e {
		t.Errorf("%+v", d)
	}
	f(set(e, decision("d3", 5, 6, "r1")), state.RefusedHeld)
	f(state.Command{Kind: state.CommandRelease, Target: chat}, "")
	f(state.Command{Kind: state.CommandHold, Target: chat}, "")
	f(state.Command{Kind: state.CommandHold}, state.RefusedInvalid)
	f(set(e, decision("d3", 5, -1, state.ByOperator)), state.RefusedInvalid)
	f(replica(1), "")
	f(state.Command{Kind: state.CommandAddReplica, Replica: &state.Replica{ID: "x"}}, state.RefusedInvalid)
	f(state.Command{Kind: state.CommandDrain, Of: "replica1", Drain: &state.Drain{By: "op"}}, "")
	if d := m.facts.Draining["replica1"]; d.Index != index {
		t.Errorf("%+v", d)
	}
	f(state.Command{Kind: state.CommandDrain, Of: "replica1"}, state.RefusedInvalid)
	f(state.Command{Kind: state.CommandUndrain, Of: "replica1", Epoch: e}, "")
	if len(m.facts.Draining)+len(m.facts.Undrained) != 0 {
		t.Errorf("the leader took back its drain: %+v, %+v", m.facts.Draining, m.facts.Undrained)
	}
	f(state.Command{Kind: state.CommandUndrain, Of: "replica1"}, "")
	if m.facts.Undrained["replica1"] != index {
		t.Errorf("an operator's undrain: %+v", m.facts.Undrained)
	}
	f(state.Command{Kind: state.CommandDrain, Of: "replica1", Drain: &state.Drain{}}, "")
	if len(m.facts.Undrained) != 0 {
		t.Errorf("drained again: %+v", m.facts.Undrained)
	}
	f(state.Command{Kind: state.CommandRemoveReplica, Of: "replica1", Epoch: e - 1}, state.RefusedStaleEpoch)
	f(state.Command{Kind: state.CommandRemoveReplica, Of: "replica1", Epoch: e}, "")
	if len(m.facts.Replicas)+len(m.facts.Draining) != 0 {
		t.Error("a removed replica left something")
	}
	policy := func(pool, policy string) state.Command {
		return state.Command{Kind: state.CommandSetPolicy, Pool: pool, Policy: policy}
	}
	f(policy("chat", "auto"), "")
	f(policy("chat", "session"), "")
	f(policy("other", "auto"), "")
	if p := m.facts.Policies; p["chat"] != "session" || p["other"] != "auto" {
		t.Errorf("policies: %v", p)
	}
	f(policy("other", ""), "")
	if p := m.facts.Policies; len(p) != 1 {
		t.Errorf("given back: %v", p)
	}
	f(policy("", "auto"), state.RefusedInvalid)
	f(policy("chat", strings.Repeat("x", maxText+1)), state.RefusedInvalid)
	for i := range maxPolicies - 1 {
		f(policy(fmt.Sprint("p", i), "auto"), "")
	}
	f(policy("one more", "auto"), state.RefusedFull)
	f(policy("chat", "ttft"), "")
	config := func(pools map[string]string) state.Command {
		return state.Command{Kind: state.CommandSetConfig, Pools: pools}
	}
	for i, pools := range []map[string]string{{"chat": "1"}, {"chat": "2"}, {"chat": "2"}, {"chat": "2", "code": "1"}} {
		f(config(pools), "")
		if c := m.facts.Config; c.Revision != []uint64{1, 2, 2, 3}[i] || !c.Is(pools) {
			t.Errorf("configuration %v: %+v", pools, c)
		}
	}
	f(config(nil), state.RefusedInvalid)
	f(config(map[string]string{"chat": ""}), state.RefusedInvalid)
	f(config(map[string]string{"chat": strings.Repeat("x", maxDigest+1)}), state.RefusedInvalid)
	f(state.Command{Kind: state.CommandRestore}, state.RefusedInvalid)
	f(state.Command{Kind: "dance"}, state.RefusedInvalid)
	f(state.Command{Kind: state.CommandRemoveMember}, state.RefusedInvalid)
}

func TestRepeatedCommandHappensOnce(t *testing.T) {
	m := newMachine(func(*state.Facts) {})
	a := replica(1)
	a.ID = "k1"
	first := m.apply(&a, 10)
	rm := state.Command{ID: "k2", Kind: state.CommandRemoveReplica, Of: "replica1"}
	m.apply(&rm, 11)
	again := m.apply(&a, 12)
	if !again.Repeated || again.Index != first.Index || len(m.facts.Replicas) != 0 || m.facts.Index != 11 {
		t.Errorf("%+v after %+v; facts %+v", again, first, m.facts)
	}
	// Refusals are remembered too.
	bad := state.Command{ID: "k3", Kind: state.CommandSettle, Settles: "d1", Outcome: state.OutcomeDone}
	m.apply(&bad, 13)
	if r := m.apply(&bad, 14); r.Code != state.RefusedUnknown || !r.Repeated {
		t.Errorf("%+v", r)
	}
	// And the memory survives a snapshot, and is bounded.
	n := restored(t, m)
	if r := n.apply(&a, 15); !r.Repeated || len(n.facts.Replicas) != 0 {
		t.Errorf("after a snapshot: %+v", r)
	}
	for i := range 2 * maxSeen {
		n.apply(&state.Command{ID: fmt.Sprint("x", i), Kind: state.CommandRelease}, uint64(20+i))
	}
	if len(n.seen) != maxSeen || len(n.order) != maxSeen {
		t.Errorf("%d ids remembered", len(n.seen))
	}
}

// restored takes a machine through a snapshot.
func restored(t interface{ Fatal(...any) }, m *machine) *machine {
	s, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	store := raft.NewInmemSnapshotStore()
	sink, err := store.Create(raft.SnapshotVersionMax, 1, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Persist(sink); err != nil {
		t.Fatal(err)
	}
	_, r, err := store.Open(sink.ID())
	if err != nil {
		t.Fatal(err)
	}
	n := newMachine(func(*state.Facts) {})
	if err := n.Restore(r); err != nil {
		t.Fatal(err)
	}
	return n
}

func anyCommand(t *rapid.T) state.Command {
	id := func(what string) string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, what) }
	c := state.Command{ID: rapid.SampledFrom([]string{"", "1", "2", "3", "4", "5", "6"}).Draw(t, "id")}
	switch rapid.IntRange(0, 11).Draw(t, "kind") {
	case 0:
		by := rapid.SampledFrom([]string{"r1", state.ByOperator}).Draw(t, "by")
		c.Kind, c.Epoch, c.Decision = state.CommandSetTarget, rapid.Uint64Range(0, 5).Draw(t, "epoch"),
			decision(id("decision")+fmt.Sprint(rapid.IntRange(0, 400).Draw(t, "n")), rapid.IntRange(0, 3).Draw(t, "from"), rapid.IntRange(-1, 3).Draw(t, "to"), by)
		c.Decision.Evidence = map[string]float64{"x": rapid.Float64().Draw(t, "x")}
	case 1:
		c.Kind, c.Settles, c.Outcome = state.CommandSettle, id("settles"), state.OutcomeDone
	case 2:
		c = replica(rapid.IntRange(0, 3).Draw(t, "replica"))
	case 3:
		c.Kind, c.Of = state.CommandRemoveReplica, state.ReplicaID(id("of"))
	case 4:
		c.Kind, c.Of, c.Drain = state.CommandDrain, state.ReplicaID(id("of")), &state.Drain{By: id("by")}
	case 5:
		c.Kind, c.Target = state.CommandHold, state.TargetKey{Pool: id("pool")}
	case 6:
		c.Kind, c.Router = state.CommandBeginTerm, "r1"
	case 7:
		c.Kind, c.Target = state.CommandRelease, state.TargetKey{Pool: id("pool")}
	case 8:
		c.Kind, c.Of = state.CommandUndrain, state.ReplicaID(id("of"))
	case 9:
		c.Kind, c.Pool, c.Policy = state.CommandSetPolicy, id("pool"), rapid.SampledFrom([]string{"", "auto", "ttft"}).Draw(t, "policy")
	case 10:
		c.Kind, c.Pools = state.CommandSetConfig, map[string]string{id("pool"): id("digest")}
	case 11:
		saved := state.NewFacts()
		saved.ClusterID, saved.Index = "c", rapid.Uint64Range(1, 99).Draw(t, "index")
		saved.Draining[state.ReplicaID(id("of"))] = state.Drain{Index: 1}
		c.Kind, c.Facts, c.Force = state.CommandRestore, saved, rapid.Bool().Draw(t, "force")
	}
	return c
}

// Two machines that apply the same log are the same, one of them restored from a
// snapshot at any point.
func TestMachineIsAFunctionOfItsLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := newMachine(func(*state.Facts) {}), newMachine(func(*state.Facts) {})
		n := rapid.IntRange(1, 60).Draw(t, "commands")
		at := rapid.IntRange(0, n).Draw(t, "snapshot")
		for i := range n {
			if i == at {
				b = restored(t, b)
			}
			c := anyCommand(t)
			data, err := encodeCommand(&c)
			if err != nil {
				t.Fatal(err)
			}
			l := &raft.Log{Index: uint64(i + 1), Data: data}
			if x, y := a.Apply(l), b.Apply(l); !reflect.DeepEqual(x, y) {
				t.Fatalf("%v and %v", x, y)
			}
		}
		x, err1 := EncodeFacts(a.facts)
		y, err2 := EncodeFacts(b.facts)
		if errors.Join(err1, err2) != nil || !bytes.Equal(x, y) {
			t.Fatalf("%s\n%s", x, y)
		}
		f, err := DecodeFacts(x)
		if err != nil {
			t.Fatal(err)
		}
		if z, err := EncodeFacts(f); err != nil || !bytes.Equal(x, z) {
			t.Fatalf("decoded and encoded again: %v\n%s\n%s", err, x, z)
		}
	})
}

func TestPublishedFactsAreNeverChanged(t *testing.T) {
	type kept struct {
		f *state.Facts
		b string
	}
	rapid.Check(t, func(t *rapid.T) {
		var list []kept
		m := newMachine(func(f *state.Facts) {
			b, err := EncodeFacts(f)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, kept{f, string(b)})
		})
		for i := range rapid.IntRange(1, 40).Draw(t, "commands") {
			c := anyCommand(t)
			m.apply(&c, uint64(i+1))
		}
		for _, k := range list {
			if b, err := EncodeFacts(k.f); err != nil || string(b) != k.b {
				t.Fatalf("facts of index %d changed", k.f.Index)
			}
		}
	})
}

func TestDecisionLogIsBoundedAndKeepsTheOpenOne(t *testing.T) {
	m := newMachine(func(*state.Facts) {})
	m.apply(&state.Command{Kind: state.CommandSetTarget, Decision: &state.Decision{ID: "open", Pool: "other", By: state.ByOperator}}, 1)
	for i := range 2 * state.MaxDecisions {
		c := state.Command{Kind: state.CommandSetTarget, Decision: decision(fmt.Sprint("d", i), 0, i%3, state.ByOperator)}
		m.apply(&c, uint64(i+2))
	}
	if n := len(m.facts.Decisions); n != state.MaxDecisions || m.facts.Decision("open") == nil {
		t.Errorf("%d decisions, the open one: %v", n, m.facts.Decision("open"))
	}
}

func TestUndrainsAreBoundedAndTheOldestGoes(t *testing.T) {
	m := newMachine(func(*state.Facts) {})
	for i := range state.MaxUndrained + 2 {
		m.apply(&state.Command{Kind: state.CommandUndrain, Of: state.ReplicaID(fmt.Sprint("r", i))}, uint64(i+1))
	}
	_, first := m.facts.Undrained["r1"]
	_, third := m.facts.Undrained["r2"]
	if n := len(m.facts.Undrained); n != state.MaxUndrained || first || !third {
		t.Errorf("%d kept; the second %v, the third %v", n, first, third)
	}
}

func TestForeignBytesDoNothing(t *testing.T) {
	m := newMachine(func(*state.Facts) { t.Error("published") })
	for _, s := range []string{"", "x", "{}", `{"v":2,"kind":"hold"}`, `{"v":1}`, `{"v":1,"kind":"set_target"}`, `{"v":1,"kind":"drain","drain":null}`, "[]", "null"} {
		if r, ok := m.Apply(&raft.Log{Index: 5, Data: []byte(s)}).(Result); !ok || r.Code == "" {
			t.Errorf("%q: %+v", s, r)
		}
	}
	for _, s := range []string{"", "{}", `{"facts":{"v":9}}`, `{"facts":null}`, "[]"} {
		if err := m.Restore(io.NopCloser(bytes.NewReader([]byte(s)))); err == nil {
			t.Errorf("%q restored", s)
		}
	}
	// A field of a later release is skipped.
	if _, err := decodeCommand([]byte(`{"v":1,"id":"a","kind":"hold","mood":"good"}`)); err != nil {
		t.Error(err)
	}
}

func FuzzCommand(f *testing.F) {
	for _, c := range []state.Command{
		replica(1),
		{ID: "a", Kind: state.CommandSetTarget, Epoch: 3, Decision: decision("d", 1, 2, state.ByOperator)},
		{ID: "b", Kind: state.CommandDrain, Of: "x", Drain: &state.Drain{Reason: "r", Deadline: 5}},
		{ID: "c", Kind: state.CommandSettle, Settles: "d", Outcome: state.OutcomeFailed},
	} {
		b, err := encodeCommand(&c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := newMachine(func(*state.Facts) {})
		m.Apply(&raft.Log{Index: 1, Data: data})
		m.Apply(&raft.Log{Index: 2, Data: data})
		restored(t, m)
	})
}

func FuzzFacts(f *testing.F) {
	m := newMachine(func(*state.Facts) {})
	c := replica(1)
	m.apply(&c, 1)
	m.apply(&state.Command{Kind: state.CommandSetTarget, Decision: decision("d", 0, 2, state.ByOperator)}, 2)
	b, err := EncodeFacts(m.facts)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"v":1,"targets":[{"pool":"p","hold":true}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := DecodeFacts(data)
		if err != nil {
			return
		}
		b, err := EncodeFacts(x)
		if err != nil {
			t.Fatal(err)
		}
		y, err := DecodeFacts(b)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := EncodeFacts(y); err != nil || !bytes.Equal(b, c) {
			t.Fatalf("%s\n%s\n%v", b, c, err)
		}
	})
}

// What was written before pools could have a policy is read, and has none.
func TestFactsWithoutPolicies(t *testing.T) {
	f, err := DecodeFacts([]byte(`{"v":1,"index":7,"cluster_id":"c"}`))
	if err != nil || f.Index != 7 || f.Policies == nil || len(f.Policies) != 0 {
		t.Fatalf("%+v, %v", f, err)
	}
	b, err := EncodeFacts(f)
	if err != nil || strings.Contains(string(b), "policies") {
		t.Errorf("no policy is no field: %s, %v", b, err)
	}
}
