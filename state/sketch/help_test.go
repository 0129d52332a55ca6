package sketch

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"pgregory.net/rapid"
)

var epoch = time.Now()

func at(d time.Duration) time.Time { return epoch.Add(d) }

// world is a set of routers whose clocks agree, so that placed stamps are equal.
type world struct {
	slots map[state.ReplicaID]state.Slot
	now   time.Time
}

func newWorld() *world { return &world{slots: map[state.ReplicaID]state.Slot{}, now: epoch} }

func (w *world) slot(id state.ReplicaID) state.Slot {
	s, ok := w.slots[id]
	if !ok {
		s = state.Slot(len(w.slots))
		w.slots[id] = s
	}
	return s
}

func (w *world) index(boot state.BootID, b Bounds) *Index {
	if b.Journal == 0 {
		b.Journal = 1 << 12 // the default's ring alone is megabytes
	}
	c := state.NewClock(boot, epoch)
	for o := state.BootID(1); o < 9; o++ {
		c.Observe(o, 0, epoch)
	}
	return New(Config{Clock: c, Slots: w.slot, Bounds: b, Now: func() time.Time { return w.now }})
}

func (w *world) at(d time.Duration) time.Time {
	w.now = at(d)
	return w.now
}

// prompt makes marks of one text: those of a stem (shared by all prompts of the
// same stem), then own ones; each stands for 64 tokens.
func prompt(stem, stemMarks, own, ownMarks int) ([]prefix.Mark, []int32) {
	var m []prefix.Mark
	var d []int32
	add := func(name string, n int) {
		r := rand.New(rand.NewPCG(uint64(len(name)), uint64(sum(name))))
		for range n {
			m = append(m, prefix.Mark{Hash: r.Uint64() | 1})
			d = append(d, int32(len(m)*64))
		}
	}
	add(fmt.Sprintf("stem %d", stem), stemMarks)
	add(fmt.Sprintf("stem %d/%d own %d", stem, stemMarks, own), ownMarks)
	return m, d
}

func sum(s string) (n int) {
	for _, c := range s {
		n = n*31 + int(c)
	}
	return n
}

func (w *world) look(x *Index, id state.ReplicaID, m []prefix.Mark) Match {
	var dst [1]Match
	x.Lookup(dst[:], m, []state.Slot{w.slot(id)}, w.now)
	return dst[0]
}

func serve(x *Index, id state.ReplicaID, m []prefix.Mark, d []int32, t time.Time) {
	p := x.Place(id, m, d, t)
	p.First(t)
	p.End(t)
}

func drain(x *Index, cursor *uint64) []Op {
	ops, next, _ := x.Journal().Read(*cursor, 1<<20)
	*cursor = next
	return ops
}

// pass returns what tells y all that x has done since it was last called.
func (w *world) pass(x, y *Index) func() {
	var cursor uint64
	return func() {
		for _, op := range drain(x, &cursor) {
			y.Apply(op, w.now)
		}
	}
}

// check verifies an index's internal sums against its entries.
func check(t rapid.TB, x *Index) {
	t.Helper()
	// Ops that contradict each other may leave a parent that only its children need.
	needed := map[state.Slot]int{}
	x.table.each(func(e *entry) {
		if e.use.Load() == never && !held(e.state.Load()) && e.kids > 0 {
			needed[e.slot]++
		}
	})
	total := 0
	for _, r := range *x.bySlot.Load() {
		if r == nil {
			continue
		}
		r.mu.Lock()
		var sum, heldTokens, newer int64
		count := 0
		for i := range r.ages.b {
			b := &r.ages.b[i]
			var in int64
			for e := b.head; e != nil; e = e.next {
				u := e.use.Load()
				if r.ages.find(u) != i || u < b.lo || u > b.hi || held(e.state.Load()) || e.gone {
					t.Fatalf("entry %x in the wrong bucket", e.hash)
				}
				in += e.tokens()
				count++
			}
			if in != b.tokens {
				t.Fatalf("bucket %d has %d tokens, says %d", i, in, b.tokens)
			}
			sum += in
			if i > r.ages.at {
				newer += in
			}
		}
		if sum != r.ages.sum || count != r.ages.count || newer != r.ages.newer {
			t.Fatalf("sums %d %d %d, kept %d %d %d", sum, count, newer, r.ages.sum, r.ages.count, r.ages.newer)
		}
		heldEntries := map[*entry][2]uint64{}
		for _, f := range r.flights {
			for i, e := range f.path {
				c := heldEntries[e]
				if i < f.pend {
					c[1]++
				} else {
					c[0]++
				}
				heldEntries[e] = c
			}
		}
		for _, f := range r.book.held {
			for _, e := range f.path {
				c := heldEntries[e]
				c[0]++
				heldEntries[e] = c
			}
		}
		for e, c := range heldEntries {
			if s := e.state.Load(); pinsOf(s) != c[0] || pendOf(s) != c[1] || e.gone {
				t.Fatalf("entry %x held %d/%d, placements say %v", e.hash, pinsOf(s), pendOf(s), c)
			}
			heldTokens += e.tokens()
		}
		if needed := needed[r.slot]; heldTokens != r.ages.held || count+len(heldEntries)+needed != r.entries {
			t.Fatalf("held %d says %d; entries %d+%d+%d says %d", heldTokens, r.ages.held, count, len(heldEntries), needed, r.entries)
		}
		total += r.entries
		r.mu.Unlock()
	}
	refs := 0
	var bytes int64
	for i := range x.table.shards {
		s := &x.table.shards[i]
		marks, live := 0, 0
		for c := range x.table.in(i) {
			bytes += cellBytes
			hash := c.hash.Load()
			if hash == 0 {
				if c.filter.Load() != 0 || c.many.Load() != nil || c.one.Load() != nil {
					t.Fatalf("a free cell holds something")
				}
				continue
			}
			marks++
			if x.table.find(hash) != c {
				t.Fatalf("mark %x is not found", hash)
			}
			holders := c.holders()
			if h := c.many.Load(); h != nil {
				bytes += h.bytes()
				if len(holders) < 2 {
					t.Fatalf("%d holders in a list", len(holders))
				}
			}
			if len(holders) > 0 {
				live++
			}
			refs += len(holders)
			var filter uint64
			for n, e := range holders {
				filter |= 1 << (e.slot % 64)
				if h := c.many.Load(); h != nil && h.at(e.slot) != e || n > 0 && holders[n-1].slot >= e.slot {
					t.Fatalf("holder missing in the set or out of order")
				}
				if e.gone || e.hash != hash || x.table.get(hash, e.slot) != e {
					t.Fatalf("table holds a removed entry")
				}
			}
			if filter != c.filter.Load() {
				t.Fatalf("mark %x has filter %x, want %x", hash, c.filter.Load(), filter)
			}
		}
		if marks != s.used || live != s.live {
			t.Fatalf("shard has %d marks, %d with holders, says %d, %d", marks, live, s.used, s.live)
		}
	}
	if bytes != x.table.bytes.Load() {
		t.Fatalf("table has %d bytes, says %d", bytes, x.table.bytes.Load())
	}
	if refs != total || int64(refs) != x.entries.Load() {
		t.Fatalf("table has %d, replicas %d, counted %d", refs, total, x.entries.Load())
	}
}

// in gives a shard's cells.
func (t *table) in(shard int) iter.Seq[*cell] {
	return func(yield func(*cell) bool) {
		if cells := t.cells[shard].Load(); cells != nil {
			for i := range *cells {
				if !yield(&(*cells)[i]) {
					return
				}
			}
		}
	}
}

// holders lists a mark's entries by slot.
func (c *cell) holders() []*entry {
	if h := c.many.Load(); h != nil {
		return h.refs
	}
	if e := c.one.Load(); e != nil {
		return []*entry{e}
	}
	return nil
}

// each calls f with all entries.
func (t *table) each(f func(*entry)) {
	for i := range t.shards {
		for c := range t.in(i) {
			for _, e := range c.holders() {
				f(e)
			}
		}
	}
}
