package sketch

import "sort"

// ages orders one replica's marks by last use, in buckets of about grain tokens,
// and keeps the horizon: the instant since which as many tokens were used as the
// cache holds. Entries that placements hold are in no bucket; their tokens count
// as the newest. Guarded by the replica's mu.
type ages struct {
	b      []bucket // by start, ascending; the first starts at never
	held   int64    // tokens of entries that placements hold
	sum    int64    // tokens in buckets
	count  int      // entries in buckets
	at     int      // bucket the horizon is in
	newer  int64    // tokens in buckets after at
	grain  int64
	merge  int   // bucket count at which small neighbours are merged
	newest int64 // latest use added so far
}

// bucket holds the entries whose use is at start or later and before the next
// bucket's start.
type bucket struct {
	start, lo, hi int64 // lo, hi: bounds of uses added
	tokens        int64
	head, tail    *entry
}

const (
	bucketsPerCache = 256  // a bucket is at most about this part of C_eff
	bucketsMerge    = 2048 // bucket count at which small neighbours are merged
)

func newAges() ages {
	return ages{b: []bucket{{start: never, lo: 1, hi: 0}}, grain: 64, merge: bucketsMerge, newest: never}
}

// find is the bucket of a use.
func (a *ages) find(use int64) int {
	if n := len(a.b) - 1; a.b[n].start <= use {
		return n
	}
	return sort.Search(len(a.b), func(i int) bool { return a.b[i].start > use }) - 1
}

// add puts an entry into the bucket of its use.
func (a *ages) add(e *entry) {
	use, n := e.use.Load(), e.tokens()
	i := a.find(use)
	if i == len(a.b)-1 && use > a.newest && a.b[i].tokens >= a.grain {
		if len(a.b) >= a.merge {
			a.compact()
		}
		a.b = append(a.b, bucket{start: use, lo: use, hi: use})
		i = len(a.b) - 1
	}
	a.newest = max(a.newest, use)
	b := &a.b[i]
	if b.head == nil {
		b.lo, b.hi = use, use
	} else {
		b.lo, b.hi = min(b.lo, use), max(b.hi, use)
	}
	e.prev, e.next = b.tail, nil
	if b.tail == nil {
		b.head = e
	} else {
		b.tail.next = e
	}
	b.tail = e
	a.count++
	a.grow(i, n)
}

// remove takes an entry out of its bucket.
func (a *ages) remove(e *entry) {
	i := a.find(e.use.Load())
	b := &a.b[i]
	if e.prev == nil {
		b.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		b.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
	a.count--
	a.grow(i, -e.tokens())
}

// grow changes the tokens of bucket i.
func (a *ages) grow(i int, n int64) {
	a.b[i].tokens += n
	a.sum += n
	if i > a.at {
		a.newer += n
	}
}

// settle moves the horizon to where the newest tokens fill the capacity and
// returns it: a use is alive iff it is later.
func (a *ages) settle(capacity int64) int64 {
	a.grain = max(64, capacity/bucketsPerCache)
	room := capacity - a.held
	for a.newer > room && a.at < len(a.b)-1 {
		a.at++
		a.newer -= a.b[a.at].tokens
	}
	for a.at > 0 && a.newer+a.b[a.at].tokens <= room {
		a.newer += a.b[a.at].tokens
		a.at--
	}
	b := &a.b[a.at]
	room -= a.newer
	switch {
	case b.tokens <= max(room, 0):
		if a.at == 0 {
			return liveAlways
		}
		return b.start - 1
	case room <= 0:
		return b.hi
	}
	part := float64(room) / float64(b.tokens)
	return b.hi - int64(part*float64(b.hi-b.lo))
}

// meter measures distances for uses that mostly descend.
type meter struct {
	a     *ages
	i     int   // bucket the last use was in
	newer int64 // tokens in buckets after i, held ones included
}

func (a *ages) meter() meter { return meter{a, len(a.b) - 1, a.held} }

// distance is the tokens used more recently than use.
func (m *meter) distance(use int64) int64 {
	if m.i+1 < len(m.a.b) && m.a.b[m.i+1].start <= use {
		*m = m.a.meter()
	}
	for m.i > 0 && m.a.b[m.i].start > use {
		m.newer += m.a.b[m.i].tokens
		m.i--
	}
	b := &m.a.b[m.i]
	if use >= b.hi || b.tokens == 0 {
		return m.newer
	}
	if b.hi == b.lo || use <= b.lo {
		return m.newer + b.tokens
	}
	return m.newer + int64(float64(b.tokens)*float64(b.hi-use)/float64(b.hi-b.lo))
}

// compact merges neighbours that together are no larger than a bucket should be.
func (a *ages) compact() {
	horizon := a.b[a.at].start
	out := a.b[:1]
	for i := 1; i < len(a.b); i++ {
		last, b := &out[len(out)-1], a.b[i]
		if last.tokens+b.tokens > a.grain && last.head != nil && b.head != nil {
			out = append(out, b)
			continue
		}
		switch {
		case b.head == nil:
		case last.head == nil:
			last.lo, last.hi, last.head, last.tail = b.lo, b.hi, b.head, b.tail
		default:
			last.hi, last.lo = max(last.hi, b.hi), min(last.lo, b.lo)
			last.tail.next, b.head.prev = b.head, last.tail
			last.tail = b.tail
		}
		last.tokens += b.tokens
	}
	clear(a.b[len(out):])
	a.b = out
	a.merge = max(bucketsMerge, 2*len(out))
	a.at, a.newer = a.find(horizon), 0
	for i := a.at + 1; i < len(a.b); i++ {
		a.newer += a.b[i].tokens
	}
}

// oldest is an entry of the oldest bucket that has any, or nil.
func (a *ages) oldest() *entry {
	for a.b[0].head == nil && len(a.b) > 1 {
		a.b[0] = bucket{}
		a.b = a.b[1:]
		a.b[0].start = never
		if a.at > 0 {
			a.at--
		} else {
			a.newer -= a.b[0].tokens
		}
	}
	return a.b[0].head
}

// later moves an entry to the end of its bucket's list.
func (a *ages) later(e *entry) {
	b := &a.b[a.find(e.use.Load())]
	if b.tail == e {
		return
	}
	if e.prev == nil {
		b.head = e.next
	} else {
		e.prev.next = e.next
	}
	e.next.prev = e.prev
	e.prev, e.next = b.tail, nil
	b.tail.next = e
	b.tail = e
}
