package sketch

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Apply merges a peer's op and reports whether it was news, in which case it is in
// the Journal too, unchanged. Any op is safe to apply, in any order, any number of
// times. Stamps are placed by the Clock, which must have observed the sender
// (state.Clock.Observe) before the op is applied.
func (x *Index) Apply(op Op, now time.Time) (news bool) {
	x.maybeSweep(now)
	if !op.Valid() {
		x.totals.opsInvalid.Add(1)
		return false
	}
	own := x.ownTime(now)
	if op.Boot == x.clock.Boot() && op.Kind != OpInsert && op.Kind != OpTouch && op.Kind != OpDead {
		x.totals.opsRepeated.Add(1)
		return false
	}
	nov := novel
	if op.Seq != 0 {
		if nov = x.note(op.Boot, op.Seq, own); nov == repeated {
			x.totals.opsRepeated.Add(1)
			return false
		}
	}
	at, age, ok := x.place(&op, now, time.Duration(own))
	if nov == late || op.Seq == 0 {
		// It may have come before: only what merges by content may be applied.
		if op.Kind == OpEvidence {
			x.totals.opsLate.Add(1)
			return false
		}
		if !ok {
			x.totals.opsUnplaced.Add(1)
			return false
		}
	}
	t := int64(at)
	r := x.replica(op.Replica, t, own)
	if r == nil {
		x.totals.opsStale.Add(1)
		return false
	}
	defer r.mu.Unlock()
	x.makeRoom(r, len(op.Links)+2)
	told := op.Age
	op.Age = age
	news = r.apply(&op, t, own)
	op.Age = told
	r.settle()
	if news {
		x.totals.opsNews.Add(1)
		x.news(r, op, false, own)
	} else {
		x.totals.opsStale.Add(1)
	}
	if op.Kind == OpEvidence {
		x.checkCleared(r, now, own)
	}
	return news
}

// place is an op's instant and age by this router's clock. An instant that lies ahead
// of it, as that of a mark used a few nanoseconds after the tail of its prefix may,
// counts as now; the request was placed when it was placed, so the age is less then.
func (x *Index) place(op *Op, now time.Time, fallback time.Duration) (at, age time.Duration, ok bool) {
	at, ok = x.clock.Place(op.Stamp, now, fallback)
	if !ok || op.Age == 0 {
		return at, op.Age, ok
	}
	placed, _ := x.clock.Place(state.Stamp{Boot: op.Stamp.Boot, At: op.Stamp.At - op.Age}, now, fallback)
	return at, max(0, at-placed), true
}

func (r *replica) apply(op *Op, t, own int64) bool {
	key := flightKey{op.Boot, op.Placement}
	switch op.Kind {
	case OpInsert:
		if t-int64(op.Age) <= r.dead {
			return false
		}
		leaf, news := r.chain(op.Parent, op.Links)
		for i := range op.Links {
			if e := r.x.table.get(op.Links[i].Hash, r.slot); e != nil && !op.Links[i].Answer {
				news = r.confirm(e) || news
			}
		}
		if leaf == nil || leaf.hash != op.Mark {
			if leaf, _ = r.obtain(op.Mark); leaf == nil {
				return news
			}
		}
		return r.refresh(leaf, t, t-int64(op.Age), own) || news
	case OpTouch:
		if t-int64(op.Age) <= r.dead {
			return false
		}
		e, _ := r.obtain(op.Mark)
		return e != nil && r.refresh(e, t, t-int64(op.Age), own)
	case OpPlace:
		return r.applyPlace(op, key, t)
	case OpFirst:
		if f := r.flights[key]; f != nil {
			return r.first(f, t)
		}
		if f := r.revive(key); f != nil {
			r.first(f, t)
			r.loseIfDropped(f)
			return true
		}
		return t-int64(op.Age) > r.dead && r.tombs.put(key, tomb{phase: phaseFirst, at: t})
	case OpEnd:
		return r.applyEnd(op, key, t)
	case OpWithdraw:
		if f := r.flights[key]; f != nil {
			if f.phase != phasePending {
				return false
			}
			r.release(f, phaseWithdrawn, t)
			return true
		}
		return r.tombs.put(key, tomb{phase: phaseWithdrawn, at: t})
	case OpDead:
		return r.kill(t)
	case OpEvidence:
		return r.evidence(op, t)
	case OpCapacity:
		return r.learn.adopt(op.Learn)
	}
	return false
}

// refresh touches e. It is news only when it revives e or is later by more than
// the twentieth part of the horizon's age: readers further on need no more.
func (r *replica) refresh(e *entry, t, began, own int64) (news bool) {
	old, live := e.use.Load(), r.live(e)
	if !r.touch(e, t, began) {
		return false
	}
	return !live || old == never || t-old > int64(max(time.Second, r.horizonAge(own)/20))
}

func (r *replica) applyPlace(op *Op, key flightKey, t int64) bool {
	if t <= r.dead || r.flights[key] != nil {
		return false
	}
	past, over := r.tombs.m[key]
	if past.placed {
		return false
	}
	leaf, _ := r.chain(op.Parent, op.Links)
	if leaf == nil || leaf.hash != op.Mark {
		if leaf, _ = r.obtain(op.Mark); leaf == nil {
			return false
		}
	}
	f, ok := r.begin(key, leaf, t)
	if !ok {
		return false
	}
	r.overlap(f)
	if over {
		r.rescale(op.Mark, past.scale, past.count)
		switch past.phase {
		case phaseFirst:
			r.first(f, past.at)
		case phaseEnded:
			r.first(f, past.at)
			r.end(f, past.at)
		case phaseWithdrawn:
			r.release(f, phaseWithdrawn, past.at)
		}
	}
	if f.phase < phaseEnded {
		r.loseIfDropped(f)
	}
	return true
}

func (r *replica) applyEnd(op *Op, key flightKey, t int64) bool {
	f := r.flights[key]
	if f == nil {
		if t-int64(op.Age) <= r.dead {
			return false
		}
		f = r.revive(key)
	}
	if f == nil {
		if !r.tombs.put(key, tomb{phase: phaseEnded, at: t}) {
			return false
		}
	}
	if leaf, _ := r.chain(op.Parent, op.Links); leaf != nil {
		r.touch(leaf, t, t-int64(op.Age))
	}
	if f != nil {
		r.first(f, t)
		r.end(f, t)
	} else if e, _ := r.obtain(op.Mark); op.Mark != 0 && e != nil {
		r.confirm(e)
		r.touch(e, t, t-int64(op.Age))
	}
	return true
}

// DropBoot says that the router of that boot was found dead at now: its
// placements of which nothing was told from after now count as follows. Those
// without a first token vanish; the others stay resident until the horizon passes
// now, as if they were used until then. What the boot told before and comes late,
// or tells later because it lives, counts in full whatever came first: a first
// token makes a vanished placement resident, an end says when it was used, a
// withdrawal removes it; and placements made after now are like any other. So the
// order of DropBoot and ops makes no difference, and an instant that is too late
// loses nothing. Of several instants the latest counts. Every router calls it by
// itself.
func (x *Index) DropBoot(boot state.BootID, now time.Time) {
	if boot == x.clock.Boot() || boot == 0 {
		return
	}
	x.loseAll(boot, nil, x.drop(boot, x.ownTime(now)))
}

// Restamp gives the op a stamp of this router's clock for the same instant, for a
// receiver that may never have heard from the op's origin. It adds at most the
// fastest delivery seen from there, so nothing grows younger. ok is false when the
// origin is unknown here too.
func (x *Index) Restamp(op Op, now time.Time) (out Op, ok bool) {
	at, age, ok := x.place(&op, now, 0)
	if ok {
		op.Stamp, op.Age = state.Stamp{Boot: x.clock.Boot(), At: at}, age
	}
	return op, ok
}
