package autoscale

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/state"
)

var (
	prefills = state.TargetKey{Pool: "chat", Role: state.RolePrefill}
	decodes  = state.TargetKey{Pool: "chat", Role: state.RoleDecode}
)

// newSplit gives a world of a pool with two legs, three replicas each, within a budget of
// six.
func newSplit(t *testing.T) *world {
	t.Helper()
	s := spec()
	s.ScaleMin, s.ScaleMax, s.ScaleBudget, s.ScaleDownWindow = 3, 5, 6, 24*time.Hour
	w := newWorld(t, s)
	w.roles = map[state.Role]*fake{
		state.RolePrefill: {w: w, prefix: "p:", role: state.RolePrefill, startTime: 20 * time.Second},
		state.RoleDecode:  {w: w, prefix: "d:", role: state.RoleDecode, startTime: 20 * time.Second},
	}
	w.facts = w.facts.Clone()
	w.facts.Targets[prefills], w.facts.Targets[decodes] = 0, 0
	w.store.SetFacts(w.facts)
	w.until(2*time.Minute, "three each", func() bool { return len(w.facts.Replicas) == 6 })
	s.ScaleMin = 1
	w.store.SetPools([]state.PoolSpec{s})
	w.run(2 * time.Minute)
	return w
}

func (w *world) targets() string {
	return fmt.Sprintf("%d+%d", w.facts.Targets[prefills], w.facts.Targets[decodes])
}

// decode puts n requests on each replica that decodes.
func (w *world) decode(n int) {
	for _, r := range poolOf(w.View(), "chat").Replicas {
		if r.Role == state.RoleDecode {
			w.load(r.ID, n)
		}
	}
}

// total checks that no more ever run than the budget allows.
func (w *world) total() bool {
	if n := len(w.roles[state.RolePrefill].instances) + len(w.roles[state.RoleDecode].instances); n > 6 {
		w.t.Errorf("%d replicas run", n)
	}
	return false
}

// C42: within a budget of six, 3+3 becomes 2+4 where decode needs it and prefill does not:
// one is freed first, and never more than six run.
func TestC42ShiftWithinTheBudget(t *testing.T) {
	w := newSplit(t)
	w.decode(9)
	w.until(10*time.Minute, "a shift", func() bool {
		w.decode(9)
		return w.total() || w.targets() == "2+4" && len(w.facts.Replicas) == 6
	})
	var order []string
	for _, d := range w.facts.Decisions[2:] {
		order = append(order, fmt.Sprintf("%s %d->%d", d.Role, d.From, d.To))
	}
	if got := strings.Join(order, ", "); got != "prefill 3->2, decode 3->4" {
		t.Errorf("%s", got)
	}
	d := w.facts.LastDecision(prefills)
	if d.Evidence[evidenceTrade] != 1 || !strings.Contains(d.Reason, "role decode needs 4 replicas within the budget of 6") {
		t.Errorf("%+v", d)
	}
}

// Where nobody can spare one the need is refused, and it is said why.
func TestBudgetThatIsUsedUp(t *testing.T) {
	w := newSplit(t)
	for _, r := range poolOf(w.View(), "chat").Replicas {
		w.load(r.ID, 9)
	}
	w.run(10 * time.Minute)
	for _, r := range w.loop.Reports() {
		if r.Refusal != refusedBudget {
			t.Errorf("%s refused for %q", r.Key.Role, r.Refusal)
		}
	}
	if w.targets() != "3+3" {
		t.Error(w.targets())
	}
}

// C42: the replica that was given does not come up: what was shifted is shifted back, and
// not tried again for a while.
func TestC42HalfAShiftIsUndone(t *testing.T) {
	w := newSplit(t)
	load := func() bool { w.decode(9); return w.total() }
	w.until(10*time.Minute, "one is freed", func() bool { return load() || w.targets() == "2+3" })
	w.roles[state.RoleDecode].startTime = 24 * time.Hour
	for i, x := range w.roles[state.RoleDecode].instances { // those there are go on
		if i < 3 {
			x.since = time.Time{}
		}
	}
	w.until(10*time.Minute, "the shift", func() bool { return load() || w.targets() == "2+4" })
	w.until(20*time.Minute, "back", func() bool { return load() || w.targets() == "3+3" && len(w.facts.Replicas) == 6 })
	at := w.now
	w.until(3*time.Hour, "again", func() bool { return load() || w.targets() == "2+3" })
	if d := w.now.Sub(at); d < tradeRest-5*time.Minute {
		t.Errorf("again after %v", d)
	}
}

// C42: load that is gone takes the target down although some are still pending.
func TestC42LoadGoneWhilePending(t *testing.T) {
	w := grown(t, 2)
	w.act.startTime = time.Hour
	for _, i := range w.act.instances {
		i.since = time.Time{}
	}
	w.spread(30)
	w.until(time.Minute, "up", func() bool { return w.target() == 4 })
	w.spread(45)
	w.run(2 * time.Minute)
	if w.target() != 4 || w.act.made != 4 {
		t.Errorf("target %d, %d started", w.target(), w.act.made)
	}
	w.spread(0)
	w.until(20*time.Minute, "down", func() bool { return w.target() == 1 && w.settled() })
	if w.running() != 1 || len(w.act.instances) != 1 {
		t.Errorf("%d of %d run", w.running(), len(w.act.instances))
	}
}

// Whatever two roles need, their targets stay within budget, maximum and minimum, and a
// replica is freed before it is given.
func TestTradeKeepsTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := rapid.IntRange(2, 9).Draw(t, "budget")
		list := []*Observation{
			{Key: prefills, Min: 1, Max: 6, Target: 1}, {Key: decodes, Min: 1, Max: 6, Target: 1},
		}
		for range 60 {
			var plans []Plan
			for _, o := range list {
				o.Budget, o.CalmFor, o.DownWindow = budget, time.Hour, time.Minute
				o.Capacity = Capacity{Requests: 10, PrefillTokens: 10000}
				o.InFlight = float64(rapid.IntRange(0, 80).Draw(t, "in_flight"))
				o.Present = o.Target + rapid.IntRange(0, 1).Draw(t, "still there")
				plans = append(plans, Propose(o, &testLimits))
			}
			Trade(list, plans, &testLimits)
			before, after, ups := 0, 0, 0
			for i, o := range list {
				p := &plans[i]
				before += max(o.Target, o.Present)
				after += max(p.To, o.Present)
				if p.To > o.Target {
					ups += p.To - o.Target
				}
				if p.To < o.Min || p.To > o.Max || p.To-p.From > max(testLimits.StepUp, 2*p.From) || p.From-p.To > 1 {
					t.Fatalf("%+v", p)
				}
				if p.To != p.From && p.Reason == "" || p.To == p.From && p.Reason != "" {
					t.Fatalf("%+v", p)
				}
			}
			if ups > 0 && after > budget {
				t.Fatalf("budget %d: %+v %+v", budget, list, plans)
			}
			for i, o := range list {
				o.Target = plans[i].To
			}
			if list[0].Target+list[1].Target > budget {
				t.Fatalf("%d and %d are wanted", list[0].Target, list[1].Target)
			}
		}
	})
}

// A budget that was lowered takes from the role that needs least.
func TestBudgetThatWasLowered(t *testing.T) {
	f := func(prefill, decode float64, want string) {
		t.Helper()
		list := []*Observation{
			{Key: prefills, Min: 1, Max: 6, Target: 4, InFlight: prefill}, {Key: decodes, Min: 1, Max: 6, Target: 4, InFlight: decode},
		}
		var plans []Plan
		for _, o := range list {
			o.Budget, o.DownWindow, o.Capacity = 6, time.Hour, Capacity{Requests: 10, PrefillTokens: 10000}
			plans = append(plans, Propose(o, &testLimits))
		}
		Trade(list, plans, &testLimits)
		if got := fmt.Sprintf("%d+%d", plans[0].To, plans[1].To); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	f(30, 10, "4+3")
	f(10, 30, "3+4")
	f(60, 30, "4+3")
}
