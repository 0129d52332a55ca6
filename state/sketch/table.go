package sketch

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/hearsay-llm/hearsay/state"
)

// table finds the entries of a mark. Readers take no lock and never wait; writers
// lock the mark's shard. A replica's mu may be held while a shard's is taken, never
// the reverse. The table grows and shrinks with what is in it.
//
// What a reader finds of one replica is so at some instant during its search: a mark
// that the replica holds all the while is found. Several replicas' holdings need not
// be of the same instant.
//
// A cell whose mark nobody holds any more may get another mark while a reader has it.
// So a reader takes what it finds there, an entry or a list of holders, for its mark's
// only if that says so: both name the mark and never change that. A cell with a holder
// keeps its mark.
type table struct {
	bytes  atomic.Int64                       // of cells and holders
	cells  [shardCount]atomic.Pointer[[]cell] // replaced under the shard's mu; nil: no marks
	shards [shardCount]shard
}

const (
	shardBits  = 10
	shardCount = 1 << shardBits // so many that resizing one is a matter of microseconds
)

// shard is what writers know of a part of the table: a hash table with open
// addressing and linear probing, whose marks never move to other cells of one array.
type shard struct {
	mu   sync.Mutex
	used int // guarded by mu; cells that are not free
	live int // guarded by mu; of those, whose mark has a holder; the others are dead
	_    [40]byte
}

// cell is a mark and who holds it: nobody any more, one entry, or several. All is
// written under the shard's mu. Half a cache line, so that a reader that looks for none
// of its holders needs nothing else.
type cell struct {
	hash   atomic.Uint64           // 0: free
	filter atomic.Uint64           // bit n: one of its holders' slots is n modulo 64
	many   atomic.Pointer[holders] // from two holders on
	one    atomic.Pointer[entry]   // the holder while many is nil; of no meaning else
}

const (
	minCells = 8

	cellBytes = int64(unsafe.Sizeof(cell{}))
)

func shardOf(hash uint64) uint64 { return hash >> (64 - shardBits) }

// home is where the search for a hash begins among n cells, a power of two.
func home(hash uint64, n int) int {
	return int(hash * 0x9e3779b97f4a7c15 >> 32 & uint64(n-1))
}

// find returns the mark's cell, or nil. It may be one without holders. Readers see
// in it what becomes of the mark until nobody holds it, or the shard is rebuilt, which
// leaves the cell as it was.
func (t *table) find(hash uint64) *cell {
	cells := t.cells[shardOf(hash)].Load()
	if cells == nil || hash == 0 {
		return nil
	}
	return probe(*cells, hash)
}

// fetch reads what find will need first.
func (t *table) fetch(hash uint64) {
	if cells := t.cells[shardOf(hash)].Load(); cells != nil {
		(*cells)[home(hash, len(*cells))].hash.Load()
	}
}

// probe returns the mark's cell, or nil.
//
// A reader that passes by while cells change misses no mark that is held all the while:
// between the mark's home and its cell none is free then, since trim frees those alone
// behind which the next is free.
func probe(cells []cell, hash uint64) *cell {
	for i := home(hash, len(cells)); ; i = (i + 1) & (len(cells) - 1) {
		switch c := &cells[i]; c.hash.Load() {
		case hash:
			return c
		case 0:
			return nil
		}
	}
}

// place returns where the mark is, or else where it may go: the first dead cell on the
// way, or the free one at its end. The shard's mu is held.
func place(cells []cell, hash uint64) (i int) {
	dead := -1
	for i = home(hash, len(cells)); ; i = (i + 1) & (len(cells) - 1) {
		c := &cells[i]
		switch has := c.hash.Load(); {
		case has == hash:
			return i
		case has == 0 && dead >= 0:
			return dead
		case has == 0:
			return i
		case dead < 0 && c.filter.Load() == 0:
			dead = i
		}
	}
}

// get returns a replica's entry of the mark, or nil. The replica's mu is held, so it is
// not among the holders of another mark that the cell may get meanwhile.
func (t *table) get(hash uint64, slot state.Slot) *entry {
	c := t.find(hash)
	if c == nil || c.filter.Load()&filterBit(slot) == 0 {
		return nil
	}
	if h := c.many.Load(); h != nil {
		return h.at(slot)
	}
	if e := c.one.Load(); e != nil && e.slot == slot {
		return e
	}
	return nil
}

func filterBit(slot state.Slot) uint64 { return 1 << (slot % 64) }

// put adds an entry that is not there yet.
func (t *table) put(e *entry) {
	s := &t.shards[shardOf(e.hash)]
	s.mu.Lock()
	defer s.mu.Unlock()
	c := t.claim(s, e.hash)
	many, one := c.many.Load(), c.one.Load()
	switch {
	case many != nil:
		more := many.with(e)
		c.many.Store(more)
		t.bytes.Add(more.bytes() - many.bytes())
	case one != nil:
		more := newHolders(one).with(e)
		c.many.Store(more)
		t.bytes.Add(more.bytes())
	default:
		c.one.Store(e)
		s.live++
	}
	if has := c.filter.Load(); has&filterBit(e.slot) == 0 {
		c.filter.Store(has | filterBit(e.slot))
	}
	if c.hash.Load() != e.hash {
		c.hash.Store(e.hash) // the mark is there only now
	}
}

// claim returns the mark's cell, or one that may be its. The shard's mu is held.
func (t *table) claim(s *shard, hash uint64) *cell {
	n := 0
	if cells := t.cells[shardOf(hash)].Load(); cells != nil {
		n = len(*cells)
		c := &(*cells)[place(*cells, hash)]
		if c.hash.Load() != 0 {
			return c
		}
		if 4*(s.used+1) <= 3*n {
			s.used++
			return c
		}
	}
	if 8*(s.live+1) > 5*n {
		n = max(minCells, 2*n)
	}
	t.rebuild(s, shardOf(hash), n) // without the dead
	s.used++
	cells := *t.cells[shardOf(hash)].Load()
	return &cells[place(cells, hash)]
}

// trim frees the dead cells up to the one at i if no search goes on behind them, as
// the next one is free. The shard's mu is held.
func (s *shard) trim(cells []cell, i int) {
	if cells[(i+1)&(len(cells)-1)].hash.Load() != 0 {
		return
	}
	for c := &cells[i]; c.hash.Load() != 0 && c.filter.Load() == 0; c = &cells[i] {
		c.hash.Store(0)
		s.used--
		i = (i - 1) & (len(cells) - 1)
	}
}

// rebuild puts all marks that have holders into n new cells; none if n is 0. The
// shard's mu is held.
func (t *table) rebuild(s *shard, shard uint64, n int) {
	var old, cells []cell
	if was := t.cells[shard].Load(); was != nil {
		old = *was
	}
	t.bytes.Add(int64(n-len(old)) * cellBytes)
	s.used = s.live
	if n == 0 {
		t.cells[shard].Store(nil)
		return
	}
	cells = make([]cell, n)
	for i := range old {
		c := &old[i]
		filter := c.filter.Load()
		if filter == 0 {
			continue
		}
		hash := c.hash.Load()
		to := &cells[place(cells, hash)]
		to.hash.Store(hash)
		to.filter.Store(filter)
		if many := c.many.Load(); many != nil { // a store that others may see costs
			to.many.Store(many)
		} else {
			to.one.Store(c.one.Load())
		}
	}
	t.cells[shard].Store(&cells)
}

// drop removes an entry, and gives back what is no longer needed.
func (t *table) drop(e *entry) {
	s := &t.shards[shardOf(e.hash)]
	s.mu.Lock()
	defer s.mu.Unlock()
	cells := t.cells[shardOf(e.hash)].Load()
	if cells == nil {
		return
	}
	at := place(*cells, e.hash)
	c := &(*cells)[at]
	if c.hash.Load() != e.hash {
		return
	}
	switch many := c.many.Load(); {
	case many != nil && many.at(e.slot) == e:
		if len(many.refs) == 2 {
			last := many.other(e)
			c.one.Store(last)
			c.many.Store(nil)
			c.filter.Store(filterBit(last.slot))
			t.bytes.Add(-many.bytes())
			return
		}
		less := many.without(e.slot)
		c.many.Store(less)
		c.filter.Store(less.filter())
		t.bytes.Add(less.bytes() - many.bytes())
	case many == nil && c.one.Load() == e:
		c.one.Store(nil)
		c.filter.Store(0)
		s.live--
		if n := len(*cells); s.live == 0 {
			t.rebuild(s, shardOf(e.hash), 0)
		} else if n > minCells && 4*s.live < n {
			t.rebuild(s, shardOf(e.hash), n/2)
		} else {
			s.trim(*cells, at)
		}
	}
}
