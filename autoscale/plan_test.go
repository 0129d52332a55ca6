package autoscale

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the plans that come out to testdata")

var testLimits = Limits{
	Utilisation: 0.8, StepUp: 2, MinCoverage: 0.75, MinReadings: 0.5, SkewLimit: 3, PendingDeadline: 10 * time.Minute,
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
	}
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
		case up > testLimits.StepUp && p.Reason != reasonMinimum:
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
