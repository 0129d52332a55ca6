package gossip

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// school is what one router learned.
type school struct {
	mu   sync.Mutex
	own  []state.Lesson
	all  []state.Lesson
	got  map[string]int // subjects of lessons learned
	sums []string       // subjects of summaries
}

func (s *school) Drain(dst []state.Lesson) []state.Lesson {
	s.mu.Lock()
	defer s.mu.Unlock()
	dst = append(dst, s.own...)
	s.own = nil
	return dst
}

func (s *school) Learn(l state.Lesson) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.Kind.Summary() {
		s.sums = append(s.sums, l.Subject)
		return
	}
	s.got[l.Subject]++
}

func (s *school) All(dst []state.Lesson) []state.Lesson {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(dst, s.all...)
}

func (s *school) say(subject string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own = append(s.own, state.Lesson{Kind: state.LessonSpeed, Subject: subject, Pool: "p", Values: []float32{1, 2}})
}

func (s *school) heard(subject string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got[subject]
}

func (s *school) summaries() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sums)
}

// schools gives each router its own.
func schools(of map[state.RouterID]*school) func(*Config) {
	return func(c *Config) {
		if of[c.Self] == nil {
			of[c.Self] = &school{got: map[string]int{}}
		}
		c.Lessons = of[c.Self]
	}
}

func TestLessonsAreSharedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		of := map[state.RouterID]*school{}
		r := group(t, n, 3, options{tweak: schools(of)})
		r[0].begin(0, 1).End() // what teaches
		of["r0"].say("first")
		within(t, 150*time.Millisecond, "known at the others", func() bool {
			return of["r1"].heard("first") == 1 && of["r2"].heard("first") == 1
		})
		n.Cut("r0", "r2") // r1 passes on
		time.Sleep(10 * time.Second)
		for i := range 20 {
			of["r0"].say(fmt.Sprint("x", i))
			time.Sleep(50 * time.Millisecond)
		}
		n.HealAll() // now it may come on two ways
		for i := range 200 {
			of["r0"].say(fmt.Sprint("y", i))
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Second)
		for _, id := range []state.RouterID{"r1", "r2"} {
			for name, count := range map[string]int{"x": 20, "y": 200} {
				for i := range count {
					if got := of[id].heard(fmt.Sprint(name, i)); got != 1 {
						t.Errorf("%s heard %s%d %d times", id, name, i, got)
					}
				}
			}
		}
		if of["r0"].heard("x0") != 0 {
			t.Error("own lesson came back")
		}
		if got := testutil.ToFloat64(r[2].gossip.metrics.dropped.WithLabelValues("lessons")); got != 0 {
			t.Errorf("%v dropped", got)
		}
	})
}

func TestTooManyLessonsAreSampled(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		of := map[state.RouterID]*school{}
		r := group(t, n, 2, options{tweak: func(c *Config) { schools(of)(c); c.LessonRate = 20 }})
		time.Sleep(5 * time.Second)
		const seconds, rate = 20, 500
		for range seconds * 10 {
			for range rate / 20 {
				of["r0"].say("common")
				of["r0"].say("other")
			}
			time.Sleep(100 * time.Millisecond)
		}
		// A turn that finds nothing, between two that say something, makes the next one late.
		var common, other, dropped int
		within(t, 10*time.Second, "all are told or dropped", func() bool {
			common, other = of["r1"].heard("common"), of["r1"].heard("other")
			dropped = int(testutil.ToFloat64(r[0].gossip.metrics.dropped.WithLabelValues("lessons")))
			return dropped+common+other == seconds*rate
		})
		if sum := common + other; sum < 18*seconds || sum > 21*(seconds+2) {
			t.Errorf("%d told in %d s", sum, seconds)
		}
		if common < other/2 || other < common/2 {
			t.Errorf("%d of one kind and %d of the other", common, other)
		}
	})
}

// A router that starts has the sums before it calls itself ready, from one that it
// asks for everything.
func TestANewRouterIsTaughtBeforeItIsReady(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		of := map[state.RouterID]*school{}
		r := group(t, n, 3, options{tweak: schools(of)})
		for i := range 700 { // several messages
			of["r1"].all = append(of["r1"].all, state.Lesson{Kind: state.LessonParams, Subject: fmt.Sprint(i)})
		}
		for i := range 200 {
			r[i%3].learn(i%replicas, 10)
		}
		time.Sleep(3 * time.Second)
		late := start(t, options{n: n, host: "r9", join: []string{"r1"}, tweak: schools(of)})
		within(t, 5*time.Second, "ready", late.isReady)
		if got := len(of["r9"].summaries()); got != 700 {
			t.Errorf("%d of 700 sums are known when ready", got)
		}
		within(t, 5*time.Second, "one group", whole(r[0], r[1], r[2], late))
		time.Sleep(5 * time.Second)
		if got := len(of["r9"].summaries()); got != 700 {
			t.Errorf("%d sums came, 700 are there", got)
		}
	})
}

// Whatever the order and however often, each sequence is learned at most once, and
// all are that come less than the window late.
func TestLessonsAreToldApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x taught
		learned := map[uint64]bool{}
		top := uint64(0)
		for range rapid.IntRange(1, 200).Draw(t, "n") {
			seq := top + 1
			if rapid.Bool().Draw(t, "old") {
				seq -= min(top, rapid.Uint64Range(0, 2*lessonWindow).Draw(t, "back"))
			} else {
				seq += rapid.Uint64Range(0, 2*lessonWindow).Draw(t, "ahead")
			}
			ok := x.learn(seq)
			top = max(top, seq)
			if ok && learned[seq] {
				t.Fatalf("%d was learned twice", seq)
			}
			if !ok && !learned[seq] && top-seq < lessonWindow {
				t.Fatalf("%d was not learned at %d", seq, top)
			}
			learned[seq] = learned[seq] || ok
		}
	})
}
