package main

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/gossip"
	"github.com/hearsay-llm/hearsay/state"
)

func TestNoCellIsFittedAndHeldOut(t *testing.T) {
	for _, part := range []string{"bytes", "memory"} {
		cells, err := new(options).list(part)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]string{}
		for _, c := range cells {
			if c.Set != fitSet && c.Set != heldSet {
				t.Errorf("%s: cell %s is for nothing", part, &c)
			}
			if was, ok := seen[c.String()]; ok {
				t.Errorf("%s: cell %s is %s and %s", part, &c, was, c.Set)
			}
			seen[c.String()] = c.Set
		}
	}
}

func TestCellsThatMakeNoSense(t *testing.T) {
	for _, s := range []string{"", "3", "3:8", "1:8:0", "3:0:0", "3:8:x", "3:8:1:1", "3:8:1:2:3:4"} {
		if c, err := parseCell(s); err == nil {
			t.Errorf("%q is %v", s, c)
		}
	}
	if c, err := parseCell("24:64:0.5:2:8"); err != nil || c != (cell{Routers: 24, Replicas: 64, Rate: 0.5, Links: 2, AllPairs: 8}) {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestFitFindsWhatMadeTheFigures(t *testing.T) {
	var list []figures
	for _, n := range []int{2, 5, 9} {
		f := figures{cell: cell{Routers: n, Replicas: 8 * n, Set: fitSet}}
		f.Heap = 7e6 + 3e3*float64(f.Replicas)
		list = append(list, f)
	}
	list = append(list, figures{cell: cell{Routers: 3, Replicas: 3, Set: heldSet}, Heap: 1}) // not looked at
	x, err := fit(list, memoryTerms, func(f *figures) float64 { return f.Heap })
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(x[0]-7e6) > 1 || math.Abs(x[1]-3e3) > 0.01 {
		t.Errorf("%v, want 7e6 and 3e3", x)
	}
}

func TestCostsAreTakenApart(t *testing.T) {
	of := func(peers float64) loop {
		return loop{
			Routers: int(peers) + 1, Idle: (peers + 1) * (5 + 2*peers), Reading: 7 + 3*peers,
			Few: 100 + 2*0.5 + peers*(3*20+2*4), Many: 100 + 50*0.5 + peers*(3*20+50*4),
		}
	}
	want := costs{Idle: 5, IdlePeer: 2, Reading: 7, ReadingPeer: 3, Request: 100, Mark: 0.5, Record: 20, MarkPeer: 4}
	got := costsOf(of(1), of(5))
	for _, x := range [][2]float64{
		{got.Idle, want.Idle},
		{got.IdlePeer, want.IdlePeer},
		{got.Reading, want.Reading},
		{got.ReadingPeer, want.ReadingPeer},
		{got.Request, want.Request},
		{got.Mark, want.Mark},
		{got.Record, want.Record},
		{got.MarkPeer, want.MarkPeer},
	} {
		if math.Abs(x[0]-x[1]) > 1e-9 {
			t.Errorf("%+v, want %+v", got, want)
			break
		}
	}
}

// newsStore takes every message as news.
type newsStore struct{ gossip.Store }

func (newsStore) ApplyRows(state.Rows) bool { return true }

// A full message tells of a replica without load by leaving it out. The next change
// there is late since it arose, not since that one.
func TestDelayAfterARowThatAFullMessageLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		from := &router{watched: true}
		d := &delays{on: true}
		s := &watchedStore{
			Store: newsStore{}, d: d, c: &cluster{byID: map[state.RouterID]*router{"a": from}},
			seen: map[state.RouterID]map[state.ReplicaID]int{},
		}
		tell := func(after time.Duration, full bool, loads ...state.Load) {
			time.Sleep(after)
			m := state.Rows{Router: "a", Full: full}
			for _, l := range loads {
				m.Rows = append(m.Rows, state.Row{Replica: "r", Load: l})
			}
			s.ApplyRows(m)
		}
		busy, idle := state.Load{InFlight: 1}, state.Load{}
		from.history.note("r", busy, time.Now())
		tell(2*ms, false, busy)
		from.history.note("r", idle, time.Now())
		tell(3*ms, true)
		time.Sleep(3 * time.Second)
		from.history.note("r", busy, time.Now())
		tell(4*ms, true, busy)
		if want := []time.Duration{2 * ms, 3 * ms, 4 * ms}; !slices.Equal(d.rows, want) {
			t.Errorf("delays %v, want %v", d.rows, want)
		}
	})
}
