package proxy

import (
	"slices"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

const (
	// warmBytes bounds one prompt that is kept to warm replicas, warmPoolBytes those of
	// a pool, and warmAllBytes all of them.
	warmBytes     = keptBytes
	warmPoolBytes = 16 << 20
	warmAllBytes  = 64 << 20
	// warmLookEvery is the least time between two looks at a pool's requests: one costs
	// a few microseconds.
	warmLookEvery = 10 * time.Millisecond
	// warmCool is how long a prompt is kept whose prefix is no longer hot.
	warmCool = time.Minute
)

// warmPrompts keeps in memory, for each hot prefix of the pools that prewarm, the
// shortest request body of late that begins with it: what a replica with an empty cache
// is warmed with. Bodies go to replicas of their pool and nowhere else. Safe for
// concurrent use; a nil one keeps nothing.
type warmPrompts struct {
	mu    sync.Mutex
	bytes int                  // guarded by mu
	pools map[string]*warmPool // guarded by mu
}

type warmPool struct {
	looked time.Time
	bytes  int
	list   []*warmPrompt
}

// warmPrompt is a body as replicas get it, but for what differs between them. It is
// never changed.
type warmPrompt struct {
	mark     uint64 // of the prefix
	endpoint api.Endpoint
	adapter  string
	seed     prefix.Seed
	body     []byte
	hotUntil time.Time // guarded by warmPrompts.mu
}

// keep takes a copy of a request's body if it is the shortest with a prefix that is
// hot. It never waits.
func (p *warmPrompts) keep(j *Job, a *Ask, now time.Time) {
	if p == nil || j.pool.Spec.Prewarm <= 0 || !j.prompt || j.partial || len(a.Body) > warmBytes {
		return
	}
	if e := a.Request.Endpoint; e != api.Chat && e != api.Completions || !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	name := j.pool.Spec.Name
	k := p.pools[name]
	if k == nil {
		k = &warmPool{}
		p.pools[name] = k
	}
	if now.Sub(k.looked) < warmLookEvery {
		return
	}
	k.looked = now
	hot := j.core.store.View().Weights.Pools[name].Prewarm
	var body []byte
	for i := range hot {
		mark := hot[i].Mark
		if old := k.of(mark); old != nil && len(old.body) <= len(a.Body) {
			continue
		}
		if !slices.ContainsFunc(j.marks, func(m prefix.Mark) bool { return m.Hash == mark }) {
			continue
		}
		if body == nil {
			if l := api.ReadLegs(a.Request, a.Body); l.Several || l.Scores {
				return // engines treat it in ways of its own
			}
			body = slices.Clone(a.Body)
		}
		p.put(k, hot, j.pool.Spec.Prewarm, &warmPrompt{
			mark: mark, endpoint: a.Request.Endpoint, adapter: j.req.Adapter, seed: j.seed, body: body, hotUntil: now.Add(warmCool),
		})
	}
}

// put adds a prompt in the place of the one with its prefix, and of one that is no
// longer hot where there are n. The caller holds mu.
func (p *warmPrompts) put(k *warmPool, hot []state.HotPrefix, n int, x *warmPrompt) {
	at := slices.IndexFunc(k.list, func(y *warmPrompt) bool { return y.mark == x.mark })
	if at < 0 && len(k.list) >= n {
		at = slices.IndexFunc(k.list, func(y *warmPrompt) bool { return !isHot(hot, y.mark) })
		if at < 0 {
			return
		}
	}
	size := len(x.body)
	if at >= 0 {
		size -= len(k.list[at].body)
	}
	if k.bytes+size > warmPoolBytes || p.bytes+size > warmAllBytes {
		return
	}
	k.bytes, p.bytes = k.bytes+size, p.bytes+size
	if at >= 0 {
		k.list[at] = x
		return
	}
	k.list = append(k.list, x)
}

func isHot(hot []state.HotPrefix, mark uint64) bool {
	return slices.ContainsFunc(hot, func(h state.HotPrefix) bool { return h.Mark == mark })
}

func (k *warmPool) of(mark uint64) *warmPrompt {
	for _, x := range k.list {
		if x.mark == mark {
			return x
		}
	}
	return nil
}

// tidy frees what is kept of pools that are gone and of prefixes that have long ceased
// to be hot.
func (p *warmPrompts) tidy(v *state.View, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, k := range p.pools {
		hot := v.Weights.Pools[name].Prewarm
		for _, x := range k.list {
			if isHot(hot, x.mark) {
				x.hotUntil = now.Add(warmCool)
			}
		}
		p.drop(k, func(x *warmPrompt) bool { return !now.Before(x.hotUntil) })
		if v.PoolNamed(name) == nil {
			p.drop(k, func(*warmPrompt) bool { return true })
			delete(p.pools, name)
		}
	}
}

// refused forgets a prompt that engines don't take.
func (p *warmPrompts) refused(pool string, x *warmPrompt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.pools[pool]; k != nil {
		p.drop(k, func(y *warmPrompt) bool { return x == y })
	}
}

// drop frees some of a pool's prompts. The caller holds mu.
func (p *warmPrompts) drop(k *warmPool, which func(*warmPrompt) bool) {
	k.list = slices.DeleteFunc(k.list, func(x *warmPrompt) bool {
		if !which(x) {
			return false
		}
		k.bytes, p.bytes = k.bytes-len(x.body), p.bytes-len(x.body)
		return true
	})
}

// of lists what is kept of a pool, the hottest first.
func (p *warmPrompts) of(pool string, hot []state.HotPrefix) (list []*warmPrompt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.pools[pool]; k != nil {
		for i := range hot {
			if x := k.of(hot[i].Mark); x != nil {
				list = append(list, x)
			}
		}
	}
	return list
}
