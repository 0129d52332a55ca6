package sketch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/traces"
)

// trial is one cache that serves requests sprayed over routers.
type trial struct {
	seed     uint64
	routers  int
	given    float64 // C_eff as the engine says it; 0 unknown
	bias     float64 // of token estimates
	requests int
	next     func() (prompt, whole text, done func())
	// serve takes blocks of prompt and whole; it returns the prompt's cached tokens.
	serve     func(prompt, whole []uint64, promptTokens int) int
	slots     int           // of a replica that keeps a last prompt per slot; 0: an LRU of given tokens
	answering time.Duration // from the placing to the end
}

// course is what became of a trial.
type course struct {
	median, mean float64   // of |predicted - cached| over the larger, last three quarters, where either is above 0
	hit          float64   // share of prompt tokens cached
	ceff         []float64 // after each request, at the router that took it
}

// wire delivers ops after up to a second, some twice, in the order they come, and
// does what else is due meanwhile.
type wire struct {
	rng *rand.Rand
	rs  []*router
	due []event
}

type event struct {
	at time.Duration
	do func()
}

func (n *wire) later(at time.Duration, do func()) {
	i, _ := slices.BinarySearchFunc(n.due, at, func(e event, at time.Duration) int {
		if e.at <= at {
			return -1 // what is due at one instant happens in order
		}
		return 1
	})
	n.due = slices.Insert(n.due, i, event{at, do})
}

// pump runs until now.
func (n *wire) pump(w *world, now time.Duration) {
	for len(n.due) > 0 && n.due[0].at <= now {
		e := n.due[0]
		n.due = n.due[1:]
		w.at(e.at)
		e.do()
		n.send(w, e.at)
	}
	w.at(now)
}

// send puts what is new at each router on the wire.
func (n *wire) send(w *world, now time.Duration) {
	for _, r := range n.rs {
		for _, op := range drain(r.x, &r.cursor) {
			if op.Boot != r.x.clock.Boot() {
				continue
			}
			for _, o := range n.rs {
				for k := 0; o != r && (k == 0 || k == 1 && n.rng.IntN(5) == 0); k++ {
					n.later(now+time.Duration(n.rng.IntN(1000))*time.Millisecond, func() { o.x.Apply(op, w.now) })
				}
			}
		}
	}
}

func (tr trial) run() course {
	w := newWorld()
	rng := rand.New(rand.NewPCG(tr.seed, 99))
	net := &wire{rng: rng}
	for i := range max(1, tr.routers) {
		x := w.index(state.BootID(i+1), Bounds{})
		if tr.given > 0 {
			x.SetCapacity("a", tr.given, CapacityEngine)
			x.SetSlots("a", tr.slots, tr.given, CapacityEngine)
		}
		net.rs = append(net.rs, &router{x: x})
	}
	var c course
	var errs []float64
	var hit, all int
	for n := range tr.requests {
		p, whole, done := tr.next()
		blocks, m, d := p.hashes(tr.bias)
		both, am, ad := whole.hashes(tr.bias)
		start := time.Duration(n) * 400 * time.Millisecond
		net.pump(w, start)
		x := net.rs[rng.IntN(len(net.rs))].x
		match := w.look(x, "a", m)
		predicted := 0
		if match.Solid > 0 {
			predicted = int(d[match.Solid-1])
		}
		if match.Live > match.Solid {
			predicted += int(match.Trust * float64(int(d[match.Live-1])-predicted))
		}
		predicted = min(int(float64(predicted)/tr.bias), p.tokens()-1) / blockTokens * blockTokens
		pl := x.Place("a", m, d, w.now)
		cached := tr.serve(blocks, both, p.tokens())
		net.send(w, start)
		net.later(start+50*time.Millisecond, func() { pl.First(w.now) })
		net.later(start+tr.answering, func() {
			pl.Answer(am, ad)
			pl.End(w.now)
			pl.Evidence(int(float64(predicted)*tr.bias), p.tokens(), cached)
		})
		done()
		c.ceff = append(c.ceff, x.Stats("a").CEff)
		if n < tr.requests/4 {
			continue
		}
		hit, all = hit+cached, all+p.tokens()
		if top := max(predicted, cached); top > 0 {
			errs = append(errs, max(float64(predicted-cached), float64(cached-predicted))/float64(top))
		}
	}
	slices.Sort(errs)
	for _, e := range errs {
		c.mean += e / float64(len(errs))
	}
	if len(errs) > 0 {
		c.median = errs[len(errs)/2]
	}
	c.hit = float64(hit) / float64(all)
	return c
}

// settled is after how many requests C_eff stays within a quarter of the truth.
func (c *course) settled(truth float64) int {
	for n := len(c.ceff); n > 0; n-- {
		if v := c.ceff[n-1] / truth; v < 0.75 || v > 1.25 {
			return n
		}
	}
	return 0
}

// band is the spread of C_eff over the last half in parts of the truth; swings is
// how often it went through all of the middle half of that band, one way or back.
func (c *course) band(truth float64) (width float64, swings int) {
	late := c.ceff[len(c.ceff)/2:]
	lo, hi := slices.Min(late), slices.Max(late)
	side := 0
	for _, v := range late {
		now := side
		switch {
		case v < lo+(hi-lo)/4:
			now = -1
		case v > hi-(hi-lo)/4:
			now = 1
		}
		if now != side && side != 0 {
			swings++
		}
		side = now
	}
	return (hi - lo) / truth, swings
}

// mooncake reads the conversation trace: prompts of 512-token blocks by id, each
// answered by text that no later prompt is known to repeat.
func mooncake(tb testing.TB, seed uint64) func() (prompt, whole text, done func()) {
	tb.Helper()
	src, err := traces.Open(traces.MooncakeConversation, traces.OpenConfig{Seed: seed})
	if err != nil {
		tb.Fatal(err)
	}
	const scale = 16 // all lengths are divided by it
	answer := uint64(1) << 62
	return func() (prompt, whole text, done func()) {
		r, err := src.Next()
		if err != nil {
			tb.Fatal(err)
		}
		for _, m := range r.Messages {
			for _, p := range m.Parts {
				prompt = append(prompt, segment{p.ID, max(1, p.Tokens/scale)})
			}
		}
		answer++
		return prompt, append(slices.Clone(prompt), segment{answer, max(1, r.OutputTokens/scale)}), func() {}
	}
}

func TestPredictionAgainstExactBlockLRU(t *testing.T) {
	f := func(traffic string, routers, cache int, given, bias float64, requests, within int) {
		t.Helper()
		t.Run(fmt.Sprintf("%s, %d routers, cache %d given %gx bias %g", traffic, routers, cache, given, bias), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(2) {
				if seed > 0 && (traffic == "mooncake" || routers > 1) {
					break
				}
				lru := newBlockCache(cache)
				tr := trial{seed: seed, routers: routers, given: given * float64(cache), bias: bias, requests: requests, serve: lru.serve, answering: 350 * time.Millisecond}
				if routers > 1 {
					tr.answering = 1500 * time.Millisecond
				}
				if tr.next = (&chats{rng: rand.New(rand.NewPCG(seed, 1))}).next; traffic == "mooncake" {
					tr.next = mooncake(t, seed)
				}
				c := tr.run()
				truth := float64(cache)
				settled := c.settled(truth)
				width, swings := c.band(truth)
				t.Logf("seed %d: hit %.2f error median %.3f mean %.3f; C_eff ends at %.2fx, settled after %d, band %.2f, %d swings",
					seed, c.hit, c.median, c.mean, c.ceff[len(c.ceff)-1]/truth, settled, width, swings)
				if c.median > 0.05 {
					t.Errorf("median error %.3f", c.median)
				}
				if settled > within {
					t.Errorf("C_eff settles after %d of %d requests", settled, requests)
				}
				if width > 0.25 || width > 0.08 && swings > 4 {
					t.Errorf("C_eff oscillates: band %.2f of the truth, %d swings", width, swings)
				}
			}
		})
	}
	caches, prompts := []int{12_000, 30_000, 80_000}, []int{60_000, 120_000, 240_000}
	if underRace {
		f("chats", 4, 30_000, 0.5, 1, 1000, 250)
		f("mooncake", 1, 120_000, 2, 1, 1500, 1000)
		return
	}
	for _, cache := range caches {
		f("chats", 1, cache, 1, 1, 1000, 0)
		f("chats", 1, cache, 2, 1.15, 1000, 450)
		f("chats", 1, cache, 0.5, 0.9, 1000, 250)
		f("chats", 4, cache, 2, 1, 1000, 450)
		f("chats", 4, cache, 0.5, 1, 1000, 250)
	}
	f("chats", 1, 30_000, 0, 1, 2000, 250) // nobody gave a capacity
	// Few prompts of the recording say anything: one in twenty tokens is cached.
	for _, cache := range prompts {
		f("mooncake", 1, cache, 2, 1, 1500, 1000)
		f("mooncake", 4, cache, 0.5, 1, 1500, 1000)
	}
}
