package routing_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// engine makes samples of a replica with known parameters.
type engine struct {
	routing.Params
	rnd   *rand.Rand
	noise float64
}

func (e *engine) sample() routing.Sample {
	u := math.Exp(e.rnd.Float64()*5 + 3.5) // 33 to 4900 tokens
	if e.rnd.IntN(10) == 0 {
		u *= 4
	}
	s := routing.Sample{
		Replica: "r", Pool: "chat", UncachedTokens: int(u), PromptTokens: int(u * (1 + 3*e.rnd.Float64())),
		QueueTokens: max(0, e.rnd.NormFloat64()*3000), Decode: float64(e.rnd.IntN(64)),
	}
	s.ITLBatch = s.Decode + 1
	ms := e.Fixed + (s.QueueTokens+float64(s.UncachedTokens))/e.RateAt(s.Decode)*1000 +
		e.Quadratic*float64(s.UncachedTokens)*float64(s.PromptTokens)
	noise := func() float64 { return math.Exp(e.noise * e.rnd.NormFloat64()) }
	s.TTFT = time.Duration(ms * noise() * 1e6)
	s.ITL = time.Duration(e.ITLAt(s.ITLBatch) * noise() * 1e6)
	return s
}

func within(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if math.Abs(got-want) > share*want {
		t.Errorf("%s: %.5g, want %.5g within %.0f %%", what, got, want, 100*share)
	}
}

func TestCalibrationConverges(t *testing.T) {
	f := func(name string, p routing.Params, n int, noise float64, spoil func(i int, s *routing.Sample)) {
		t.Helper()
		for seed := range uint64(3) {
			e := engine{p, rand.New(rand.NewPCG(seed, 7)), noise}
			c := routing.NewCalibration()
			for i := range n {
				s := e.sample()
				if spoil != nil {
					spoil(i, &s)
				}
				c.Observe(s)
			}
			got := c.Params(0, "chat")
			within(t, name+": rate", got.Rate, p.Rate, 0.1)
			within(t, name+": ITL", got.ITL, p.ITL, 0.1)
			within(t, name+": ITL per stream", got.ITLPerStream, p.ITLPerStream, 0.2)
			if d := math.Abs(got.Fixed - p.Fixed); d > 0.1*p.Fixed && d > 10 {
				t.Errorf("%s: fixed %.1f ms, want %.1f", name, got.Fixed, p.Fixed)
			}
			if d := math.Abs(got.Slowdown - p.Slowdown); d > 0.0025 {
				t.Errorf("%s: slowdown %.5f, want %.5f", name, got.Slowdown, p.Slowdown)
			}
			// What matters in the end: predictions.
			var off, sum float64
			for range 200 {
				s := e.sample()
				guess := got.Fixed + (s.QueueTokens+float64(s.UncachedTokens))/got.RateAt(s.Decode)*1000 +
					got.Quadratic*float64(s.UncachedTokens)*float64(s.PromptTokens)
				ms := float64(s.TTFT) / 1e6
				off += math.Abs(guess - ms)
				sum += ms
			}
			if off/sum > 0.05+1.2*noise {
				t.Errorf("%s: predictions are off by %.0f %%", name, 100*off/sum)
			}
		}
	}
	d := routing.DefaultParams()
	f("as the defaults", d, 300, 0.1, nil)
	f("ten times slower", routing.Params{Rate: 900, Fixed: 200, Slowdown: 0.004, Quadratic: 1e-6, ITL: 80, ITLPerStream: 2}, 300, 0.1, nil)
	f("ten times faster", routing.Params{Rate: 60000, Fixed: 8, Slowdown: 0.001, Quadratic: 2e-7, ITL: 6, ITLPerStream: 0.1}, 300, 0.1, nil)
	f("slowed by decode", routing.Params{Rate: 20000, Fixed: 40, Slowdown: 0.01, Quadratic: 1e-6, ITL: 20, ITLPerStream: 0.5}, 500, 0.1, nil)
	f("noisy", routing.Params{Rate: 5000, Fixed: 60, Slowdown: 0.002, Quadratic: 1e-6, ITL: 20, ITLPerStream: 0.5}, 1000, 0.25, nil)
	f("one in twenty far out", routing.Params{Rate: 5000, Fixed: 60, Slowdown: 0.002, Quadratic: 1e-6, ITL: 20, ITLPerStream: 0.5}, 1000, 0.1,
		func(i int, s *routing.Sample) {
			if i%20 == 10 {
				s.TTFT *= 30
				s.ITL *= 30
			}
		})
}

func TestCalibrationFollowsAChange(t *testing.T) {
	c := routing.NewCalibration()
	e := engine{routing.DefaultParams(), rand.New(rand.NewPCG(1, 1)), 0.1}
	for range 500 {
		c.Observe(e.sample())
	}
	e.Rate /= 3
	for range 300 {
		c.Observe(e.sample())
	}
	within(t, "rate after it fell to a third", c.Params(0, "chat").Rate, e.Rate, 0.12)
}

func TestCalibrationSkips(t *testing.T) {
	f := func(name string, want bool, change func(*routing.Sample)) {
		t.Helper()
		c := routing.NewCalibration()
		s := routing.Sample{Replica: "r", Pool: "chat", UncachedTokens: 100, PromptTokens: 100, TTFT: time.Second}
		change(&s)
		c.Observe(s)
		if observed, skipped := c.Counts(); observed+skipped != 1 || (observed == 1) != want {
			t.Errorf("%s: counts %d and %d", name, observed, skipped)
		}
	}
	f("an ordinary one", true, func(*routing.Sample) {})
	f("a retry", false, func(s *routing.Sample) { s.Retried = true })
	f("across a restart", false, func(s *routing.Sample) { s.Restarted = true })
	f("an old view", false, func(s *routing.Sample) { s.ViewAge = 2 * time.Second })
	f("no first token", false, func(s *routing.Sample) { s.TTFT = 0 })
	f("only an inter-token time", true, func(s *routing.Sample) { s.TTFT, s.ITL, s.ITLBatch = 0, time.Millisecond, 2 })
}

// Whatever is observed, the parameters are numbers within bounds.
func TestCalibrationIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := routing.NewCalibration()
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			c.Observe(routing.Sample{
				Replica: "r", Pool: "chat",
				UncachedTokens: rapid.IntRange(-10, 1<<30).Draw(t, "u"),
				PromptTokens:   rapid.IntRange(-10, 1<<30).Draw(t, "p"),
				QueueTokens:    rapid.Float64Range(-10, 1e12).Draw(t, "q"),
				Decode:         rapid.Float64Range(0, 1e6).Draw(t, "b"),
				TTFT:           time.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(t, "ttft")),
				ITL:            time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "itl")),
				ITLBatch:       rapid.Float64Range(0, 1e6).Draw(t, "ib"),
			})
			p := c.Params(0, "chat")
			for what, v := range map[string][3]float64{
				"rate": {p.Rate, 5, 1.0001e6}, "fixed": {p.Fixed, 0.0999, 5001}, "slowdown": {p.Slowdown, 0, 0.05},
				"quadratic": {p.Quadratic, 0, 1.0001e-4}, "itl": {p.ITL, 0.1, 5000}, "per stream": {p.ITLPerStream, 0, 200},
				"uncached": {p.Uncached, 1, 1e6},
			} {
				if !(v[0] >= v[1]*0.999 && v[0] <= v[2]) {
					t.Fatalf("%s is %v", what, v[0])
				}
			}
		}
	})
}

func TestANewReplicaIsTakenForItsPoolsMean(t *testing.T) {
	c := routing.NewCalibration()
	p := routing.Params{Rate: 1500, Fixed: 60, Slowdown: 0.002, ITL: 20, ITLPerStream: 0.5}
	e := engine{p, rand.New(rand.NewPCG(1, 1)), 0.1}
	for range 400 {
		c.Observe(e.sample())
	}
	within(t, "rate of a new replica", c.Params(7, "chat").Rate, 1500, 0.15)
	if got := c.Params(7, "other pool"); got != routing.DefaultParams() {
		t.Errorf("another pool's replica: %+v", got)
	}
	if _, ok := c.Of("unheard of"); ok {
		t.Error("an unknown replica is known")
	}
	got, ok := c.Of("r")
	if !ok || got.Samples != 400 {
		t.Errorf("known %v: %+v", ok, got)
	}
	var told []state.ReplicaID
	c.Each(func(id state.ReplicaID, pool string, p routing.Params) bool {
		told = append(told, id)
		return pool == "chat" && p == got
	})
	if len(told) != 1 {
		t.Errorf("told of %v", told)
	}
	c.Forget(0, "someone else")
	if _, ok := c.Of("r"); !ok {
		t.Error("forgot the wrong one")
	}
	c.Forget(0, "r")
	if _, ok := c.Of("r"); ok {
		t.Error("did not forget")
	}
}

func TestSeeds(t *testing.T) {
	c := routing.NewCalibration()
	if c.Seed(1, "r", "chat", routing.Params{Rate: math.NaN()}) {
		t.Error("took what is no number")
	}
	if !c.Seed(1, "r", "chat", routing.Params{Rate: 1e30, Fixed: 10, ITL: 10}) {
		t.Error("refused a seed")
	}
	within(t, "rate out of bounds", c.Params(1, "chat").Rate, 1e6, 1e-9)
	c.Observe(routing.Sample{Slot: 1, Replica: "r", Pool: "chat", UncachedTokens: 10, TTFT: time.Second})
	if c.Seed(1, "r", "chat", routing.DefaultParams()) {
		t.Error("another router's figures replaced own ones")
	}
}

func TestExpectedOutput(t *testing.T) {
	c := routing.NewCalibration()
	if got := c.Output("chat", 0); got != 200 {
		t.Errorf("unknown: %d", got)
	}
	if got := c.Output("chat", 16); got != 16 {
		t.Errorf("unknown but bounded: %d", got)
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		c.ObserveOutput("chat", 0, 400+rnd.IntN(200))
		c.ObserveOutput("chat", 2000, 40+rnd.IntN(20))
	}
	c.ObserveOutput("chat", 0, 0)
	within(t, "without a bound", float64(c.Output("chat", 0)), 500, 0.1)
	within(t, "with a large bound", float64(c.Output("chat", 4000)), 50, 0.1)
	within(t, "a class not seen", float64(c.Output("chat", 1000)), 500, 0.1)
	if got := c.Output("chat", 100); got != 100 {
		t.Errorf("capped: %d", got)
	}
	if got := c.Output("other", 0); got != 200 {
		t.Errorf("another pool: %d", got)
	}
}

// Run with -race.
func TestCalibrationIsReadWhileItLearns(t *testing.T) {
	c := routing.NewCalibration()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			e := engine{routing.DefaultParams(), rand.New(rand.NewPCG(uint64(g), 1)), 0.1}
			for i := range 200 {
				s := e.sample()
				s.Slot = state.Slot(i % 5)
				c.Observe(s)
				c.ObserveOutput("chat", i, i)
				if p := c.Params(s.Slot, "chat"); p.Rate <= 0 {
					t.Error("no rate")
				}
				c.Output("chat", i)
				if i%50 == 0 {
					c.Forget(s.Slot, s.Replica)
				}
			}
		})
	}
	wg.Wait()
}

// Four replicas run the same engine, one takes four times as long, and their samples
// are spoiled by queues the router had not heard of: the equal ones stay equal, and
// the slow one is known within few samples.
func TestReplicasOfAPoolDifferBySpeed(t *testing.T) {
	for seed := range uint64(3) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		c := routing.NewCalibration()
		truth := routing.Params{Rate: 9000, Fixed: 25, Slowdown: 0.0016, Quadratic: 1e-6, ITL: 29, ITLPerStream: 0.36}
		for i := range 400 {
			slot := rnd.IntN(5)
			e := engine{truth, rnd, 0.2}
			s := e.sample()
			s.Slot, s.Replica = state.Slot(slot), state.ReplicaID(rune('a'+slot))
			if slot == 4 {
				s.TTFT, s.ITL = 4*s.TTFT, 4*s.ITL
			}
			if rnd.IntN(5) == 0 { // a request before it that nobody had told of
				s.TTFT += time.Duration(rnd.IntN(4000)) * time.Second / 9000
			}
			c.Observe(s)
			if i == 100 {
				if k := c.Params(0, "chat").Rate / c.Params(4, "chat").Rate; k < 2 || k > 6 {
					t.Errorf("seed %d: after 100 samples of all the slow one is taken for %.1f times as slow", seed, k)
				}
			}
		}
		for slot := range state.Slot(4) {
			p, first := c.Params(slot, "chat"), c.Params(0, "chat")
			within(t, "rate of an equal", p.Rate, first.Rate, 0.16)
			within(t, "fixed of an equal", p.Fixed, first.Fixed, 0.16)
			within(t, "ITL per stream of an equal", p.ITLPerStream, first.ITLPerStream, 0.16)
		}
		slow, first := c.Params(4, "chat"), c.Params(0, "chat")
		within(t, "slow one's rate", slow.Rate, first.Rate/4, 0.35)
		within(t, "slow one's ITL", slow.ITL, first.ITL*4, 0.35)
	}
}

// The first replica that gets requests is eight times as slow as the others: the
// others are not taken for slow because of it.
func TestAReplicaWithoutSamplesIsTakenForAsFastAsAny(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 3))
	c := routing.NewCalibration()
	e := engine{routing.DefaultParams(), rnd, 0.1}
	observe := func(slot state.Slot, times time.Duration) {
		s := e.sample()
		s.Slot, s.Replica = slot, state.ReplicaID(rune('a'+slot))
		s.TTFT, s.ITL = times*s.TTFT, times*s.ITL
		c.Observe(s)
	}
	for range 3 {
		observe(0, 8)
	}
	for range 30 {
		observe(2, 1)
	}
	slow, fast, fresh := c.Params(0, "chat"), c.Params(2, "chat"), c.Params(1, "chat")
	if fast.Rate < 4*slow.Rate {
		t.Errorf("rate %v of the fast one, %v of the slow one", fast.Rate, slow.Rate)
	}
	within(t, "rate of one without samples", fresh.Rate, fast.Rate, 1e-6)
	if fresh.Samples != 0 {
		t.Errorf("it has %d samples", fresh.Samples)
	}
}
