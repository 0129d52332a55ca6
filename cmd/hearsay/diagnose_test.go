package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/routing/balance"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

var updateGolden = flag.Bool("update", false, "rewrite testdata/diagnose")

// situation is one that diagnose has to tell, and one that looks much like it and is
// not.
type situation struct {
	name, class string
	make        func(t *testing.T) *ward
	near        func(t *testing.T) *ward
}

// level runs a pool with these queues, in seconds, until they are smooth.
func level(t *testing.T, seconds ...float64) *ward {
	w := newWard(t, len(seconds))
	w.queue(seconds...)
	w.run(4*time.Minute, nil)
	return w
}

// agents are the partings of agents' prompts, each of which begins with the time.
func agents(stamp time.Duration, manual string) (list []prefix.Parting) {
	at := time.Date(2026, 11, 30, 13, 18, 40, 0, time.UTC)
	prompt := func(i int) prefix.Input {
		b, _ := json.Marshal([]map[string]string{
			{"role": "system", "content": "Current time: " + at.Add(time.Duration(i)*stamp).Format(time.RFC3339) + "\nYou are a careful agent. " + strings.ReplaceAll(manual, "#", fmt.Sprint(i))},
			{"role": "user", "content": fmt.Sprintf("Question %d of somebody.", i)},
		})
		return prefix.Input{Kind: prefix.Chat, Messages: b}
	}
	for i := range 4 {
		for j := range i {
			if p, ok := prefix.Part(prefix.Seed{}, prompt(j), prefix.Seed{}, prompt(i)); ok {
				list = append(list, p)
			}
		}
	}
	return list
}

func text(line string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, line, i*7919, i*104729%7907)
	}
	return b.String()
}

var situations = []situation{
	{
		"skewed", balance.Skewed,
		func(t *testing.T) *ward { return level(t, 6, 0.1, 0.2, 0.1) },
		func(t *testing.T) *ward { return level(t, 0.8, 0.1, 0.1, 0.1) }, // uneven, and nobody waits long
	},
	{
		"short", balance.Short,
		func(t *testing.T) *ward {
			w := level(t, 0.5, 0.5, 0.5)
			w.run(2*time.Minute, func(s int) { q := 0.5 + 0.05*float64(s); w.queue(q, q+0.2, q+0.1) })
			return w
		},
		func(t *testing.T) *ward { // one of three has room
			w := level(t, 0.5, 0.5, 0.5)
			w.run(2*time.Minute, func(s int) { q := 0.5 + 0.05*float64(s); w.queue(q, q+0.2, 0.5) })
			return w
		},
	},
	{
		"spike", balance.Spike,
		func(t *testing.T) *ward {
			w := level(t, 0.1, 0.1, 0.1)
			w.queue(9, 9, 9)
			w.run(8*time.Second, nil)
			w.run(8*time.Second, func(s int) { q := 9 - 0.6*float64(s); w.queue(q, q, q) })
			return w
		},
		func(t *testing.T) *ward { return level(t, 9, 9, 9) }, // for minutes: it is short
	},
	{
		"broken prefix", balance.BrokenPrefix,
		func(t *testing.T) *ward {
			w := newWard(t, 2)
			w.run(time.Minute, func(int) { w.prompts(2, 0.02) })
			w.partings = agents(37*time.Second, text("Rule %d: answer %d briefly. ", 200))
			return w
		},
		func(t *testing.T) *ward { // as early, and what follows is other text
			w := newWard(t, 2)
			w.run(time.Minute, func(int) { w.prompts(2, 0.02) })
			w.partings = agents(37*time.Second, text("#%d is#%d of#. ", 200))
			return w
		},
	},
	{
		"cold adapter", balance.ColdAdapter,
		func(t *testing.T) *ward {
			w := newWard(t, 2)
			w.readings[1] = func(r *state.Reading) {
				r.AdapterSlots, r.AdaptersRunning, r.AdaptersWaiting = 2, []string{"law", "tax"}, []string{"med", "tax"}
			}
			w.run(10*time.Second, nil)
			return w
		},
		func(t *testing.T) *ward { // it waits for room, not for its adapter
			w := newWard(t, 2)
			w.readings[1] = func(r *state.Reading) {
				r.AdapterSlots, r.AdaptersRunning, r.AdaptersWaiting = 2, []string{"law", "tax"}, []string{"tax"}
			}
			w.run(10*time.Second, nil)
			return w
		},
	},
	{
		"KV full", balance.KVFull,
		func(t *testing.T) *ward {
			w := newWard(t, 3)
			w.readings[0] = func(r *state.Reading) { r.KVUsage, r.Running, r.Waiting = 0.99, 31, 7 }
			w.run(10*time.Second, nil)
			return w
		},
		func(t *testing.T) *ward { // full, and nobody waits
			w := newWard(t, 3)
			w.readings[0] = func(r *state.Reading) { r.KVUsage, r.Running, r.Waiting = 0.99, 31, 0 }
			w.run(10*time.Second, nil)
			return w
		},
	},
	{
		"slow replica", balance.SlowReplica,
		func(t *testing.T) *ward {
			w := newWard(t, 4)
			w.rates[w.store.SlotOf(w.id(2))] = 2500
			w.queue(0.2, 0.2, 1, 0.2) // its queue is long since it is slow: not skewed
			w.run(time.Minute, nil)
			return w
		},
		func(t *testing.T) *ward {
			w := newWard(t, 4)
			w.rates[w.store.SlotOf(w.id(2))] = 7500
			w.queue(0.2, 0.2, 0.2, 0.2)
			w.run(time.Minute, nil)
			return w
		},
	},
	{
		"dead metrics", balance.DeadMetrics,
		func(t *testing.T) *ward {
			w := newWard(t, 2)
			w.run(10*time.Second, nil)
			w.silent[1] = true
			w.run(40*time.Second, func(int) { w.stream(1, 1); w.running[len(w.running)-1].End() })
			return w
		},
		func(t *testing.T) *ward { // it serves nobody any more either: it is not known to live
			w := newWard(t, 2)
			w.run(10*time.Second, nil)
			w.stream(1, 1)
			w.silent[1] = true
			w.run(40*time.Second, nil)
			return w
		},
	},
	{
		"prefill-bound", balance.PrefillBound,
		func(t *testing.T) *ward {
			w := newWard(t, 3)
			w.queue(0.8, 0.9, 0.8)
			for i := range 3 {
				w.stream(i, 6)
			}
			w.run(4*time.Minute, func(int) { w.prompts(3, 0.1) })
			return w
		},
		func(t *testing.T) *ward { // streams are as many as they may be
			w := newWard(t, 3)
			w.queue(0.8, 0.9, 0.8)
			for i := range 3 {
				w.stream(i, 120)
			}
			w.run(4*time.Minute, nil)
			return w
		},
	},
	{
		"decode-bound", balance.DecodeBound,
		func(t *testing.T) *ward {
			w := newWard(t, 3)
			for i := range 3 {
				w.stream(i, 190+i)
			}
			w.run(time.Minute, nil)
			return w
		},
		func(t *testing.T) *ward {
			w := newWard(t, 3)
			for i := range 3 {
				w.stream(i, 90+i)
			}
			w.run(time.Minute, nil)
			return w
		},
	},
	{
		"healthy", balance.Healthy,
		func(t *testing.T) *ward {
			w := newWard(t, 3)
			w.queue(0.1, 0.2, 0.1)
			w.stream(0, 5)
			w.run(time.Minute, func(int) { w.prompts(3, 0.6) })
			return w
		},
		func(t *testing.T) *ward { return newWard(t, 0) },
	},
}

// Every class is told in its situation, in these words, and not in one near it.
func TestDiagnoseGolden(t *testing.T) {
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			w := s.make(t)
			d := w.diagnose()
			if got := w.classes(); got[0] != s.class {
				t.Errorf("found %q, want %q first", got, s.class)
			}
			var b bytes.Buffer
			printDiagnosis(&b, &d)
			path := filepath.Join("testdata", "diagnose", strings.ReplaceAll(s.name, " ", "-")+".txt")
			if *updateGolden {
				if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("said:\n%s\nwant (-update accepts it):\n%s", b.String(), want)
			}
			if got := s.near(t).classes(); slices.Contains(got, s.class) {
				t.Errorf("near it: %q", got)
			}
		})
	}
}

// What the causes explain is not found a second time, and what binds is told beside
// whose matter it is.
func TestFindingsThatGoTogether(t *testing.T) {
	f := func(name string, w *ward, want ...string) {
		t.Helper()
		if got := w.classes(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	find := func(class string, near bool) *ward {
		s := situations[slices.IndexFunc(situations, func(s situation) bool { return s.class == class })]
		if near {
			return s.near(t)
		}
		return s.make(t)
	}
	f("short of prefill", find(balance.Short, false), balance.Short, balance.PrefillBound)
	f("minutes of the same long queue", find(balance.Spike, true), balance.Short, balance.PrefillBound)
	f("a slow one's queue", find(balance.SlowReplica, false), balance.SlowReplica)
	f("no replicas", newWard(t, 0), balance.NoReplica)
	for _, class := range []string{balance.Skewed, balance.BrokenPrefix, balance.ColdAdapter, balance.KVFull, balance.SlowReplica} {
		f("near "+class, find(class, true), balance.Healthy)
	}

	w := newWard(t, 2)
	w.run(5*time.Second, nil)
	w.store.SetDrain(w.id(0), true, "")
	w.store.SetDrain(w.id(1), true, "")
	f("all drain", w, balance.NoReplica)

	w = newWard(t, 2)
	full := func(r *state.Reading) { r.KVUsage, r.Running, r.Waiting = 0.97, 20, 3 }
	w.readings[0], w.readings[1] = full, full
	w.run(20*time.Second, nil)
	f("all of them full", w, balance.KVFull)
	if o := w.diagnose().Findings[0].Owner; o != balance.OwnerScale {
		t.Errorf("that is the matter of %s", o)
	}

	w = newWard(t, 2)
	limit := func(r *state.Reading) { r.KVUsage, r.Running, r.Waiting, r.WaitingUncached = 0.4, 64, 9, 200 }
	w.readings[0], w.readings[1] = limit, limit
	w.run(20*time.Second, nil)
	f("as many as engines run at a time", w, balance.DecodeBound)

	w = newWard(t, 2, func(s *state.PoolSpec) { s.MaxInFlight = 2 })
	w.stream(0, 2)
	w.stream(1, 2)
	w.run(20*time.Second, nil)
	f("as many as they may have", w, balance.Healthy)
	w.store.Wait("chat", 7, 700)
	f("and others wait at the router", w, balance.DecodeBound)

	w = newWard(t, 2) // prompts that part as early, but most tokens are found
	w.run(time.Minute, func(int) { w.prompts(2, 0.8) })
	w.partings = agents(37*time.Second, text("Rule %d: answer %d briefly. ", 200))
	f("it is one client among many", w, balance.Healthy)

	w = newWard(t, 2)
	w.partings = []prefix.Parting{
		{Path: "cache_salt", Value: prefix.ValueSalt, Prompt: 9000, Again: 8800},
		{Path: "cache_salt", Value: prefix.ValueSalt, Prompt: 9000, Again: 8700},
		{Path: "cache_salt", Value: prefix.ValueSalt, Prompt: 9000, Again: 9000},
	}
	w.run(time.Second, nil)
	f("a salt for each request", w, balance.BrokenPrefix)
	w.partings = w.partings[:2]
	f("two pairs are no evidence", w, balance.Healthy)
	late := prefix.Parting{Path: "messages[0].content", Byte: 4000, Value: prefix.ValueTimestamp, Shared: 4000, Prompt: 9000, Again: 4800}
	w.partings = []prefix.Parting{late, late, late, late}
	f("most of it is shared", w, balance.Healthy)
}

// The start of the last replica counts, where one was seen.
func TestSpikeByTheStartThatWasSeen(t *testing.T) {
	w := situations[2].make(t)
	facts := state.NewFacts()
	facts.Index = 1
	at := time.Now()
	facts.Decisions = []state.Decision{
		{ID: "1", Pool: "chat", From: 1, To: 2, At: at, DoneAt: at.Add(5 * time.Second), Outcome: state.OutcomeDone},
		{ID: "2", Pool: "chat", From: 2, To: 1, At: at, DoneAt: at.Add(time.Hour), Outcome: state.OutcomeDone},
		{ID: "3", Pool: "other", From: 1, To: 2, At: at, DoneAt: at.Add(time.Hour), Outcome: state.OutcomeDone},
	}
	w.store.SetFacts(facts)
	if got := w.classes(); got[0] != balance.Short {
		t.Errorf("a replica starts in 5 s: %q", got)
	}
}

func TestPolicyInWords(t *testing.T) {
	for want, p := range map[string]console.Pool{
		"ttft":                           {Policy: "ttft", FilePolicy: "ttft", Effective: "ttft"},
		"auto (ttft_load)":               {Policy: "auto", FilePolicy: "auto", Effective: "ttft_load"},
		"session, file: ttft":            {Policy: "session", FilePolicy: "ttft", Effective: "session"},
		"auto (ttft), file: cache_aware": {Policy: "auto", FilePolicy: "cache_aware", Effective: "ttft"},
	} {
		if got := policyOf(&p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// An engine that runs and serves another model needs no start: the model is named first.
func TestDiagnoseNamesTheWrongModel(t *testing.T) {
	f := func(others int, why string, models ...string) {
		t.Helper()
		w := newWard(t, 1+others)
		w.readings[0] = func(r *state.Reading) { r.WrongModel, r.Models = "llama", models }
		w.readings[1] = func(r *state.Reading) { r.OK, r.Refused = false, true }
		w.run(time.Minute, nil)
		list := w.diagnose().Findings
		if len(list) != 1 || list[0].Class != balance.NoReplica {
			t.Fatalf("%+v", list)
		}
		got := list[0]
		if got.Text != why || !slices.Equal(got.Replicas, []string{"e1"}) || !strings.HasPrefix(got.Next, "set the pool's model, or upstream_model") ||
			strings.Contains(got.Next, "the others") != (others > 0) {
			t.Errorf("%+v", got)
		}
	}
	f(0, `e1 does not serve "llama", it serves qwen. No replica of the pool takes requests.`, "qwen")
	f(0, `e1 does not serve "llama". No replica of the pool takes requests.`)
	f(1, `e1 does not serve "llama", it serves qwen. No replica of the pool takes requests.`, "qwen")
}
