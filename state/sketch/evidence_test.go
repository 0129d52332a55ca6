package sketch

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// told serves a prompt and reports cached tokens of it.
func told(x *Index, w *world, stem, own int, t time.Duration, cached int) {
	m, d := prompt(stem, 10, own, 10)
	match := w.look(x, "a", m)
	p := x.Place("a", m, d, w.at(t))
	p.First(w.now)
	p.End(w.now)
	matched := 0
	if match.Live > 0 {
		matched = int(d[match.Live-1])
	}
	p.Evidence(matched, int(d[len(d)-1]), cached)
}

func TestARunOfLostPredictionsMovesDeadBeforeEverywhere(t *testing.T) {
	w := newWorld()
	x, y := w.index(1, Bounds{}), w.index(2, Bounds{})
	for _, i := range []*Index{x, y} {
		i.SetCapacity("a", 100_000, CapacityEngine)
	}
	pass := w.pass(x, y)
	for i := range 6 {
		told(x, w, i, 0, time.Duration(i+1)*time.Second, 0) // fills
	}
	told(x, w, 0, 0, 10*time.Second, 0)
	told(x, w, 0, 0, 11*time.Second, 0) // the same prompt again: perhaps its own fault
	told(x, w, 1, 0, 12*time.Second, 0)
	if got := x.Stats("a"); !got.DeadBefore.IsZero() {
		t.Fatal("two prompts are no run")
	}
	told(x, w, 2, 0, 13*time.Second, 1264)
	told(x, w, 3, 0, 14*time.Second, 0)
	if got := x.Stats("a"); !got.DeadBefore.IsZero() {
		t.Fatal("a prediction kept in between ends a run")
	}
	told(x, w, 4, 0, 15*time.Second, 0)
	told(x, w, 5, 0, 16*time.Second, 0)
	pass()
	gone, _ := prompt(0, 10, 0, 10)
	back, _ := prompt(3, 10, 0, 10)
	for _, i := range []*Index{x, y} {
		if d := i.Stats("a").DeadBefore; d.Before(at(13*time.Second)) || !d.Before(at(14*time.Second)) {
			t.Errorf("dead before %v", d.Sub(epoch))
		}
		if got := w.look(i, "a", gone); got.Live != 0 {
			t.Errorf("used before: %+v", got)
		}
		if got := w.look(i, "a", back); got.Live != 20 {
			t.Errorf("prefilled since: %+v", got)
		}
		if got := i.Stats("a").CEff; got != 100_000 {
			t.Errorf("C_eff %v", got)
		}
		check(t, i)
	}
}

func TestMissedAnswersLowerTheirTrustOnly(t *testing.T) {
	w := newWorld()
	x := w.index(1, Bounds{})
	x.SetCapacity("a", 100_000, CapacityEngine)
	for i := range 40 {
		m, d := prompt(i, 5, 0, 5)
		p := x.Place("a", m, d, w.at(time.Duration(2*i+1)*time.Second))
		p.First(w.now)
		next, nd := prompt(i, 5, 0, 10) // five marks of answer
		p.Answer(next, nd)
		p.End(w.now)
		if got := w.look(x, "a", next); got.Live != 15 || got.Solid != 10 || !got.Answer {
			t.Fatalf("answered: %+v", got)
		}
		q := x.Place("a", next, nd, w.at(time.Duration(2*i+2)*time.Second))
		q.First(w.now)
		q.End(w.now)
		q.Evidence(15*64, 15*64, 10*64) // the engine finds the prompt, not the answer
	}
	s := x.Stats("a")
	if s.Trust > 0.05 || s.CEff != 100_000 || !s.DeadBefore.IsZero() {
		t.Errorf("%+v", s)
	}
	if s.Rho > 0.75 || s.Rho < 0.6 {
		t.Errorf("rho %v", s.Rho)
	}
}

func TestNothingIsLearnedFromPlacementsWithoutAFirstToken(t *testing.T) {
	w := newWorld()
	x := w.index(1, Bounds{})
	m, d := prompt(1, 10, 1, 10)
	p := x.Place("a", m, d, w.at(time.Second))
	p.Evidence(1280, 1280, 0)
	p.Withdraw(w.now)
	p.Evidence(1280, 1280, 0)
	if s := x.Stats("a"); s.Samples != 0 {
		t.Errorf("%+v", s)
	}
}

func TestRoutersThatShareEvidenceAgreeOnCapacity(t *testing.T) {
	w := newWorld()
	rng := rand.New(rand.NewPCG(1, 2))
	xs := []*Index{w.index(1, Bounds{}), w.index(2, Bounds{}), w.index(3, Bounds{})}
	var ops []Op
	for i := range 60 {
		s := Sample{Verdict: []Verdict{Alive, Missing}[i%2], Distance: float32(1000 + rng.IntN(4000)), Trust: rng.Float32(), Ratio: rng.Float32()}
		boot := state.BootID(5 + i%3)
		ops = append(ops, Op{Kind: OpEvidence, Replica: "a", Boot: boot, Seq: uint64(i + 1), Stamp: state.Stamp{Boot: boot, At: time.Duration(i+1) * time.Second}, Placement: uint64(i), Sample: s})
	}
	w.at(time.Hour)
	for _, x := range xs {
		rng.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
		for _, op := range append(ops, ops[:20]...) {
			x.Apply(op, w.now)
		}
	}
	a := xs[0].Stats("a")
	for _, x := range xs[1:] {
		if b := x.Stats("a"); math.Abs(a.CEff-b.CEff) > 1e-6 || a.Trust != b.Trust || a.Samples != 60 || b.Samples != 60 {
			t.Errorf("%+v\n%+v", a, b)
		}
	}
}

func TestTheEnginesFigureWinsOverTheConfigured(t *testing.T) {
	w := newWorld()
	x := w.index(1, Bounds{})
	f := func(tokens float64, from CapacitySource, want float64) {
		t.Helper()
		x.SetCapacity("a", tokens, from)
		if got := x.Stats("a").CEff; got != want {
			t.Errorf("C_eff %v, want %v", got, want)
		}
	}
	f(5000, CapacityConfigured, 5000)
	f(8000, CapacityEngine, 8000)
	f(5000, CapacityConfigured, 8000)
	f(math.NaN(), CapacityEngine, 8000)
	f(-1, CapacityEngine, 8000)
	f(9000, CapacityEngine, 9000)
}
