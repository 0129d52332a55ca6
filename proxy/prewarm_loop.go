package proxy

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/zeebo/xxh3"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// Sketch tells what replicas hold; *sketch.Index.
type Sketch interface {
	Lookup(dst []sketch.Match, marks []prefix.Mark, slots []state.Slot, now time.Time)
}

const (
	// prewarmEvery is the time between two looks at who needs a prompt, while any pool
	// prewarms; prewarmSeldom is it otherwise.
	prewarmEvery  = 100 * time.Millisecond
	prewarmSeldom = time.Second
	// prewarmRuns bounds the prompts that this router has under way.
	prewarmRuns = 8
	// prewarmFailures ends what is done for a replica: as many prompts failed.
	prewarmFailures = 2
	// prewarmTakeOver is for how long nothing is done for a replica that needs prompts
	// until the next router in its order does it. The balance loop waits a second.
	prewarmTakeOver = 300 * time.Millisecond
)

// Prewarmed is a prompt that was sent for a cache's sake.
type Prewarmed struct {
	At      time.Time
	Pool    string
	Replica state.ReplicaID
	From    state.ReplicaID // the draining replica that alone held it; empty: there is none
	Outcome string
	Tokens  int // that were prefilled
}

// Prewarm sends the hottest prefixes of pools that prewarm to replicas whose cache is
// empty, and what a draining replica alone holds to another one. For each replica one
// router does it: the first in rendezvous order, and where nothing comes of that the
// next one, by what the sketch is told and by no word of its own.
type Prewarm struct {
	s      *Server
	sketch Sketch
	kept   *warmPrompts
	log    zerolog.Logger
	wg     sync.WaitGroup
	more   chan struct{} // capacity 1: a prompt has ended

	mu   sync.Mutex
	runs map[state.ReplicaID]*prewarmRun // guarded by mu
	to   map[state.ReplicaID]bool        // guarded by mu: replicas with a prompt of ours under way
}

// prewarmRun is what is done for one replica, from when it needs prompts until it no
// longer does.
type prewarmRun struct {
	sendings
	pool    string
	drains  bool
	from    time.Time // of Weight.WarmFrom
	end     time.Time
	quiet   time.Time // since when nothing has been done for it, by anybody
	missing int       // prompts that it needed at the last look
	busy    bool      // one of ours is under way
}

// Prewarm returns the part that warms replicas; Run must be called for it to do so.
func (s *Server) Prewarm() *Prewarm {
	return &Prewarm{
		s: s, sketch: s.cfg.Core.Prewarm, kept: s.core.warm, more: make(chan struct{}, 1),
		runs: map[state.ReplicaID]*prewarmRun{}, to: map[state.ReplicaID]bool{},
		log: s.cfg.Logger.With().Str("component", "prewarm").Logger(),
	}
}

// Run warms replicas until ctx ends. It is to be called once.
func (p *Prewarm) Run(ctx context.Context) error {
	tick := time.NewTimer(prewarmEvery)
	defer tick.Stop()
	defer p.wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-p.more:
		}
		p.Step(ctx, time.Now())
		tick.Reset(p.every())
	}
}

// every is the time until the next look.
func (p *Prewarm) every() time.Duration {
	for _, pool := range p.s.core.store.View().Pools {
		if p.kept != nil && pool.Spec.Prewarm > 0 {
			return prewarmEvery
		}
	}
	return prewarmSeldom
}

// Step begins what is due at now, and reports whether it began anything. That ends by
// itself, or with ctx; Run waits for it.
func (p *Prewarm) Step(ctx context.Context, now time.Time) (began bool) {
	if p.kept == nil || ctx.Err() != nil {
		return false
	}
	v := p.s.core.store.View()
	p.kept.tidy(v, now)
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, run := range p.runs {
		if !run.busy && !run.goesOn(v, id, now) {
			p.tell(id, run)
			delete(p.runs, id)
		}
	}
	for _, pool := range v.Pools {
		if pool.Spec.Prewarm <= 0 {
			continue
		}
		for _, r := range pool.Replicas {
			if r.Draining || v.Weights.For(r).Warms(now) {
				began = p.consider(ctx, v, pool, r, now) || began
			}
		}
	}
	return began
}

// goesOn reports whether a replica is still in the state for which the run was begun.
func (run *prewarmRun) goesOn(v *state.View, id state.ReplicaID, now time.Time) bool {
	r := v.Replica(id)
	if r == nil || r.Draining != run.drains {
		return false
	}
	w := v.Weights.For(r)
	return r.Draining || w.Warms(now) && run.from.Equal(w.WarmFrom)
}

// consider sends the next prompt that one replica needs, if that is this router's to do
// now. The caller holds mu.
func (p *Prewarm) consider(ctx context.Context, v *state.View, pool *state.PoolView, r *state.ReplicaView, now time.Time) bool {
	run := p.runs[r.ID]
	if run == nil {
		run = &prewarmRun{pool: pool.Spec.Name, drains: r.Draining, quiet: now}
		run.began, run.end = now, now.Add(state.MaxWarming)
		if !r.Draining {
			run.from = v.Weights.For(r).WarmFrom
			run.end = run.from.Add(state.MaxWarming)
		}
		p.runs[r.ID] = run
	}
	missing, coming := p.missing(v, pool, r, now)
	if run.busy || coming || len(missing) != run.missing {
		run.quiet, run.missing = now, len(missing)
	}
	if run.busy || run.cut || run.failed >= prewarmFailures || len(missing) == 0 || len(p.to) >= prewarmRuns {
		return false
	}
	turn := p.turn(v, r.ID)
	if turn > 0 && !r.Draining && r.OthersFailures > 0 {
		run.quiet = now // somebody has tried
	}
	if now.Sub(run.quiet) < time.Duration(turn)*prewarmTakeOver {
		return false
	}
	x, to := missing[0], r
	if r.Draining {
		to = p.best(v, pool, x)
	}
	if to == nil || p.to[to.ID] || !p.hasRoom(v, pool, to, now) {
		run.quiet = now // nobody is to send now
		return false
	}
	p.begin(ctx, run, pool, r, to, x)
	return true
}

// begin sends a prompt beside the loop. The caller holds mu.
func (p *Prewarm) begin(ctx context.Context, run *prewarmRun, pool *state.PoolView, r, to *state.ReplicaView, x *warmPrompt) {
	run.busy, p.to[to.ID] = true, true
	end := run.end
	if run.drains {
		end = time.Now().Add(state.MaxWarming)
	}
	p.wg.Go(func() {
		o, tokens := p.send(ctx, pool, to, x, end)
		told := Prewarmed{At: time.Now(), Pool: pool.Spec.Name, Replica: to.ID, Outcome: o.String(), Tokens: tokens}
		p.mu.Lock()
		if run.note(o, tokens); run.drains {
			told.From = r.ID
		}
		run.busy = false
		delete(p.to, to.ID)
		p.mu.Unlock()
		if f := p.s.cfg.Core.Prewarmed; f != nil {
			f(told)
		}
		select {
		case p.more <- struct{}{}:
		default:
		}
	})
}

// turn is this router's place in the rendezvous order of the live ones for a replica.
func (p *Prewarm) turn(v *state.View, id state.ReplicaID) (n int) {
	score := func(r state.RouterID) uint64 { return xxh3.HashString(string(r) + "\x00prewarm\x00" + string(id)) }
	own := score(v.Self)
	for i := range v.Routers {
		if r := v.Routers[i].ID; score(r) > own || score(r) == own && r < v.Self {
			n++
		}
	}
	return n
}

// sendings is what came of a run.
type sendings struct {
	began                  time.Time
	served, failed, tokens int
	cut                    bool // nothing more is to be sent
}

func (t *sendings) note(o Outcome, tokens int) {
	switch o {
	case OutcomeServed:
		t.served++
		t.tokens += tokens
	case OutcomeRejected: // says nothing of the replica
	case OutcomeFailed:
		t.failed++
	default:
		t.failed++
		t.cut = true
	}
}

// tell logs what came of a run that sent anything.
func (p *Prewarm) tell(id state.ReplicaID, run *prewarmRun) {
	if run.served+run.failed == 0 {
		return
	}
	what := "replica was warmed"
	if run.drains {
		what = "draining replica handed over its prefixes"
	}
	p.log.Info().Str("pool", run.pool).Str("replica", string(id)).Int("prompts", run.served).Int("failed", run.failed).
		Int("tokens_in", run.tokens).Int64("dur_ms", time.Since(run.began).Milliseconds()).Msg(what)
}
