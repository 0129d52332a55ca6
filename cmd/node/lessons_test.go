package node

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// pupil is a router's share in lessons: replicas "a" and "b" of pool "chat".
func pupil(name state.RouterID) *lessons {
	clock := state.NewClock(1, time.Now())
	store := state.NewStore(state.Config{Self: name, Clock: clock, Pools: []state.PoolSpec{{Name: "chat", Model: "llama"}}})
	store.SetReplicas(state.SourceStatic, "chat", []state.Replica{{ID: "a", URL: "http://a"}, {ID: "b", URL: "http://b"}})
	return newLessons(store, routing.NewCalibration(), prefix.NewRatios(8), true)
}

func (l *lessons) request(id state.ReplicaID, tokens int, ttft time.Duration) {
	m := prefix.Mark{ASCII: uint32(5 * tokens)}
	l.Observe(routing.Sample{
		Replica: id, Slot: l.store.View().Replica(id).Slot, Pool: "chat", PromptTokens: tokens, UncachedTokens: tokens,
		TTFT: ttft, ITL: 40 * time.Millisecond, ITLBatch: 1,
	})
	l.ObserveOutput("chat", 100, 50)
	l.ratios.For("llama").Learn(m, tokens)
	l.Counted("llama", m, tokens)
}

// Of two routers one has all the requests; in the end both know the same, within
// what thinning leaves out, and a third that starts then knows it at once.
func TestWhatOneRouterLearnsOfSpeedsTheOthersKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pupil("a"), pupil("b")
		for i := range 400 {
			tokens := 500 + 300*(i%7)
			a.request("a", tokens, time.Duration(tokens)*time.Millisecond/2) // 2000 tokens/s
			time.Sleep(100 * time.Millisecond)
			for _, x := range a.Drain(nil) {
				b.Learn(x)
			}
		}
		c := pupil("c")
		for _, x := range a.All(nil) {
			c.Learn(x)
		}
		know := func(l *lessons) (rate, itl, ascii float64, output int) {
			p, _ := l.cal.Of("a")
			ascii, _, _ = l.ratios.For("llama").Estimate()
			return p.Rate, p.ITL, ascii, l.cal.Output("chat", 100)
		}
		rate, itl, ascii, output := know(a)
		if rate < 1800 || rate > 2200 || math.Abs(ascii-5) > 0.1 || output != 50 {
			t.Fatalf("the one with the requests believes %v tokens/s, %v bytes per token, %d tokens", rate, ascii, output)
		}
		for name, l := range map[string]*lessons{"listener": b, "newcomer": c} {
			r, i, x, o := know(l)
			if math.Abs(r-rate) > rate/20 || math.Abs(i-itl) > itl/20 || math.Abs(x-ascii) > ascii/20 || o != output {
				t.Errorf("%s believes %v tokens/s, %v ms, %v bytes per token, %d tokens; the teacher %v, %v, %v, %d", name, r, i, x, o, rate, itl, ascii, output)
			}
		}
		if p, ok := b.cal.Of("b"); ok {
			t.Errorf("something was learned of a replica without requests: %+v", p)
		}
	})
}

func TestLessonsAreThinnedAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pupil("a")
		for range 1000 {
			l.request("a", 1000, time.Second)
		}
		if n := len(l.Drain(nil)); n != 3 {
			t.Errorf("%d lessons of one replica, model and pool at one instant, want one of each", n)
		}
		if n := len(l.Drain(nil)); n != 0 {
			t.Errorf("%d lessons told twice", n)
		}
		time.Sleep(lessonEvery)
		l.request("a", 1000, time.Second)
		if n := len(l.Drain(nil)); n != 3 {
			t.Errorf("%d lessons later", n)
		}
		l.muted = true
		time.Sleep(time.Second)
		l.request("a", 1000, time.Second)
		if n := len(l.Drain(nil)); n != 0 {
			t.Errorf("%d lessons of a router that does not share", n)
		}
	})
}

// What can't be used changes nothing.
func TestLessonsOfStrangers(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	good := []float32{1000, 1000, 0, 0, 100, 30, 1, 5, 5, 5}
	f := func(kind state.LessonKind, subject string, values []float32) {
		t.Helper()
		l := pupil("a")
		l.Learn(state.Lesson{Kind: kind, Subject: subject, Values: values})
		if got := l.All(nil); len(got) != 0 {
			t.Errorf("%v of %q, %v: learned %v", kind, subject, values, got)
		}
	}
	for _, k := range []state.LessonKind{state.LessonSpeed, state.LessonTokens, state.LessonOutput, state.LessonParams, state.LessonRatio, state.LessonOutputs, 99} {
		f(k, "stranger", good)
		for _, subject := range []string{"a", "chat", "llama"} {
			f(k, subject, nil)
			f(k, subject, []float32{1})
			f(k, subject, []float32{nan, nan, nan, nan, nan, nan, nan, nan})
			f(k, subject, []float32{inf, inf, inf, inf, inf, inf, inf, inf})
			f(k, subject, []float32{-1, -1, -1, -1, -1, -1, -1, -1})
		}
	}
}
