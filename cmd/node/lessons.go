package node

import (
	"math"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// lessons joins what requests teach this router with what they teach the others:
// each learns from its own requests at once and tells the others of some of them,
// so that a replica's speed, a model's bytes per token and a pool's outputs are
// known alike wherever a request arrives. Safe for concurrent use.
type lessons struct {
	store  *state.Store
	cal    *routing.Calibration
	ratios *prefix.Ratios
	muted  bool // nothing is kept for others

	mu   sync.Mutex
	out  []state.Lesson       // guarded by mu; at most maxLessons
	told map[string]time.Time // guarded by mu; when a subject may be told of next
}

const (
	// maxLessons bounds those that wait to be told.
	maxLessons = 1024
	// lessonEvery is the least time between two lessons about one subject. Estimates
	// follow a change within tens of samples, and all routers teach.
	lessonEvery = 250 * time.Millisecond
	// maxSubjects bounds the subjects whose last lesson is remembered.
	maxSubjects = 8192
)

func newLessons(store *state.Store, cal *routing.Calibration, ratios *prefix.Ratios, sharing bool) *lessons {
	return &lessons{store: store, cal: cal, ratios: ratios, muted: !sharing, told: map[string]time.Time{}}
}

// Observe takes what a request told of its replica; it reports whether that says
// anything.
func (l *lessons) Observe(s routing.Sample) bool {
	if !l.cal.Observe(s) {
		return false
	}
	about := string(s.Replica)
	if s.TTFT <= 0 {
		about += " tokens" // told apart: neither keeps the other from being told
	}
	l.tell(about, state.Lesson{Kind: state.LessonSpeed, Subject: string(s.Replica), Pool: s.Pool, Values: []float32{
		float32(s.PromptTokens), float32(s.UncachedTokens), float32(s.QueueTokens), float32(s.Decode),
		millis(s.TTFT), millis(s.ITL), float32(s.ITLBatch),
	}})
	return true
}

// ObserveOutput takes the length of a finished answer.
func (l *lessons) ObserveOutput(pool string, maxTokens, output int) {
	l.cal.ObserveOutput(pool, maxTokens, output)
	l.tell(pool, state.Lesson{Kind: state.LessonOutput, Subject: pool, Values: []float32{float32(maxTokens), float32(output)}})
}

// Counted takes the tokens an engine made of a prompt, which its ratio knows.
func (l *lessons) Counted(model string, m prefix.Mark, tokens int) {
	l.tell(model, state.Lesson{Kind: state.LessonTokens, Subject: model, Values: []float32{
		float32(m.ASCII), float32(m.Wide), float32(m.Exact), float32(tokens),
	}})
}

// tell keeps a lesson for the others, unless one of its kind about the same was just told.
func (l *lessons) tell(about string, x state.Lesson) {
	if l.muted {
		return
	}
	now := time.Now()
	key := string(rune(x.Kind)) + about
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.out) >= maxLessons || now.Before(l.told[key]) {
		return
	}
	if len(l.told) >= maxSubjects {
		clear(l.told)
	}
	l.told[key] = now.Add(lessonEvery)
	l.out = append(l.out, x)
}

// Drain appends the lessons not told yet.
func (l *lessons) Drain(dst []state.Lesson) []state.Lesson {
	l.mu.Lock()
	defer l.mu.Unlock()
	dst = append(dst, l.out...)
	clear(l.out)
	l.out = l.out[:0]
	return dst
}

// All appends a summary of everything known.
func (l *lessons) All(dst []state.Lesson) []state.Lesson {
	l.cal.Each(func(id state.ReplicaID, pool string, p routing.Params) bool {
		if p.Samples > 0 {
			dst = append(dst, state.Lesson{Kind: state.LessonParams, Subject: string(id), Pool: pool, Values: []float32{
				float32(p.Rate), float32(p.Fixed), float32(p.Slowdown), float32(p.Quadratic),
				float32(p.ITL), float32(p.ITLPerStream), float32(p.Uncached), float32(p.Samples),
			}})
		}
		return true
	})
	l.cal.EachOutput(func(pool string, means [routing.OutputClasses]float64) bool {
		x := state.Lesson{Kind: state.LessonOutputs, Subject: pool}
		for _, m := range means {
			x.Values = append(x.Values, float32(m))
		}
		dst = append(dst, x)
		return true
	})
	l.ratios.Each(func(model string, r *prefix.Ratio) bool {
		if ascii, wide, samples := r.Estimate(); samples > 0 {
			dst = append(dst, state.Lesson{Kind: state.LessonRatio, Subject: model, Values: []float32{float32(ascii), float32(wide), float32(samples)}})
		}
		return true
	})
	return dst
}

// Learn takes another router's lesson. One it can't use, of a replica that is not
// listed here or of a kind a later release added, changes nothing.
func (l *lessons) Learn(x state.Lesson) {
	v := x.Values
	for _, f := range v {
		if f != f || math.IsInf(float64(f), 0) || f < 0 {
			return
		}
	}
	switch {
	case x.Kind == state.LessonSpeed && len(v) >= 7:
		if r := l.store.View().Replica(state.ReplicaID(x.Subject)); r != nil {
			l.cal.Observe(routing.Sample{
				Replica: r.ID, Slot: r.Slot, Pool: r.Pool,
				PromptTokens: whole(v[0]), UncachedTokens: whole(v[1]), QueueTokens: float64(v[2]), Decode: float64(v[3]),
				TTFT: duration(v[4]), ITL: duration(v[5]), ITLBatch: float64(v[6]),
			})
		}
	case x.Kind == state.LessonParams && len(v) >= 8:
		if r := l.store.View().Replica(state.ReplicaID(x.Subject)); r != nil {
			l.cal.Seed(r.Slot, r.ID, r.Pool, routing.Params{
				Rate: float64(v[0]), Fixed: float64(v[1]), Slowdown: float64(v[2]), Quadratic: float64(v[3]),
				ITL: float64(v[4]), ITLPerStream: float64(v[5]), Uncached: float64(v[6]), Samples: whole(v[7]),
			})
		}
	case x.Kind == state.LessonOutput && len(v) >= 2 && l.pool(x.Subject):
		l.cal.ObserveOutput(x.Subject, whole(v[0]), whole(v[1]))
	case x.Kind == state.LessonOutputs && len(v) >= routing.OutputClasses && l.pool(x.Subject):
		var means [routing.OutputClasses]float64
		for i := range means {
			means[i] = float64(v[i])
		}
		l.cal.SeedOutput(x.Subject, means)
	case x.Kind == state.LessonTokens && len(v) >= 4 && l.model(x.Subject):
		l.ratios.For(x.Subject).Learn(prefix.Mark{ASCII: uint32(whole(v[0])), Wide: uint32(whole(v[1])), Exact: uint32(whole(v[2]))}, whole(v[3]))
	case x.Kind == state.LessonRatio && len(v) >= 3 && l.model(x.Subject):
		l.ratios.For(x.Subject).Seed(float64(v[0]), float64(v[1]), whole(v[2]))
	}
}

// pool and model say whether this router serves them: strangers' names must not
// fill its tables.
func (l *lessons) pool(name string) bool {
	for _, p := range l.store.View().Pools {
		if p.Spec.Name == name {
			return true
		}
	}
	return false
}

func (l *lessons) model(name string) bool {
	for _, p := range l.store.View().Pools {
		if p.Spec.UpstreamName() == name {
			return true
		}
	}
	return false
}

func millis(d time.Duration) float32 { return float32(d.Seconds() * 1e3) }

// duration is a lesson's milliseconds, an hour at most.
func duration(ms float32) time.Duration {
	return time.Duration(min(float64(ms), 3.6e6) * float64(time.Millisecond))
}

// whole is a lesson's count; float32 holds counts up to 2^24 exactly.
func whole(f float32) int { return int(min(f, 1<<30)) }
