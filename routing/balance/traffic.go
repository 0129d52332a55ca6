package balance

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// Sketch tells what replicas hold; *sketch.Index.
type Sketch interface {
	Lookup(dst []sketch.Match, marks []prefix.Mark, slots []state.Slot, now time.Time)
}

// Pick is what a pick tells of its prompt. It is only read, and only during Picked.
type Pick struct {
	Pool   string        // its name
	Prompt int           // tokens
	Held   int           // the most of them that one replica held
	Marks  []prefix.Mark // shallow to deep; may be empty
	Tokens []int32       // token depth of each mark
}

// Picked takes what a pick tells of its prompt. It may be called from any goroutine,
// once per request; it waits for nothing and allocates nothing.
func (l *Loop) Picked(p *Pick) {
	m := l.traffic.Load()
	if m == nil {
		return
	}
	t := (*m)[p.Pool]
	if t == nil || p.Prompt <= 0 {
		return
	}
	n := t.picks.Add(1)
	t.prompt.Add(int64(p.Prompt))
	t.held.Add(int64(min(p.Held, p.Prompt)))
	if n > lookAtAll && n%lookAtEach != 0 {
		return
	}
	if t.mu.TryLock() { // else another pick is being looked at: this one is not missed
		t.hot.offer(p.Marks, p.Tokens)
		t.mu.Unlock()
	}
}

const (
	// Between two steps so many prompts are all looked at for hot prefixes, and then each
	// eighth: to count one takes some microseconds.
	lookAtAll  = 32
	lookAtEach = 8
	// sharingHalfLife smooths the sharing ratio: several chats' turns long, and short
	// against the hours in which traffic changes.
	sharingHalfLife = 30 * time.Second
	// holdersEvery is how often it is looked up who holds hot prefixes.
	holdersEvery = time.Second
)

// traffic is what a pool's picks tell of its prompts.
type traffic struct {
	picks, prompt, held atomic.Int64 // since the last step

	mu  sync.Mutex
	hot hot // guarded by mu

	// The rest belongs to Step.
	last               time.Time
	n, tokens, resides float64 // picks, prompt tokens, those held: fading
	auto               auto
	prewarm            []state.HotPrefix
	asked              time.Time      // when holders were looked up last
	holders            map[uint64]int // of what was hot then
	slots              []state.Slot   // scratch
	matches            []sketch.Match // scratch
}

// watch keeps a traffic for every pool of the View and for no other.
func (l *Loop) watch(v *state.View) {
	was := l.traffic.Load()
	next := make(map[string]*traffic, len(v.Pools))
	same := was != nil && len(*was) == len(v.Pools)
	for _, p := range v.Pools {
		name := p.Spec.Name
		if was != nil {
			next[name] = (*was)[name]
		}
		if next[name] == nil {
			next[name], same = &traffic{}, false
		}
	}
	if !same {
		l.traffic.Store(&next)
	}
}

// step takes in what came since the last one and says what holds.
func (t *traffic) step(b *state.PoolBalance, pool *state.PoolView, sk Sketch, now time.Time) {
	keep := 0.0
	since := now.Sub(t.last)
	if !t.last.IsZero() {
		keep = fade(since, sharingHalfLife)
	}
	t.last = now
	t.n = t.n*keep + float64(t.picks.Swap(0))
	t.tokens = t.tokens*keep + float64(t.prompt.Swap(0))
	t.resides = t.resides*keep + float64(t.held.Swap(0))
	if t.tokens > 0 {
		b.Picks, b.Sharing = t.n, min(1, t.resides/t.tokens)
	}
	b.LoadOnly = t.auto.step(b.Sharing, b.Picks, now)
	t.mu.Lock()
	t.hot.fade(since)
	list := t.hot.top(max(state.MaxHotPrefixes, pool.Spec.Prewarm))
	t.mu.Unlock()
	t.prewarm = list[:min(len(list), max(0, pool.Spec.Prewarm))]
	b.Prewarm = t.prewarm
	b.Hot = slices.Clone(list[:min(len(list), state.MaxHotPrefixes)])
	t.askHolders(b.Hot, pool, sk, now)
	for i := range b.Hot {
		h := &b.Hot[i]
		n, known := t.holders[h.Mark]
		if h.Holders = n; !known {
			h.Holders = -1
		}
	}
}

// askHolders counts who holds what is hot, now and then.
func (t *traffic) askHolders(list []state.HotPrefix, pool *state.PoolView, sk Sketch, now time.Time) {
	if sk == nil || now.Sub(t.asked) < holdersEvery {
		return
	}
	t.asked = now
	t.holders = make(map[uint64]int, len(list))
	t.slots, t.matches = t.slots[:0], t.matches[:0]
	for _, r := range pool.Replicas {
		t.slots, t.matches = append(t.slots, r.Slot), append(t.matches, sketch.Match{})
	}
	for _, h := range list {
		clear(t.matches)
		sk.Lookup(t.matches, []prefix.Mark{{Hash: h.Mark}}, t.slots, now)
		n := 0
		for i := range t.matches {
			if t.matches[i].Live > 0 {
				n++
			}
		}
		t.holders[h.Mark] = n
	}
}

const (
	// autoLow and autoHigh are the shares of prompt tokens held somewhere below and
	// above which the policy auto leaves caches out of account and counts them again;
	// autoDwell is the least time between two changes of its mind, and autoPicks what
	// the first one has to rest on.
	autoLow   = 0.05
	autoHigh  = 0.12
	autoDwell = 30 * time.Second
	autoPicks = 20
)

// auto is the mind of the policy auto about one pool.
type auto struct {
	loadOnly bool
	since    time.Time // of the last change; zero: none yet
}

// step looks at the sharing ratio again, and returns whether caches are left out.
func (a *auto) step(sharing, picks float64, now time.Time) bool {
	want := a.loadOnly
	switch {
	case picks < autoPicks: // too little is known
	case sharing < autoLow:
		want = true
	case sharing > autoHigh:
		want = false
	}
	if want != a.loadOnly && now.Sub(a.since) >= autoDwell {
		a.loadOnly, a.since = want, now
	}
	return a.loadOnly
}
