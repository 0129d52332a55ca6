package autoscale

import (
	"fmt"
	"slices"
	"time"
)

// tradeRest is how long after an exchange between roles that came to nothing none is
// tried.
const tradeRest = time.Hour

// Trade keeps the plans of one pool's roles within its budget: a pure function of its
// arguments, which it changes. A step up takes what is left; where nothing is, a role
// that can spare a replica gives one up first, and only once that is gone does the other
// get it. What was given for a replica that never came up is taken back.
func Trade(list []*Observation, plans []Plan, lim *Limits) {
	if len(list) == 0 || list[0].Budget <= 0 {
		return
	}
	t := trade{list: list, plans: plans, lim: lim, budget: list[0].Budget}
	for _, o := range list {
		t.targets += o.Target
		t.room -= max(o.Target, o.Present)
	}
	t.room += t.budget
	switch {
	case t.targets > t.budget:
		t.shrink()
	case t.undo():
	}
	refused := t.grant()
	if refused >= 0 && t.targets <= t.budget {
		t.exchange(refused)
	}
}

type trade struct {
	list            []*Observation
	plans           []Plan
	lim             *Limits
	budget, targets int
	room            int // replicas that are left, those not counted that are still to go
}

// pressure is how much a target needs, per replica it has.
func (t *trade) pressure(i int) float64 {
	return t.lim.need(t.list[i]).replicas / float64(max(1, t.list[i].Target))
}

// shrink lets the role with the least need lose one, where all have more than the budget.
func (t *trade) shrink() {
	least := -1
	for i, o := range t.list {
		if t.plans[i].To < o.Target || o.Open && !o.OpenUp {
			return // one goes already
		}
		if o.Target > o.Min && (least < 0 || t.pressure(i) < t.pressure(least)) {
			least = i
		}
	}
	if least < 0 {
		return
	}
	t.plans[least] = t.plan(least, -1, reasonBudget, fmt.Sprintf("the targets are %d together, and the pool's budget %d", t.targets, t.budget))
}

func (t *trade) plan(i, by int, reason, text string) Plan {
	p := t.plans[i]
	p.To, p.Reason, p.Text, p.Refusal = p.From+by, reason, text, ""
	return p
}

// undo takes back an exchange whose replica did not come up: its role gives up the
// place, and then the giver has it again.
func (t *trade) undo() bool {
	for i, taker := range t.list {
		for j, giver := range t.list {
			if i == j || !giver.Last.Traded || giver.Last.Index > taker.Last.Index {
				continue
			}
			switch l := &taker.Last; {
			case l.Up && l.Failed && taker.Pending > 0 && taker.Target > taker.Min:
				t.plans[i] = t.plan(i, -1, reasonUndo, fmt.Sprintf("the replica that role %s gave up did not come up here", giver.Key.Role))
				return true
			case l.Undone && !l.Up && !taker.Open && t.room > 0 && giver.Target < giver.Max:
				t.plans[j] = t.plan(j, +1, reasonUndo, fmt.Sprintf("role %s could not use the replica that was given to it", taker.Key.Role))
				return true
			}
		}
	}
	return false
}

// grant gives what is left to the plans that go up, the greatest need first, and says
// which was refused.
func (t *trade) grant() (refused int) {
	refused = -1
	order := make([]int, len(t.plans))
	for i := range order {
		order[i] = i
	}
	first := map[string]int{reasonUndo: 0, reasonMinimum: 1, reasonWake: 2}
	rank := func(i int) float64 {
		if r, ok := first[t.plans[i].Reason]; ok {
			return float64(r) - 1e9
		}
		return -t.pressure(i)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch x, y := rank(a), rank(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	for _, i := range order {
		p := &t.plans[i]
		want := p.To - p.From
		if want <= 0 {
			continue
		}
		got := max(0, min(want, t.room))
		t.room -= got
		if got == want {
			continue
		}
		if p.To = p.From + got; got == 0 {
			p.Reason, p.Refusal = "", refusedBudget
			if refused < 0 {
				refused = i
			}
		} else {
			p.Text += fmt.Sprintf("; the budget of %d leaves %d", t.budget, got)
		}
	}
	return refused
}

// exchange lets another role give up a replica for one that needs it, where one can
// spare it.
func (t *trade) exchange(taker int) {
	if t.budget-t.targets > 0 {
		return // one is on its way out: it will be free
	}
	best, spare := -1, 0.0
	for i, o := range t.list {
		if i == taker {
			continue
		}
		if t.plans[i].To != o.Target || o.Open || (o.Last.Undone || t.list[taker].Last.Undone) && min(o.LastAge, t.list[taker].LastAge) < tradeRest {
			return
		}
		n := t.lim.need(o).replicas
		if o.Target <= max(o.Min, 1) || !couldLose(o, t.lim) || o.CalmFor < o.Cooldown {
			continue
		}
		if s := float64(o.Target) - n; best < 0 || s > spare {
			best, spare = i, s
		}
	}
	if best >= 0 {
		t.plans[best] = t.plan(best, -1, reasonTrade, fmt.Sprintf("role %s needs %s within the budget of %d, and here %s suffice",
			t.list[taker].Key.Role, replicas(t.plans[taker].Needed), t.budget, figure(float64(t.list[best].Target)-spare)))
	}
}
