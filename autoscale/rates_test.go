package autoscale

import (
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// watched is a rates and what the routers tell it.
type watched struct {
	t     *testing.T
	now   time.Time
	store *state.Store
	r     rates
	seq   uint64
}

func newWatched(t *testing.T) *watched {
	w := &watched{t: t, now: time.Unix(1_000_000, 0)}
	w.store = state.NewStore(state.Config{
		Self: "me", Clock: state.NewClock(1, w.now), Pools: []state.PoolSpec{spec()}, Now: func() time.Time { return w.now },
	})
	return w
}

func (w *watched) tell(boot state.BootID, requests int64) {
	w.seq++
	w.store.ApplyRows(state.Rows{Router: "other", Boot: boot, Seq: w.seq, Full: true, Traffic: []state.Traffic{{Pool: "chat", Requests: requests}}})
}

func (w *watched) look() {
	v := w.store.View()
	w.r.note(v, v.PoolNamed("chat"), w.now)
}

// pass lets seconds pass, in each of which the other router counts so many more.
func (w *watched) pass(seconds int, boot state.BootID, from, each int64) int64 {
	for range seconds {
		w.now = w.now.Add(time.Second)
		from += each
		w.tell(boot, from)
		w.look()
	}
	return from
}

func (w *watched) rate() float64 {
	t, d, ok := w.r.over(rateWindow)
	if !ok {
		return -1
	}
	return float64(t.Requests) / d.Seconds()
}

func (w *watched) want(what string, want float64) {
	w.t.Helper()
	if got := w.rate(); got < want-0.01 || got > want+0.01 {
		w.t.Errorf("%s: %.2f/s, want %.2f", what, got, want)
	}
}

func TestRatesOfWhatRoutersCount(t *testing.T) {
	w := newWatched(t)
	w.want("nothing was seen", -1)
	n := w.pass(9, 7, 1000, 10)
	w.want("too little was seen", -1)
	n = w.pass(40, 7, n, 10)
	w.want("steady, whatever was counted before", 10)

	seq := w.seq
	w.seq = seq - 20
	w.tell(7, n-200) // late
	w.seq = seq
	w.look()
	w.want("what comes late is no news", 10)

	w.now = w.now.Add(3 * time.Second) // three messages are lost
	n = w.pass(1, 7, n+30, 10)
	w.want("what was lost comes with the next", 10)

	n = w.pass(30, 8, 5000, 10) // it has started anew
	w.want("a new boot begins anew", 10*29.0/30)
	n = w.pass(15, 8, n, 30)
	w.want("twice as much in the mean", 20)
	w.pass(30, 8, n, 0)
	w.want("nothing", 0)
}

// A router that was cut off for long comes back with all that it counted meanwhile: that
// is no burst.
func TestRatesAfterSilence(t *testing.T) {
	w := newWatched(t)
	n := w.pass(40, 7, 0, 10)
	w.store.DropRouter("other")
	for range 60 {
		w.now = w.now.Add(time.Second)
		w.look()
	}
	w.want("silent", 0)
	w.pass(30, 7, n+600, 10)
	w.want("back", 10*29.0/30)
}

// Counts that fall within a boot are nonsense, and no negative rate.
func TestRatesAreNeverNegative(t *testing.T) {
	w := newWatched(t)
	w.pass(20, 7, 1000, 10)
	w.pass(20, 7, 0, 0)
	if r := w.rate(); r < 0 || r > 10 {
		t.Errorf("%v", r)
	}
}

// Own requests count without a message, and whoever looks but now and then sees all.
func TestRatesOfOneRouter(t *testing.T) {
	w := newWatched(t)
	w.look()
	for range 4 {
		w.now = w.now.Add(15 * time.Second)
		for range 30 {
			w.store.View().PoolNamed("chat").Counter.Came(100)
		}
		w.look()
	}
	w.want("2 a second", 2)
}

func TestStartUp(t *testing.T) {
	at := time.Unix(5000, 0)
	f := state.NewFacts()
	k := state.TargetKey{Pool: "chat", Role: state.RoleBoth}
	add := func(from, to int, took time.Duration, o state.Outcome) {
		f.Decisions = append(f.Decisions, state.Decision{Pool: k.Pool, Role: k.Role, From: from, To: to, At: at, DoneAt: at.Add(took), Outcome: o})
	}
	want := func(what string, d time.Duration) {
		t.Helper()
		if got := startUp(f, k, time.Minute, 10*time.Minute); got != d {
			t.Errorf("%s: %v, want %v", what, got, d)
		}
	}
	want("nothing known", time.Minute)
	add(2, 1, 3*time.Second, state.OutcomeDone)
	add(1, 2, 9*time.Minute, state.OutcomeFailed)
	add(1, 2, 0, state.OutcomeDone)
	add(1, 2, -time.Hour, state.OutcomeDone)
	add(1, 2, 50*time.Hour, state.OutcomeDone)
	want("steps down, failures and odd clocks do not count", time.Minute)
	add(1, 2, 100*time.Second, state.OutcomeDone)
	want("one", 100*time.Second)
	for _, s := range []int{20, 30, 40} {
		add(1, 2, time.Duration(s)*time.Second, state.OutcomeDone)
	}
	want("three quarters took no longer", 40*time.Second)
	for range startsKept {
		add(1, 2, 15*time.Minute, state.OutcomeDone)
	}
	want("bounded, and old ones are forgotten", 10*time.Minute)
}
