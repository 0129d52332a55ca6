package proxy

import (
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// warmKV is the share of KV in use from which on a replica gets no prompt for its
// cache's sake: that would push out what clients use.
const warmKV = 0.9

// missing are the prompts that r needs, the hottest first: those that it does not hold,
// or, if it drains, those that it alone holds. coming says that somebody sends one of
// the others.
func (p *Prewarm) missing(v *state.View, pool *state.PoolView, r *state.ReplicaView, now time.Time) (list []*warmPrompt, coming bool) {
	kept := p.kept.of(pool.Spec.Name, v.Weights.Pools[pool.Spec.Name].Prewarm)
	if !r.Draining {
		kept = warmable(pool, r, kept)
	}
	for _, x := range kept {
		there, held, pending := p.holders(pool, r, x, now)
		if r.Draining {
			if !there || held {
				continue
			}
		} else if there {
			continue
		}
		if pending {
			coming = true
			continue
		}
		list = append(list, x)
	}
	return list, coming
}

// warmable are the prompts that an empty r can take: not those of adapters that it does
// not serve, and only as many as it has slots.
func warmable(pool *state.PoolView, r *state.ReplicaView, list []*warmPrompt) (out []*warmPrompt) {
	for _, x := range list {
		if x.adapter != "" && pool.ListsAdapter(x.adapter) && !r.ListsAdapter(x.adapter) {
			continue
		}
		if n := int(r.Reading.Slots); n > 0 && len(out) >= n {
			break
		}
		out = append(out, x)
	}
	return out
}

// holders says whether r holds a prompt's prefix, whether another one does that stays,
// and whether a request is about to bring it to r, or to such another if r drains.
func (p *Prewarm) holders(pool *state.PoolView, r *state.ReplicaView, x *warmPrompt, now time.Time) (there, held, pending bool) {
	slots := make([]state.Slot, len(pool.Replicas))
	for i, o := range pool.Replicas {
		slots[i] = o.Slot
	}
	found := make([]sketch.Match, len(slots))
	p.sketch.Lookup(found, []prefix.Mark{{Hash: x.mark}}, slots, now)
	for i, o := range pool.Replicas {
		if o.ID == r.ID {
			there = found[i].Live > 0
		} else if !o.Draining {
			held = held || found[i].Live > 0
		}
		if (o.ID == r.ID) != r.Draining && !o.Draining {
			pending = pending || found[i].Pending > 0
		}
	}
	return there, held, pending
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
		Tenant: x.seed.Tenant, Role: state.RoleBoth, DryRun: true,
	}
	if err := c.picker.Pick(&choice, &req, v, c.now()); err != nil {
		return nil
	}
	return choice.Replica
}

// hasRoom reports whether a prompt at r keeps nobody waiting: nothing is prefilled or
// waits there, nothing waits for the pool, and a place is left for a client.
func (p *Prewarm) hasRoom(v *state.View, pool *state.PoolView, r *state.ReplicaView, now time.Time) bool {
	w, load := v.Weights.For(r), r.Load()
	switch {
	case r.Draining, !r.Fresh(now), !pool.Spec.Prewarms(r), w.Ejected, w.Trial, w.BusyUntil.After(now):
		return false
	case load.Prefill > 0, r.Reading.Waiting > 0, r.Reading.KVUsage >= warmKV:
		return false
	case p.waits(v, pool.Spec.Name):
		return false
	}
	most := pool.Spec.MaxAt(r)
	return most == 0 || load.InFlight == 0 || load.InFlight+1 < most
}

// waits reports whether a request waits for the pool at any router.
func (p *Prewarm) waits(v *state.View, pool string) bool {
	if p.s.core.queues.of(pool, p.s.core.metrics).Len() > 0 {
		return true
	}
	for i := range v.Routers {
		for _, b := range v.Routers[i].Backlogs {
			if b.Pool == pool && b.Requests > 0 {
				return true
			}
		}
	}
	return false
}
