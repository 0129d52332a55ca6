package proxy

import (
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
)

// An answer that took 10 s at 50 ms a token, at a replica that prefills 10,000 tokens/s.
func TestTimeBetweenTokensWithoutPrefillsBeside(t *testing.T) {
	began := time.Unix(1000, 0)
	first := began.Add(time.Second)
	at := func(s float64) time.Time { return first.Add(time.Duration(s * float64(time.Second))) }
	f := func(name string, from, to prefilled, want time.Duration) {
		t.Helper()
		a := attempt{began: began, first: first, rate: 10_000, prefilled: from, sample: routing.Sample{UncachedTokens: 8000}}
		if got := a.alone(50*time.Millisecond, 10*time.Second, to); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	const itl = 50 * time.Millisecond
	f("nothing beside it", prefilled{at(-0.5), 5000}, prefilled{at(9.5), 5000}, itl)
	f("a fifth of the time", prefilled{at(-0.5), 5000}, prefilled{at(9.5), 25_000}, 40*time.Millisecond)
	f("read twice as rarely", prefilled{at(-0.5), 5000}, prefilled{at(4.5), 15_000}, 40*time.Millisecond)
	f("its own prompt since the reading", prefilled{at(-1.5), 5000}, prefilled{at(8.5), 33_000}, 40*time.Millisecond)
	f("nothing but its own", prefilled{at(-1.5), 5000}, prefilled{at(8.5), 13_000}, itl)
	f("most of the time", prefilled{at(-0.5), 5000}, prefilled{at(9.5), 65_000}, 0)
	f("the engine began anew", prefilled{at(-0.5), 5000}, prefilled{at(9.5), 100}, itl)
	f("not read since", prefilled{at(-0.5), 5000}, prefilled{at(-0.5), 5000}, itl)
	f("read too early to tell", prefilled{at(-0.5), 5000}, prefilled{at(3), 15_000}, itl)
	f("it did not say at first", prefilled{}, prefilled{at(9.5), 25_000}, itl)
	f("it does not say any more", prefilled{at(-0.5), 5000}, prefilled{}, itl)
}
