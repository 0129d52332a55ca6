package queue

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/state"
)

func closed(e *Entry) bool {
	select {
	case <-e.Out:
		return true
	default:
		return false
	}
}

// take places n entries and returns them in order.
func take(q *Queue, n int) (got []*Entry) {
	q.Pump(n, func(e *Entry) Verdict {
		got = append(got, e)
		return Placed
	})
	return got
}

func values(list []*Entry) (out []any) {
	for _, e := range list {
		out = append(out, e.Value)
	}
	return out
}

// Whatever happens, an entry leaves once and in one way, and a tenant's are served in
// the order in which they came, but for those that are blocked.
func TestNothingIsLostOrServedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue
		most := Bounds{Requests: rapid.IntRange(1, 20).Draw(t, "requests"), Bytes: int64(rapid.IntRange(10, 200).Draw(t, "bytes"))}
		in := map[*Entry]bool{}
		left := map[*Entry]bool{}
		order := map[string][]*Entry{} // by band, tenant and class
		line := func(e *Entry) string { return fmt.Sprint(e.Band, e.Tenant, e.Class) }
		leave := func(e *Entry, what string) {
			if left[e] {
				t.Fatalf("%v left twice, now as %s", e.Value, what)
			}
			if !in[e] {
				t.Fatalf("%v was never there", e.Value)
			}
			left[e] = true
			delete(in, e)
			k := line(e)
			order[k] = slices.DeleteFunc(order[k], func(x *Entry) bool { return x == e })
		}
		pick := func() *Entry {
			var list []*Entry
			for _, l := range order {
				list = append(list, l...)
			}
			if len(list) == 0 {
				return nil
			}
			slices.SortFunc(list, func(a, b *Entry) int { return a.Value.(int) - b.Value.(int) })
			return rapid.SampledFrom(list).Draw(t, "entry")
		}
		paused := map[*Entry]bool{}
		n := 0
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				n++
				e := &Entry{
					Band: state.Band(rapid.IntRange(0, 2).Draw(t, "band")), Tenant: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"),
					Weight: float64(rapid.IntRange(0, 3).Draw(t, "weight")), Tokens: int64(rapid.IntRange(0, 500).Draw(t, "tokens")),
					Bytes: int64(rapid.IntRange(0, 50).Draw(t, "size")), Class: rapid.SampledFrom([]string{"", "", "x", "y"}).Draw(t, "class"), Value: n,
				}
				before := q.Len()
				displaced, ok := q.Push(e, most)
				if !ok {
					if len(displaced) > 0 || q.Len() != before {
						t.Fatalf("refused, and %d displaced", len(displaced))
					}
					return
				}
				in[e] = true
				order[line(e)] = append(order[line(e)], e)
				for _, d := range displaced {
					if !e.Band.Before(d.Band) || !closed(d) || d.How() != Displaced {
						t.Fatalf("%v displaced for %v", d, e)
					}
					for x := range in {
						if d.Band.Before(x.Band) && !slices.Contains(displaced, x) && x.Bytes > 0 && x != e {
							t.Fatalf("%v displaced while %v of a lower band stays", d.Value, x.Value)
						}
					}
					leave(d, "displaced")
				}
			},
			"leave": func(t *rapid.T) {
				if e := pick(); e != nil {
					if !q.Leave(e) || q.Leave(e) {
						t.Fatal("can't leave, or twice")
					}
					leave(e, "left")
				}
			},
			"pause": func(t *rapid.T) {
				if e := pick(); e != nil {
					if !q.Pause(e) {
						t.Fatal("can't pause")
					}
					paused[e] = true
				}
			},
			"resume": func(t *rapid.T) {
				if e := pick(); e != nil {
					q.Resume(e)
					delete(paused, e)
				}
			},
			"pump": func(t *rapid.T) {
				free := map[string]int{"": rapid.IntRange(0, 3).Draw(t, "free"), "x": rapid.IntRange(0, 2).Draw(t, "x"), "y": rapid.IntRange(0, 1).Draw(t, "y")}
				q.Pump(100, func(e *Entry) Verdict {
					if paused[e] || closed(e) {
						t.Fatalf("%v is offered a replica, and is away", e.Value)
					}
					for _, x := range order[line(e)] {
						if x == e {
							break
						}
						if !paused[x] {
							t.Fatalf("%v before %v", e.Value, x.Value)
						}
					}
					if free[e.Class] == 0 {
						return Blocked
					}
					free[e.Class]--
					if e.Tokens%7 == 0 {
						leave(e, "failed")
						return Failed
					}
					leave(e, "placed")
					return Placed
				})
				for class, n := range free { // nothing was left lying that could be served
					for e := range in {
						if n > 0 && e.Class == class && !paused[e] {
							t.Fatalf("%v of class %q waits, and %d could be served", e.Value, class, n)
						}
					}
				}
			},
			"": func(t *rapid.T) {
				var bytes int64
				for e := range in {
					bytes += e.Bytes
					if closed(e) {
						t.Fatalf("%v was told that it left", e.Value)
					}
				}
				for e := range left {
					if e.How() != Served && !closed(e) && e.status != gone {
						t.Fatalf("%v left and is there", e.Value)
					}
				}
				if q.Len() != len(in) || q.bytes != bytes || len(in) > most.Requests || bytes > most.Bytes {
					t.Fatalf("%d entries of %d bytes, queue says %d of %d, bounds %+v", len(in), bytes, q.Len(), q.bytes, most)
				}
			},
		})
	})
}

// While two tenants of a band wait, their shares by weight differ by less than one
// request.
func TestSharesByWeight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue
		tenants := rapid.IntRange(2, 5).Draw(t, "tenants")
		weights := make([]float64, tenants)
		had := make([]float64, tenants)
		largest := 0.0
		for i := range tenants {
			weights[i] = float64(rapid.IntRange(1, 8).Draw(t, "weight")) / 2
		}
		push := func(i int) {
			tokens := int64(rapid.IntRange(minTokens, 4000).Draw(t, "tokens"))
			largest = max(largest, float64(tokens)/weights[i])
			q.Push(&Entry{Tenant: fmt.Sprint(i), Weight: weights[i], Tokens: tokens, Value: i}, Bounds{})
		}
		for i := range tenants {
			push(i)
			push(i)
		}
		for range 200 {
			e := take(&q, 1)[0]
			i := e.Value.(int)
			had[i] += float64(e.Tokens) / weights[i]
			push(i)
			if spread := slices.Max(had) - slices.Min(had); spread > largest+1e-6 {
				t.Fatalf("shares %v differ by %v, the largest request is %v", had, spread, largest)
			}
		}
	})
}

// Bands are strict, but each gets its least share of the tokens while it waits.
func TestBandsHaveTheirLeastShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue
		largest, all := 0.0, 0.0
		var had [state.Bands]float64
		push := func(b state.Band) {
			tokens := int64(rapid.IntRange(minTokens, 4000).Draw(t, "tokens"))
			largest = max(largest, float64(tokens))
			q.Push(&Entry{Band: b, Tokens: tokens}, Bounds{})
		}
		bands := []state.Band{state.BandHigh, state.BandNormal, state.BandLow}
		for _, b := range bands {
			push(b)
			push(b)
		}
		for range 400 {
			e := take(&q, 1)[0]
			all += float64(e.Tokens)
			had[e.Band] += float64(e.Tokens)
			push(e.Band)
			for _, b := range bands {
				if had[b] < MinShare*all-2*largest {
					t.Fatalf("%v has %v of %v", b, had[b], all)
				}
			}
			for _, b := range bands[1:] {
				if had[b] > MinShare*all+largest {
					t.Fatalf("%v has %v of %v, though a higher band waits", b, had[b], all)
				}
			}
		}
	})
}

func TestOrder(t *testing.T) {
	f := func(name string, entries []*Entry, want ...any) {
		t.Helper()
		var q Queue
		for _, e := range entries {
			q.Push(e, Bounds{})
		}
		if got := values(take(&q, len(entries))); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	e := func(value, tenant string, b state.Band, tokens int64) *Entry {
		return &Entry{Value: value, Tenant: tenant, Band: b, Tokens: tokens}
	}
	f("one tenant", []*Entry{e("1", "a", 0, 900), e("2", "a", 0, 20), e("3", "a", 0, 300)}, "1", "2", "3")
	f("two tenants take turns", []*Entry{e("a1", "a", 0, 100), e("a2", "a", 0, 100), e("a3", "a", 0, 100), e("b1", "b", 0, 100), e("b2", "b", 0, 100)},
		"a1", "b1", "a2", "b2", "a3")
	f("by tokens", []*Entry{e("a1", "a", 0, 300), e("a2", "a", 0, 300), e("b1", "b", 0, 100), e("b2", "b", 0, 100), e("b3", "b", 0, 100), e("b4", "b", 0, 100)},
		"a1", "b1", "b2", "b3", "a2", "b4")
	f("bands", []*Entry{e("l", "a", state.BandLow, 100), e("n", "a", state.BandNormal, 100), e("h", "a", state.BandHigh, 100)}, "h", "n", "l")
	var long []*Entry
	for range 12 {
		long = append(long, e("h", "a", state.BandHigh, 100))
	}
	long = append(long, e("l", "b", state.BandLow, 100))
	f("a tenth for the low band", long, "h", "h", "h", "h", "h", "h", "h", "h", "h", "h", "l", "h", "h")
}

// A newcomer pays for what it can't do: only lower bands make room, and only if that
// is enough.
func TestFull(t *testing.T) {
	var q Queue
	most := Bounds{Requests: 3, Bytes: 100}
	low1, low2 := &Entry{Value: "low1", Band: state.BandLow, Bytes: 30}, &Entry{Value: "low2", Band: state.BandLow, Bytes: 30}
	normal := &Entry{Value: "normal", Bytes: 30}
	for _, e := range []*Entry{low1, normal, low2} {
		if d, ok := q.Push(e, most); !ok || len(d) > 0 {
			t.Fatalf("%v: %v %v", e.Value, d, ok)
		}
	}
	f := func(e *Entry, ok bool, want ...any) {
		t.Helper()
		d, got := q.Push(e, most)
		if got != ok || !slices.Equal(values(d), want) {
			t.Errorf("%v: %v, displaced %v, want %v, %v", e.Value, got, values(d), ok, want)
		}
	}
	f(&Entry{Value: "another low", Band: state.BandLow}, false)
	f(&Entry{Value: "normal, too large", Bytes: 75}, false)
	f(&Entry{Value: "normal 2", Bytes: 60}, true, "low2", "low1")
	f(&Entry{Value: "normal 3", Bytes: 60}, false)
	f(&Entry{Value: "high", Band: state.BandHigh, Bytes: 40}, true, "normal 2")
	f(&Entry{Value: "larger than all", Band: state.BandHigh, Bytes: 101}, false)
	if got := values(take(&q, 9)); !slices.Equal(got, []any{"high", "normal"}) {
		t.Errorf("left: %v", got)
	}
}

// A call of Pump during an offer is not lost, and a panic leaves the entry waiting.
func TestPumpedMeanwhile(t *testing.T) {
	var q Queue
	q.Push(&Entry{Value: 1}, Bounds{})
	tries := 0
	q.Pump(9, func(e *Entry) Verdict {
		if tries++; tries == 1 {
			q.Push(&Entry{Value: 2, Class: "x"}, Bounds{})
			q.Pump(9, func(*Entry) Verdict { t.Fatal("two pump at a time"); return Blocked })
			return Blocked
		}
		return Placed
	})
	if tries < 3 || q.Len() != 0 {
		t.Errorf("%d tries, %d left", tries, q.Len())
	}
	q.Push(&Entry{Value: 3}, Bounds{})
	func() {
		defer func() { _ = recover() }()
		q.Pump(9, func(*Entry) Verdict { panic("as it happens") })
	}()
	if got := values(take(&q, 9)); !slices.Equal(got, []any{3}) {
		t.Errorf("after a panic: %v", got)
	}
}

// Thousands of entries come, leave and pause in many goroutines; each is served,
// displaced or gone exactly once.
func TestManyAtOnce(t *testing.T) {
	var q Queue
	var slots, served, left, displaced, refused atomic.Int64
	slots.Store(8)
	pump := func() {
		for more := true; more; {
			more = q.Pump(16, func(*Entry) Verdict {
				if slots.Add(-1) < 0 {
					slots.Add(1)
					return Blocked
				}
				return Placed
			})
		}
	}
	const n = 4000
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			e := &Entry{Band: state.Band(i % 3), Tenant: fmt.Sprint(i % 7), Tokens: int64(i % 900), Bytes: 10}
			if _, ok := q.Push(e, Bounds{Requests: 900}); !ok {
				refused.Add(1)
				return
			}
			pump()
			if i%11 == 0 && q.Pause(e) {
				q.Resume(e)
				pump()
			}
			if i%5 == 0 && q.Leave(e) {
				left.Add(1)
				return
			}
			<-e.Out
			if e.How() == Displaced {
				displaced.Add(1)
				return
			}
			served.Add(1)
			slots.Add(1)
			pump()
		})
	}
	wg.Wait()
	if sum := served.Load() + left.Load() + displaced.Load() + refused.Load(); sum != n || slots.Load() != 8 || q.Len() != 0 || q.bytes != 0 {
		t.Errorf("%d of %d accounted for, %d slots, %d left of %d bytes", sum, n, slots.Load(), q.Len(), q.bytes)
	}
}

func BenchmarkPushAndPlace(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("waiting=%d", n), func(b *testing.B) {
			var q Queue
			next := func(i int) *Entry {
				return &Entry{Band: state.Band(i % 3), Tenant: fmt.Sprint(i % 50), Tokens: int64(100 + i%3000)}
			}
			for i := range n {
				q.Push(next(i), Bounds{})
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				q.Push(next(i), Bounds{})
				q.Pump(1, func(*Entry) Verdict { return Placed })
			}
		})
	}
}

// What is due says so while it is offered, and that it finds nothing holds up no band
// before it, which may have places of its own.
func TestDueHoldsUpNobody(t *testing.T) {
	var q Queue
	push := func(band state.Band, tokens int64) {
		q.Push(&Entry{Band: band, Tokens: tokens, Value: fmt.Sprint(band)}, Bounds{})
	}
	push(state.BandLow, 100)
	for range 3 {
		push(state.BandHigh, 1000)
	}
	if got := values(take(&q, 1)); !slices.Equal(got, []any{"high"}) {
		t.Fatalf("first %v", got)
	}
	// The low one is due now: a tenth of what was released.
	var offered []string
	try := func(e *Entry) Verdict {
		offered = append(offered, fmt.Sprint(e.Value, e.Due()))
		if e.Value == "low" {
			return Blocked
		}
		return Placed
	}
	q.Pump(9, try)
	if want := []string{"lowtrue", "highfalse", "highfalse", "lowfalse"}; !slices.Equal(offered, want) {
		t.Errorf("offered %v, want %v", offered, want)
	}
	offered = nil
	q.Pump(9, try)
	if want := []string{"lowtrue", "lowfalse"}; !slices.Equal(offered, want) {
		t.Errorf("alone, offered %v, want %v", offered, want)
	}
}
