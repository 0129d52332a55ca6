package routing_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

func TestTTFTChooses(t *testing.T) {
	f := func(name string, want int, reason string, setUp func(*world)) {
		t.Helper()
		w := newWorld(t, 3, "")
		setUp(w)
		req := w.prompt(4096)
		if got := w.picks(20, req); got[id(want)] != 20 {
			t.Errorf("%s: picks %v, want all at r%d", name, got, want)
		}
		if c := w.one(req); c.Reason != reason || c.Policy != routing.TTFT {
			t.Errorf("%s: reason %s by %s, want %s", name, c.Reason, c.Policy, reason)
		}
	}
	busy := state.Load{InFlight: 5, Prefill: 5, UncachedTokens: 20000}
	f("the holder, when all are idle", 1, routing.ReasonWarm, func(w *world) { w.hold(1, 2048) })
	f("the deepest holder", 2, routing.ReasonWarm, func(w *world) { w.hold(1, 2048); w.hold(2, 3072) })
	f("not the holder with a long queue", 0, routing.ReasonSpill, func(w *world) {
		w.hold(1, 2048)
		w.load(1, busy)
		w.load(2, state.Load{InFlight: 1, Prefill: 1, UncachedTokens: 3000})
	})
	f("the less loaded holder", 2, routing.ReasonWarm, func(w *world) { w.hold(1, 3072); w.hold(2, 3072); w.load(1, busy) })
	f("a short queue is worth a long match", 1, routing.ReasonWarm, func(w *world) {
		w.hold(1, 3840)
		w.load(1, state.Load{InFlight: 1, Prefill: 1, UncachedTokens: 2000})
	})
	f("fewer decode streams among the cold", 2, routing.ReasonCold, func(w *world) {
		w.load(0, state.Load{InFlight: 20})
		w.load(1, state.Load{InFlight: 10})
		w.load(2, state.Load{InFlight: 5})
	})
	f("own dispatches count at once", 2, routing.ReasonCold, func(w *world) {
		w.store.Begin(w.replica(0), 4000)
		w.store.Begin(w.replica(1), 4000)
	})
	f("waiting at the engine that nobody accounts for", 0, routing.ReasonCold, func(w *world) {
		w.read(1, func(r *state.Reading) { r.Running, r.Waiting = 8, 30 })
		w.read(2, func(r *state.Reading) { r.Running, r.Waiting = 0, 3 })
	})
	f("KV full at the holder", 2, routing.ReasonSpill, func(w *world) {
		w.hold(1, 3072)
		w.load(1, state.Load{InFlight: 1})
		w.hold(2, 2816)
		w.read(1, func(r *state.Reading) { r.Running, r.Waiting, r.KVUsage, r.Capacity = 1, 0, 1, 5000 })
	})
	f("a replica that asked for patience", 2, routing.ReasonCold, func(w *world) {
		until := w.now.Add(2 * time.Second)
		w.weigh(map[int]state.Weight{0: {Slow: 1, BusyUntil: until}, 1: {Slow: 1, BusyUntil: until}}, false)
	})
	f("a replica in slow start is used less", 2, routing.ReasonCold, func(w *world) {
		w.weigh(map[int]state.Weight{0: {Slow: 0.1}, 1: {Slow: 0.5}, 2: {Slow: 1}}, false)
	})
}

// C26: the holder that drowns, the holder with some work, the cold idle one.
func TestAnOverloadedHolderIsLeftForALighterOneFirst(t *testing.T) {
	w := newWorld(t, 3, "")
	w.hold(0, 4864)
	w.hold(1, 4864)
	w.read(0, func(r *state.Reading) { r.Running, r.Waiting = 16, 30 })
	w.read(1, func(r *state.Reading) { r.Running, r.Waiting = 3, 0 })
	w.read(2, func(r *state.Reading) { r.Running, r.Waiting = 0, 0 })
	got := map[state.ReplicaID]int{}
	var firstCold int
	for n := range 40 {
		c := w.one(w.prompt(5000))
		got[c.Replica.ID]++
		if firstCold == 0 && c.Replica.ID == id(2) {
			firstCold = n
		}
		w.store.Begin(c.Replica, c.UncachedTokens).FirstToken()
		if c.Replica.ID == id(2) {
			w.hold(2, 4864)
		}
	}
	if got[id(0)] > 4 || got[id(1)] == 0 || got[id(2)] == 0 || firstCold < 1 {
		t.Errorf("picks %v, first cold one after %d; want few at r0, then r1 before r2", got, firstCold)
	}
}

func TestEquallyGoodIsChosenAtRandom(t *testing.T) {
	w := newWorld(t, 4, "")
	w.load(3, state.Load{InFlight: 3, Prefill: 3, UncachedTokens: 9000})
	w.load(2, state.Load{InFlight: 1, Prefill: 0, UncachedTokens: 8}) // less than a block behind
	w.load(2, state.Load{UncachedTokens: 8})
	got := w.picks(300, w.prompt(1000))
	for i := range 3 {
		if n := got[id(i)]; n < 60 || n > 140 {
			t.Errorf("r%d got %d of 300, want about 100: %v", i, n, got)
		}
	}
}

func TestScoreTerms(t *testing.T) {
	w := newWorld(t, 1, "")
	w.hold(0, 1024)
	w.store.Begin(w.replica(0), 500)
	w.load(0, state.Load{InFlight: 12, Prefill: 2, UncachedTokens: 1500})
	w.read(0, func(r *state.Reading) { r.Running, r.Waiting = 14, 3 })
	req := w.prompt(4000)
	req.MaxTokens = 50
	c := w.one(req)
	got, p := c.Candidates[0].Terms, routing.DefaultParams()
	// 13 known in flight, 3 of them in prefill, so 4 foreign: none of the 3 waiting is
	// more than the prefills we know of.
	rate := p.Rate * (1 - 14*p.Slowdown)
	prefill := 2976 / rate * 1000
	want := routing.Terms{
		Own: 500, Others: 1500, Foreign: 0, Decode: 14, Rate: rate,
		Fixed: p.Fixed, Queue: 2000 / rate * 1000, Prefill: prefill,
		Attention: p.Quadratic * 2976 * 4000, Eviction: prefill,
		Streams: routing.DefaultStreamWeight*50*(p.ITLPerStream*29*(p.ITL/p.ITLAt(15))) + routing.DefaultStallWeight*14*(p.ITL/p.ITLAt(15))*prefill,
	}
	if got != want {
		t.Errorf("terms\n%+v, want\n%+v", got, want)
	}
	if c.MatchedTokens != 1024 || c.UncachedTokens != 2976 || c.PromptTokens != 4000 || c.ExpectedOutput != 50 {
		t.Errorf("choice %+v", c)
	}
	ms := want.Fixed + want.Queue + want.Prefill + want.Attention
	if math.Abs(float64(c.TTFT)/1e6-ms) > 0.01 {
		t.Errorf("predicted %v, want %.2f ms", c.TTFT, ms)
	}
	if s := c.Sample(); s.QueueTokens != 2000 || s.Decode != 14 || s.UncachedTokens != 2976 || s.Replica != id(0) || s.Pool != "chat" {
		t.Errorf("sample %+v", s)
	}
}

// An engine that runs no more than so many at a time lets others wait, however little
// they have to prefill.
func TestWaitForARunningRequestToEnd(t *testing.T) {
	w := newWorld(t, 2, "")
	w.hold(0, 4096)
	req := w.prompt(4200)
	w.load(0, state.Load{InFlight: 12})
	slots := func(concurrency float64) *routing.Choice {
		w.weigh(map[int]state.Weight{0: {Slow: 1, Concurrency: concurrency}}, false)
		return w.one(req)
	}
	if c := slots(0); c.Replica.ID != id(0) || c.Candidates[0].Terms.Slots != 0 {
		t.Errorf("nothing is known: %s, %+v", c.Replica.ID, c.Candidates[0].Terms)
	}
	if c := slots(13); c.Replica.ID != id(0) || c.Candidates[0].Terms.Slots != 0 {
		t.Errorf("there is room for one: %s, %+v", c.Replica.ID, c.Candidates[0].Terms)
	}
	c := slots(8) // five have to end before it; eight run, each for an output's time
	want := 5 * float64(c.ExpectedOutput) * (29 + 7*0.36) / 8
	if got := c.Candidates[0].Terms.Slots; math.Abs(got-want) > 1 || c.Replica.ID != id(1) {
		t.Errorf("no room: to %s, wait %.0f ms, want %.0f", c.Replica.ID, got, want)
	}
	if k := c.Candidates[0]; k.Terms.TTFT() < want {
		t.Errorf("the wait is no part of the time to first token: %.0f ms", k.Terms.TTFT())
	}
	w.load(1, state.Load{InFlight: 30})
	w.weigh(map[int]state.Weight{0: {Slow: 1, Concurrency: 13}, 1: {Slow: 1, Concurrency: 8}}, false)
	w.read(0, func(r *state.Reading) { r.Running, r.Waiting = 13, 7 }) // past the routers: one running, seven waiting
	if got := w.one(req).Candidates[0].Terms.Slots; got <= 0 {
		t.Errorf("requests past the routers take no room")
	}
	if w.one(req).Sample().Loads != true {
		t.Error("such a sample says nothing of speed")
	}
}

func TestForeignWorkInTerms(t *testing.T) {
	f := func(name string, tokens, decode float64, read func(*state.Reading)) {
		t.Helper()
		w := newWorld(t, 1, "")
		w.read(0, read)
		got := w.one(w.prompt(100)).Candidates[0].Terms
		if got.Foreign != tokens || got.Decode != decode {
			t.Errorf("%s: %v tokens, %v streams, want %v and %v", name, got.Foreign, got.Decode, tokens, decode)
		}
	}
	mean := routing.DefaultParams().Uncached
	f("running and waiting", 3*mean, 5, func(r *state.Reading) { r.Running, r.Waiting = 5, 3 })
	f("running only", 0, 5, func(r *state.Reading) { r.Running, r.Waiting = 5, 0 })
	f("the engine counts its waiting tokens", 777, 5, func(r *state.Reading) { r.Running, r.Waiting, r.WaitingUncached = 5, 3, 777 })
	f("nothing known", 0, 0, func(*state.Reading) {})
	f("waiting unknown", 0, 5, func(r *state.Reading) { r.Running = 5 })
}

func TestWhatAMatchIsWorth(t *testing.T) {
	f := func(name string, m sketch.Match, queue int64, matched int, credit float64) {
		t.Helper()
		w := newWorld(t, 1, "")
		w.holds[w.replica(0).Slot] = m
		w.load(0, state.Load{InFlight: 1, Prefill: 1, UncachedTokens: queue})
		got := w.one(w.prompt(4096)).Candidates[0]
		if got.Matched != matched || math.Abs(got.Credit-credit) > 1 {
			t.Errorf("%s: matched %d, credit %.0f, want %d and %.0f", name, got.Matched, got.Credit, matched, credit)
		}
	}
	f("nothing", sketch.Match{}, 0, 0, 0)
	f("some", sketch.Match{Live: 8}, 0, 2048, 2048)
	f("all: engines compute the last token's block anyway", sketch.Match{Live: 16}, 0, 4080, 4080)
	f("more marks than the prompt has", sketch.Match{Live: 99}, 0, 4080, 4080)
	f("an answer mark half believed", sketch.Match{Live: 8, Solid: 4, Answer: true, Trust: 0.5}, 0, 1536, 1536)
	f("an answer mark not believed", sketch.Match{Live: 8, Solid: 4, Answer: true}, 0, 1024, 1024)
	f("an answer mark believed", sketch.Match{Live: 8, Solid: 4, Answer: true, Trust: 1}, 0, 2048, 2048)
	f("pending, its prefill just begun", sketch.Match{Live: 4, Pending: 8}, 9000, 2048, 1024+0.88*1024)
	f("pending, half way", sketch.Match{Live: 4, Pending: 8, PendingAge: time.Second}, 9000, 2048, 1024+0.94*1024)
	f("pending, nothing queued any more", sketch.Match{Live: 4, Pending: 8, PendingAge: time.Second}, 0, 2048, 2048)
	f("known and taken for evicted", sketch.Match{Faded: 8}, 0, 0, 0.25*2048)
	f("some alive, more taken for evicted", sketch.Match{Live: 4, Faded: 8}, 0, 1024, 1024+0.25*1024)
	f("pending less deep than live", sketch.Match{Live: 8, Pending: 4}, 9000, 2048, 2048)
}

// K06: a burst of one cold prefix takes a few replicas, not one and not all, and
// routers that have not yet heard of each other take about as many as one.
func TestABurstOfOneColdPrefix(t *testing.T) {
	used := func(routers int) int {
		got := map[state.ReplicaID]int{}
		for r := range routers {
			w := newWorld(t, 16, "")
			w.pick = routing.NewPicker(routing.Config{Rand: rand.New(rand.NewPCG(uint64(r), 3)).Uint64}, w, w.cal)
			for range 32 / routers {
				c := w.one(w.prompt(8192 + 300))
				got[c.Replica.ID]++
				w.store.Begin(c.Replica, c.UncachedTokens)
				w.holds[c.Replica.Slot] = sketch.Match{Pending: 8192 / 256}
			}
		}
		return len(got)
	}
	one, four := used(1), used(4)
	if one < 2 || one > 6 || four > one+2 || four < one-2 {
		t.Errorf("32 requests took %d replicas through one router, %d through four", one, four)
	}
}

// K05: a wave of short requests over idle replicas.
func TestAWaveSpreadsEvenly(t *testing.T) {
	w := newWorld(t, 8, "")
	got := map[state.ReplicaID]int{}
	for range 800 {
		c := w.one(w.prompt(100))
		got[c.Replica.ID]++
		w.store.Begin(c.Replica, c.UncachedTokens)
	}
	for r, n := range got {
		if n > 130 {
			t.Errorf("%s got %d of 800, want at most 1.3 of the mean: %v", r, n, got)
		}
	}
}

// K12: load follows speed once it is known.
func TestASlowReplicaGetsItsShare(t *testing.T) {
	w := newWorld(t, 4, "")
	for i := range 4 {
		p := routing.DefaultParams()
		if i == 0 {
			p.Rate, p.Fixed, p.ITL, p.ITLPerStream = p.Rate/4, p.Fixed*4, p.ITL*4, p.ITLPerStream*4
		}
		p.Samples = 200
		w.cal.Seed(w.replica(i).Slot, id(i), "chat", p)
	}
	got := map[state.ReplicaID]int{}
	for range 1300 {
		c := w.one(w.prompt(2000))
		got[c.Replica.ID]++
		w.store.Begin(c.Replica, c.UncachedTokens)
	}
	if n := got[id(0)]; n < 70 || n > 130 {
		t.Errorf("the slow one got %d of 1300, want about 100: %v", n, got)
	}
}

// An engine holds whole blocks of its own size, and computes a prompt's last token.
func TestMatchesAreWholeBlocks(t *testing.T) {
	f := func(block float64, prompt, held, want int) {
		t.Helper()
		w := newWorld(t, 1, "")
		if block != 0 {
			w.read(0, func(r *state.Reading) { r.BlockSize = block })
		}
		w.hold(0, held)
		if got := w.one(w.prompt(prompt)).MatchedTokens; got != want {
			t.Errorf("blocks of %v, %d of %d tokens held: %d matched, want %d", block, held, prompt, got, want)
		}
	}
	f(0, 1000, 768, 768)
	f(16, 1000, 1024, 992) // the whole prompt: its last mark is its end
	f(100, 1000, 768, 700)
	f(128, 1000, 1024, 896)
	f(256, 1024, 1024, 768)
	f(2048, 1000, 768, 0)
	f(1, 1000, 1024, 999)
	f(-1, 1000, 768, 768)
}
