package autoscale

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the plans that come out to testdata")

var testLimits = Limits{
	Utilisation: 0.8, DownMargin: 0.1, StepUp: 2, Attainment: 0.9, MinCoverage: 0.75, MinReadings: 0.5, SkewLimit: 3, PendingDeadline: 10 * time.Minute,
}

// A case is a directory of testdata: what was observed, and the plan and the
// guard's word that came of it.
func TestPlansAreAsRecorded(t *testing.T) {
	cases, err := filepath.Glob("testdata/*/observation.json")
	if err != nil || len(cases) < 8 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, path := range cases {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			// Unless a case says otherwise, all is well known and long ago.
			o := Observation{
				Min: 1, Max: 8, Known: true, Capacity: Capacity{Requests: 10, PrefillTokens: 10000}, Coverage: 1, Readings: 1,
				Cooldown: time.Minute, DownWindow: 5 * time.Minute, Removable: 8,
				StartUp: time.Minute, Horizon: 2 * time.Minute, HotFor: time.Hour, Objective: 2 * time.Second,
			}
			if err := json.Unmarshal(b, &o); err != nil {
				t.Fatal(err)
			}
			p := Propose(&o, &testLimits)
			guard := p.Refusal
			if p.Reason != "" {
				guard = Guard(&o, &p, &testLimits)
			}
			got, err := json.MarshalIndent(struct {
				Plan  Plan
				Guard string
			}{p, guard}, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			want := filepath.Join(filepath.Dir(path), "plan.json")
			if *update {
				if err := os.WriteFile(want, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			w, err := os.ReadFile(want)
			if err != nil {
				t.Fatal(err)
			}
			if strings.TrimSpace(string(w)) != string(got) {
				t.Errorf("got %s\nwant %s", got, w)
			}
		})
	}
}

func anyObservation(t *rapid.T) *Observation {
	o := &Observation{
		Min: rapid.IntRange(0, 3).Draw(t, "min"), Target: rapid.IntRange(0, 12).Draw(t, "target"),
		InFlight:      float64(rapid.IntRange(0, 200).Draw(t, "in_flight")),
		PrefillTokens: float64(rapid.IntRange(0, 100000).Draw(t, "prefill")),
		Queued:        float64(rapid.IntRange(0, 5).Draw(t, "queued")),
		Capacity:      Capacity{Requests: 10, PrefillTokens: 10000},
		Coverage:      rapid.Float64Range(0, 1).Draw(t, "coverage"), Readings: rapid.Float64Range(0, 1).Draw(t, "readings"),
		CalmFor: time.Hour, DownWindow: time.Minute, Removable: 3,
		PrefillRate: float64(rapid.IntRange(0, 90000).Draw(t, "prefill rate")), OutputRate: float64(rapid.IntRange(0, 9000).Draw(t, "output rate")),
		KVTokens: float64(rapid.IntRange(0, 900000).Draw(t, "kv")), Correction: rapid.Float64Range(0, sloMost).Draw(t, "correction"),
	}
	o.Capacity.PrefillRate, o.Capacity.OutputRate, o.Capacity.KVTokens = 10000, 1000, 100000
	o.Ahead.PrefillRate = float64(rapid.IntRange(0, 90000).Draw(t, "foreseen"))
	o.Max = o.Min + rapid.IntRange(0, 8).Draw(t, "range")
	return o
}

func TestPlanKeepsItsLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := anyObservation(t)
		p := Propose(o, &testLimits)
		up, down := p.To-p.From, p.From-p.To
		switch {
		case o.Max == 0 && p.To != p.From:
			t.Fatal("an unscaled target changed")
		case p.To != p.From && p.Reason == "":
			t.Fatal("a change without a reason")
		case up > max(testLimits.StepUp, 2*o.Target) && p.Reason != reasonMinimum:
			t.Fatalf("a step of %d", up)
		case down > 1:
			t.Fatalf("a step of -%d", down)
		case o.Max > 0 && up > 0 && p.To > o.Max, down > 0 && p.To < o.Min:
			t.Fatalf("to %d, outside %d to %d", p.To, o.Min, o.Max)
		case p.To == p.From && p.Reason != "":
			t.Fatalf("a reason (%s) without a change", p.Reason)
		}
	})
}

// After a step down, the same load does not ask for a step up; after a step up
// that reached what was needed, not for a step down.
func TestPlanDoesNotFlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := anyObservation(t)
		first := Propose(o, &testLimits)
		if first.Reason != reasonLoad && first.Reason != reasonIdle {
			return
		}
		o.Target = first.To
		second := Propose(o, &testLimits)
		if first.Reason == reasonIdle && second.To > second.From || first.Reason == reasonLoad && second.To < second.From {
			t.Fatalf("%+v, then %+v", first, second)
		}
	})
}

func TestGuardHoldsWithoutData(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := anyObservation(t)
		p := Propose(o, &testLimits)
		if p.Reason == "" {
			return
		}
		blind := o.Coverage < testLimits.MinCoverage || o.Readings < testLimits.MinReadings || (p.To < p.From && o.Readings < 1)
		if r := Guard(o, &p, &testLimits); blind && r == "" {
			t.Fatalf("acted blindly: %+v", o)
		}
	})
}

// More demand of anything never asks for fewer.
func TestPlanIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		less := anyObservation(t)
		more := *less
		for i, f := range []*float64{
			&more.InFlight, &more.Queued, &more.PrefillTokens, &more.PrefillRate, &more.OutputRate, &more.KVTokens,
			&more.Correction, &more.Ahead.PrefillRate,
		} {
			*f += rapid.Float64Range(0, 1+*f).Draw(t, fmt.Sprint("more ", i))
		}
		a, b := Propose(less, &testLimits), Propose(&more, &testLimits)
		if b.To < a.To || b.Needed < a.Needed {
			t.Fatalf("%+v for %+v, and %+v for %+v", a, less, b, more)
		}
	})
}

// A load that is constant but for noise of 5 % either way goes to some size and stays:
// nothing that went down comes up again.
func TestPlanDoesNotFlapOnNoise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		load := rapid.Float64Range(0, 80).Draw(t, "load")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		o := &Observation{
			Min: 1, Max: 12, Target: rapid.IntRange(1, 12).Draw(t, "target"), Capacity: Capacity{Requests: 10, PrefillTokens: 10000},
			DownWindow: 20 * time.Second,
		}
		var down bool
		for range 400 {
			o.InFlight = load * (1 + 0.05*(2*rng.Float64()-1))
			if couldLose(o, &testLimits) {
				o.CalmFor += time.Second
			} else {
				o.CalmFor = 0
			}
			p := Propose(o, &testLimits)
			if p.To > p.From && down {
				t.Fatalf("up to %d after a step down", p.To)
			}
			if p.To < p.From {
				down, o.CalmFor = true, 0
			}
			o.Target = p.To
		}
	})
}

// A line is one line, and says who asked.
func TestPlanExplainsItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Propose(anyObservation(t), &testLimits)
		if p.Reason != "" && (p.Text == "" || len(p.Text) > 300 || strings.Contains(p.Text, "\n")) {
			t.Fatalf("%q", p.Text)
		}
	})
	for _, r := range refusals {
		if Sentence(r) == "" {
			t.Errorf("%s has no sentence", r)
		}
	}
	if len(refusals) != len(sentences) {
		t.Errorf("%d refusals, %d sentences", len(refusals), len(sentences))
	}
}
