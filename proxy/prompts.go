package proxy

import (
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

const (
	// keptPrompts and keptBytes bound what is kept of a pool, and keptPools the pools: at
	// most 64 MiB in all. A larger body is not kept.
	keptPrompts = 8
	keptBytes   = 256 << 10
	keptPools   = 32
	// keepEvery is the least time between two bodies of a pool.
	keepEvery = time.Second
	// keptFor is how long a body says something of the present.
	keptFor = 10 * time.Minute
	// maxPairs bounds the comparisons of one answer.
	maxPairs = 16
)

// prompts keeps a few recent request bodies of each pool in memory, so that it can be
// said where prompts part that should share their beginning. Bodies never leave it:
// what is told of them are places and lengths. Safe for concurrent use; a nil one
// keeps nothing.
type prompts struct {
	mu    sync.Mutex
	pools map[string]*keptBodies // guarded by mu
}

// keptBodies is a pool's ring; its buffers are used again.
type keptBodies struct {
	ring [keptPrompts]keptBody
	next int
	last time.Time
}

type keptBody struct {
	at       time.Time
	endpoint api.Endpoint
	seed     prefix.Seed
	body     []byte
}

// keep takes a copy of a request's body now and then. It never waits.
func (p *prompts) keep(j *Job, a *Ask, now time.Time) {
	if p == nil || !j.prompt || j.partial || len(a.Body) > keptBytes || a.Request.Endpoint == api.Count || !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	name := j.pool.Spec.Name
	k := p.pools[name]
	switch {
	case k == nil && len(p.pools) >= keptPools:
		p.forget(j.core.store.View()) // there may be room next time
		return
	case k == nil:
		k = &keptBodies{}
		p.pools[name] = k
	case now.Sub(k.last) < keepEvery:
		return
	}
	k.last = now
	x := &k.ring[k.next]
	k.next = (k.next + 1) % keptPrompts
	x.at, x.endpoint, x.seed = now, a.Request.Endpoint, j.seed
	x.body = append(x.body[:0], a.Body...)
}

// forget frees what is kept of pools that are gone. The caller holds mu.
func (p *prompts) forget(v *state.View) {
	for name := range p.pools {
		if v.PoolNamed(name) == nil {
			delete(p.pools, name)
		}
	}
}

// of copies what is kept of a pool, the oldest first, and frees what is kept of pools
// that are gone.
func (p *prompts) of(pool string, v *state.View, now time.Time) (list []keptBody) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(v)
	k := p.pools[pool]
	if k == nil {
		return nil
	}
	for i := range k.ring {
		x := k.ring[(k.next+i)%keptPrompts]
		if x.body != nil && now.Sub(x.at) < keptFor {
			x.body = append([]byte(nil), x.body...)
			list = append(list, x)
		}
	}
	return list
}

// Partings compares the pool's latest prompts, pair by pair. Those that belong to one
// another (one goes on from the other, the same twice) are left out.
func (c *Core) Partings(pool string) (list []prefix.Parting) {
	if c.prompts == nil {
		return nil
	}
	kept := c.prompts.of(pool, c.store.View(), c.now())
	inputs := make([]prefix.Input, len(kept))
	for i := range kept {
		if r, err := api.Parse(kept[i].endpoint, kept[i].body); err == nil {
			inputs[i] = r.Input(kept[i].body)
		}
	}
	for apart, pairs := 1, 0; apart < len(kept) && pairs < maxPairs; apart++ {
		for i := 0; i+apart < len(kept) && pairs < maxPairs; i++ {
			a, b := i, i+apart
			if inputs[a].Kind == 0 || inputs[b].Kind == 0 {
				continue
			}
			pairs++
			if p, ok := prefix.Part(kept[a].seed, inputs[a], kept[b].seed, inputs[b]); ok {
				list = append(list, p)
			}
		}
	}
	return list
}
