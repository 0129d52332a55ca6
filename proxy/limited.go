package proxy

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// limited remembers which replicas answered 429 and said how long they want to be
// left alone. Busy replicas that name no time are only picked later than others; one
// that has named it is not asked before. Safe for concurrent use; the zero value is
// ready.
type limited struct {
	n  atomic.Int32 // len(m), so that nobody waits where nothing is remembered
	mu sync.Mutex
	m  map[state.ReplicaID]time.Time // guarded by mu; until when
}

// maxLimited bounds the replicas remembered; further ones are asked all the same.
const maxLimited = 4096

// note takes what came of an attempt at a replica.
func (l *limited) note(id state.ReplicaID, r *Result, now time.Time) {
	limits := r.Outcome == OutcomeBusy && r.Limited && r.RetryAfter > 0
	if !limits && (r.Outcome != OutcomeServed || l.n.Load() == 0) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = make(map[state.ReplicaID]time.Time)
	}
	if limits && len(l.m) < maxLimited {
		l.m[id] = now.Add(r.RetryAfter)
	} else {
		delete(l.m, id)
	}
	l.n.Store(int32(len(l.m)))
}

// among returns those of a pool that want to be left alone now, and the least time
// until one of them does not. What is over is forgotten.
func (l *limited) among(pool *state.PoolView, now time.Time) (ids []state.ReplicaID, wait time.Duration) {
	if l.n.Load() == 0 {
		return nil, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, until := range l.m {
		if !until.After(now) {
			delete(l.m, id)
		}
	}
	l.n.Store(int32(len(l.m)))
	for _, r := range pool.Replicas {
		if until, ok := l.m[r.ID]; ok {
			ids = append(ids, r.ID)
			if d := until.Sub(now); wait == 0 || d < wait {
				wait = d
			}
		}
	}
	return ids, wait
}

// choose picks among the replicas that have not been tried and do not want to be left
// alone. Where only those are left, the client is told when the first of them may be
// asked again. Errors are *api.Error.
func (j *Job) choose(v *state.View, now time.Time) error {
	c := j.core
	limited, wait := c.limited.among(j.pool, now)
	exclude := func(ids []state.ReplicaID) []state.ReplicaID {
		if len(limited) == 0 {
			return ids
		}
		return append(slices.Clone(ids), limited...)
	}
	siblings := j.siblings()
	j.req.Exclude = exclude(siblings)
	err := c.picker.Pick(&j.choice, &j.req, v, now)
	if err != nil && len(siblings) > len(j.tried) {
		j.req.Exclude = exclude(j.tried) // a sibling is better than none
		err = c.picker.Pick(&j.choice, &j.req, v, now)
	}
	j.freed, j.lack = lackOf(err)
	switch {
	case err == nil:
		return nil
	case len(limited) == 0, j.lack == routing.ErrSaturated:
		return refusal(err)
	}
	j.req.Exclude, j.req.DryRun = j.tried, true
	defer func() { j.req.DryRun = false }()
	if c.picker.Pick(&j.choice, &j.req, v, now) != nil {
		return refusal(err) // they could not take it anyway
	}
	j.lack = nil // they have been asked
	return api.Overloaded("replicas_busy", wait)
}
