package proxy

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// Sketch tells what replicas hold; *sketch.Index.
type Sketch interface {
	Lookup(dst []sketch.Match, marks []prefix.Mark, slots []state.Slot, now time.Time)
}

const (
	// prewarmEvery is the time between two looks at who is to be warmed.
	prewarmEvery = 100 * time.Millisecond
	// prewarmRuns bounds the replicas that are sent prompts at a time.
	prewarmRuns = 8
	// prewarmFailures ends a run: as many prompts of one failed.
	prewarmFailures = 2
	// prewarmAgain is the time between two looks at what a draining replica alone holds:
	// what was handed over is known by then.
	prewarmAgain = time.Second
)

// Prewarm sends the hottest prefixes of pools that prewarm to replicas whose cache is
// empty, and what a draining replica alone holds to another one. Of the routers the one
// that reads a replica does it.
type Prewarm struct {
	s      *Server
	sketch Sketch
	kept   *warmPrompts
	log    zerolog.Logger
	wg     sync.WaitGroup

	mu   sync.Mutex
	runs map[state.ReplicaID]*prewarmRun // guarded by mu
	busy int                             // guarded by mu
}

// prewarmRun is what was done last for a replica.
type prewarmRun struct {
	from    time.Time // the warming that was begun last
	drained time.Time // when the last hand-over ended
	drains  bool      // one is under way
}

// Prewarm returns the part that warms replicas; Run must be called for it to do so.
func (s *Server) Prewarm() *Prewarm {
	return &Prewarm{
		s: s, sketch: s.cfg.Core.Prewarm, kept: s.core.warm, runs: map[state.ReplicaID]*prewarmRun{},
		log: s.cfg.Logger.With().Str("component", "prewarm").Logger(),
	}
}

// Run warms replicas until ctx ends. It is to be called once.
func (p *Prewarm) Run(ctx context.Context) error {
	tick := time.NewTicker(prewarmEvery)
	defer tick.Stop()
	defer p.wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			p.Step(ctx, now)
		}
	}
}

// Step begins what is due at now. What it begins ends by itself, or with ctx; Run waits
// for that.
func (p *Prewarm) Step(ctx context.Context, now time.Time) {
	if p.kept == nil {
		return
	}
	v := p.s.core.store.View()
	p.kept.tidy(v, now)
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.runs {
		if v.Replica(id) == nil && !p.runs[id].drains {
			delete(p.runs, id)
		}
	}
	for _, pool := range v.Pools {
		if pool.Spec.Prewarm <= 0 {
			continue
		}
		for _, r := range pool.Replicas {
			if r.Reading.Reader == v.Self && p.busy < prewarmRuns {
				p.consider(ctx, v, pool, r, now)
			}
		}
	}
}

// consider begins what one replica needs. The caller holds mu.
func (p *Prewarm) consider(ctx context.Context, v *state.View, pool *state.PoolView, r *state.ReplicaView, now time.Time) {
	w := v.Weights.For(r)
	if !w.Warms(now) && !r.Draining {
		return
	}
	run := p.runs[r.ID]
	if run == nil {
		run = &prewarmRun{}
		p.runs[r.ID] = run
	}
	switch list := p.kept.of(pool.Spec.Name, v.Weights.Pools[pool.Spec.Name].Prewarm); {
	case len(list) == 0:
	case r.Draining && !run.drains && now.Sub(run.drained) >= prewarmAgain && len(p.alone(pool, r, list, now)) > 0:
		run.drains = true
		p.begin(func() {
			p.handOver(ctx, pool.Spec.Name, r.ID, p.alone(pool, r, list, now))
			p.mu.Lock()
			run.drains, run.drained = false, time.Now()
			p.mu.Unlock()
		})
	case !r.Draining && run.from != w.WarmFrom:
		run.from = w.WarmFrom
		end := w.WarmFrom.Add(state.MaxWarming)
		p.begin(func() { p.warm(ctx, pool.Spec.Name, r.ID, list, end) })
	}
}

// begin runs f beside the loop. The caller holds mu.
func (p *Prewarm) begin(f func()) {
	p.busy++
	p.wg.Go(func() {
		defer func() {
			p.mu.Lock()
			p.busy--
			p.mu.Unlock()
		}()
		f()
	})
}

// warm sends a replica with an empty cache one prompt after another.
func (p *Prewarm) warm(ctx context.Context, pool string, id state.ReplicaID, list []*warmPrompt, end time.Time) {
	t := sendings{began: time.Now()}
	for _, x := range list {
		v := p.s.core.store.View()
		r := v.Replica(id)
		if r == nil || r.Draining || v.Weights.For(r).Ejected || !time.Now().Before(end) {
			break
		}
		if t.failed >= prewarmFailures || t.cut || ctx.Err() != nil {
			break
		}
		if at, ok := p.holders(v.PoolNamed(pool), x, time.Now())[id]; ok && at {
			continue // it came with another one, or another router sends it
		}
		t.note(p.send(ctx, v.PoolNamed(pool), r, x, end))
	}
	p.tell(pool, id, &t, "replica was warmed")
}

// handOver sends what a draining replica alone holds to the replicas that are the best
// for it without that one.
func (p *Prewarm) handOver(ctx context.Context, pool string, id state.ReplicaID, list []*warmPrompt) {
	t := sendings{began: time.Now()}
	end := t.began.Add(state.MaxWarming)
	for _, x := range list {
		v := p.s.core.store.View()
		view := v.PoolNamed(pool)
		if view == nil || t.failed >= prewarmFailures || t.cut || ctx.Err() != nil || !time.Now().Before(end) {
			break
		}
		if r := p.best(v, view, x); r != nil && r.ID != id {
			t.note(p.send(ctx, view, r, x, end))
		}
	}
	p.tell(pool, id, &t, "draining replica handed over its prefixes")
}

// best is the replica that would be picked for a prompt now, or nil.
func (p *Prewarm) best(v *state.View, pool *state.PoolView, x *warmPrompt) *state.ReplicaView {
	c := p.s.core
	m, ok := p.measure(pool, x)
	if !ok {
		return nil
	}
	var choice routing.Choice
	req := routing.Request{
		Pool: pool, Marks: m.marks, Tokens: m.tokens, PromptTokens: m.prompt, MaxTokens: 1, Adapter: x.adapter,
		Role: state.RoleBoth, DryRun: true,
	}
	if err := c.picker.Pick(&choice, &req, v, c.now()); err != nil {
		return nil
	}
	return choice.Replica
}

// alone are the prompts whose prefix r holds and nobody who stays does.
func (p *Prewarm) alone(pool *state.PoolView, r *state.ReplicaView, list []*warmPrompt, now time.Time) (out []*warmPrompt) {
	for _, x := range list {
		holders := p.holders(pool, x, now)
		if !holders[r.ID] {
			continue
		}
		others := false
		for _, o := range pool.Replicas {
			others = others || !o.Draining && holders[o.ID]
		}
		if !others {
			out = append(out, x)
		}
	}
	return out
}

// holders are the replicas that hold a prompt's prefix or are about to.
func (p *Prewarm) holders(pool *state.PoolView, x *warmPrompt, now time.Time) map[state.ReplicaID]bool {
	if pool == nil {
		return nil
	}
	slots := make([]state.Slot, len(pool.Replicas))
	for i, r := range pool.Replicas {
		slots[i] = r.Slot
	}
	found := make([]sketch.Match, len(slots))
	p.sketch.Lookup(found, []prefix.Mark{{Hash: x.mark}}, slots, now)
	out := map[state.ReplicaID]bool{}
	for i, r := range pool.Replicas {
		if found[i].Live > 0 || found[i].Pending > 0 {
			out[r.ID] = true
		}
	}
	return out
}

// sendings is what came of a run.
type sendings struct {
	began                  time.Time
	served, failed, tokens int
	cut                    bool // nothing more is to be sent there
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
func (p *Prewarm) tell(pool string, id state.ReplicaID, t *sendings, what string) {
	if t.served+t.failed == 0 {
		return
	}
	p.log.Info().Str("pool", pool).Str("replica", string(id)).Int("prompts", t.served).Int("failed", t.failed).
		Int("tokens_in", t.tokens).Int64("dur_ms", time.Since(t.began).Milliseconds()).Msg(what)
}
