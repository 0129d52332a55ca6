package sketch

// touch notes that e and its ancestors were used at t by a request placed at
// began. Ancestors count as used a nanosecond later per step, since engines evict
// the tail of a prefix before its head. An ancestor used later has ancestors used
// later still: the walk ends. What a request placed before dead_before used is
// gone, however late it was released.
func (r *replica) touch(e *entry, t, began int64) (changed bool) {
	if began <= r.dead {
		return false
	}
	if r.book.n > 0 && t > e.use.Load() {
		r.book.note(e, began, t)
	}
	for n := 0; e != nil && n < MaxLinks && (e.use.Load() < t || e.began < began); e, t, n = r.up(e), t+1, n+1 {
		if e.use.Load() == never {
			e.began = began
		}
		e.began = max(e.began, began)
		if e.use.Load() < t {
			r.setUse(e, t)
		}
		changed = true
	}
	return changed
}

func (r *replica) setUse(e *entry, t int64) {
	if held(e.state.Load()) {
		e.use.Store(t)
		return
	}
	if e.use.Load() != never {
		r.ages.remove(e)
	}
	e.use.Store(t)
	if t != never {
		r.ages.add(e)
	}
}

// hold adds d to the counts of pinning placements of e; unhold takes it back. An
// entry that nothing holds and nobody used is freed.
func (r *replica) hold(e *entry, d uint64, now int64) {
	s := e.state.Load()
	if !held(s) {
		if e.use.Load() != never {
			r.ages.remove(e)
		}
		r.ages.held += e.tokens()
	}
	if d == onePend && pendOf(s) == 0 {
		e.since.Store(now)
	}
	e.state.Store(s + d)
}

func (r *replica) unhold(e *entry, d uint64) {
	s := e.state.Load() - d
	e.state.Store(s)
	if held(s) {
		return
	}
	r.ages.held -= e.tokens()
	if e.use.Load() != never {
		r.ages.add(e)
	} else if e.idle() {
		r.free(e)
	}
}

// idle reports that nothing needs the entry: no use, no placement, no child.
func (e *entry) idle() bool {
	return !e.gone && e.kids == 0 && e.use.Load() == never && !held(e.state.Load())
}

// live reports whether the replica probably holds e.
func (r *replica) live(e *entry) bool {
	return pinsOf(e.state.Load()) > 0 || e.use.Load() > r.liveFrom.Load()
}
