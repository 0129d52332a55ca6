package observe

import (
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/hearsay-llm/hearsay/state"
)

// setRouters notes who is live. The caller holds mu.
func (l *Loop) setRouters(v *state.View) {
	same := len(l.routers) == len(v.Routers)+1
	for i := range v.Routers {
		same = same && l.routers[i+1] == v.Routers[i].ID
	}
	if same {
		return
	}
	l.routers = append(l.routers[:0], l.cfg.Self)
	for i := range v.Routers {
		l.routers = append(l.routers, v.Routers[i].ID)
	}
	l.epoch++
}

// place is self's place in the rendezvous order of the routers for a process.
func place(self state.RouterID, url string, routers []state.RouterID) int {
	score := func(r state.RouterID) uint64 { return xxh3.HashString(string(r) + "\x00" + url) }
	own, n := score(self), 0
	for _, r := range routers {
		if s := score(r); s > own || (s == own && r < self) {
			n++
		}
	}
	return n
}

// mine reports whether this router should read the process now: it is the first in
// rendezvous order, it has taken over, or nobody has found the process well for
// longer than its place in the order allows. So the next reader confirms or
// contradicts one that can't reach it.
func (p *process) mine(cfg *Config, routers int, now time.Time) bool {
	place := p.place
	if now.Before(p.back) {
		place = routers - 1
	}
	if place == 0 {
		return true
	}
	last := now
	for _, r := range p.views {
		if r.Reading.OK && r.Reading.Reader == cfg.Self {
			return true // until somebody before this router reads it again
		}
		at := r.ReadingAt
		if !r.Reading.OK {
			at = r.DownSince
		}
		if r.Reading.Loading || r.Reading.Answered { // reached
			at = r.ReadingAt
		}
		if at.IsZero() {
			at = r.AddedAt
		}
		if at.Before(last) {
			last = at
		}
	}
	takeOver := cfg.TakeOver
	if p.generic() {
		takeOver = 5 * genericEvery / 2
	}
	return now.Sub(last) > time.Duration(place)*takeOver
}

const (
	// genericEvery is between two readings of a server that only tells that it lives.
	genericEvery = time.Second
	// doubtEvery is how often a router beyond the first two looks whether it can
	// reach what those can't.
	doubtEvery = 5 * time.Second
)

// due is when the next own reading should begin.
func (p *process) due(cfg *Config, now time.Time) time.Time {
	return p.last.Add(time.Duration(float64(p.wait(cfg, now)) * p.jitter))
}

// wait is the time between two own readings, as the process is now.
func (p *process) wait(cfg *Config, now time.Time) time.Duration {
	down := p.missed > 0
	for _, r := range p.views {
		down = down || !r.DownSince.IsZero()
	}
	switch {
	case down && p.place > 1:
		return max(cfg.Idle, doubtEvery)
	case down && p.place == 1:
		return max(cfg.Idle, cfg.TakeOver)
	case down:
		return cfg.Idle
	case p.generic():
		return max(cfg.Idle, genericEvery)
	case p.busy():
		return cfg.Busy
	}
	wait := cfg.Busy << min(p.quiet, 16)
	return min(wait, cfg.Idle)
}

// busy reports whether anything is known to run there.
func (p *process) busy() bool {
	return slices.ContainsFunc(p.views, func(r *state.ReplicaView) bool {
		return r.Load().InFlight > 0 || r.Reading.Running > 0 || r.Reading.Waiting > 0
	})
}

// generic reports whether the server only tells that it lives.
func (p *process) generic() bool {
	return slices.ContainsFunc(p.views, func(r *state.ReplicaView) bool {
		kind := r.Engine
		if kind == "" || kind == state.EngineAuto {
			kind = r.Reading.Kind
		}
		return kind == state.EngineOpenAI || kind == state.EngineAnthropic
	})
}
