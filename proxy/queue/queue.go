package queue

import (
	"sync"
	"sync/atomic"

	"github.com/hearsay-llm/hearsay/state"
)

// MinShare is the part of the tokens released that a band gets at least while it
// waits, whatever waits before it.
const MinShare = 0.1

const (
	// minTokens is what an entry costs at least: a prompt found in a cache is not free.
	minTokens = 16
	// maxBlocked bounds the classes that one round of a pump finds blocked; past it the
	// round ends.
	maxBlocked = 8
	// maxLook bounds the entries that are looked past to find one of another class.
	maxLook = 256
	// maxRounds bounds what one call of Pump does for callers that come meanwhile.
	maxRounds = 4
)

// Bounds are of what may wait; 0: any number.
type Bounds struct {
	Requests int
	Bytes    int64
}

// Verdict is what came of an entry that was offered a replica.
type Verdict uint8

// The verdicts.
const (
	Blocked Verdict = iota // nobody can take it now: it waits on
	Placed                 // it is served: it leaves, and its tokens count
	Failed                 // it leaves without having been served
)

// Entry is one request that waits. Its exported fields are set before Push and then
// only read.
type Entry struct {
	Band   state.Band
	Tenant string
	Weight float64 // of the tenant; 0 means 1
	Tokens int64   // uncached prompt tokens, as estimated
	Bytes  int64   // that it holds
	// Class names what the entry needs beside a replica of the pool; empty: nothing.
	Class string
	Value any // the owner's

	// Out is closed when the entry has left by another's hand: placed, failed or
	// displaced. Push makes it.
	Out chan struct{}

	how    How
	status status // guarded by Queue.mu
	due    bool   // guarded by Queue.mu; offered since it is its band's turn
	of     *tenant
	links  [2]link // guarded by Queue.mu; in its tenant's and its band's list
}

// How says how an entry left that did not leave by itself.
type How uint8

// The ways out.
const (
	Served    How = iota // Placed
	Refused              // Failed
	Displaced            // by a newcomer of a higher band
)

// How is how the entry left. Valid when Out is closed.
func (e *Entry) How() How { return e.how }

// Due says that the entry is offered a replica since its band has had less than MinShare:
// what bands before it are to find free is not kept from it. Only for Pump's try.
func (e *Entry) Due() bool { return e.due }

type status uint8

const (
	gone    status = iota // not, or no longer, in the queue
	waiting               // may be offered a replica
	offered               // is being offered one
	paused                // its owner is busy: it keeps its place
)

// cost is what the entry's release counts.
func (e *Entry) cost() float64 { return float64(max(minTokens, e.Tokens)) }

// Queue is one pool's. The zero value is ready. Safe for concurrent use.
type Queue struct {
	n atomic.Int64 // entries

	mu       sync.Mutex
	bytes    int64             // guarded by mu
	special  int               // guarded by mu; entries that are of a class
	bands    [state.Bands]band // guarded by mu; by rank
	pumping  bool              // guarded by mu
	again    bool              // guarded by mu; somebody called Pump meanwhile
	answered sync.Cond         // an offer is over; its lock is mu, set with the first wait
}

// Len is how many entries wait. It takes no lock.
func (q *Queue) Len() int { return int(q.n.Load()) }

// Push puts an entry at the end of its tenant's line. Where it is one too many, the
// newest entries of lower bands make room, the lowest band's first, and are returned.
// It reports false where they would not be enough: then nothing has changed.
func (q *Queue) Push(e *Entry, most Bounds) (displaced []*Entry, ok bool) {
	e.Out = make(chan struct{})
	if e.Weight <= 0 {
		e.Weight = 1
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	displaced, ok = q.room(e, most)
	if !ok {
		return nil, false
	}
	for _, d := range displaced {
		q.out(d, Displaced)
	}
	q.bands[e.Band.Rank()].push(e)
	e.status = waiting
	q.n.Add(1)
	q.bytes += e.Bytes
	if e.Class != "" {
		q.special++
	}
	return displaced, true
}

// room finds who has to go so that e may come. The caller holds mu.
func (q *Queue) room(e *Entry, most Bounds) (displaced []*Entry, ok bool) {
	n, bytes := int(q.n.Load())+1, q.bytes+e.Bytes
	fits := func() bool {
		return (most.Requests <= 0 || n <= most.Requests) && (most.Bytes <= 0 || bytes <= most.Bytes)
	}
	for rank := state.Bands - 1; rank > e.Band.Rank(); rank-- {
		for x := q.bands[rank].all.last; x != nil && !fits(); x = x.links[inBand].prev {
			if x.status != offered {
				displaced = append(displaced, x)
				n--
				bytes -= x.Bytes
			}
		}
	}
	return displaced, fits()
}

// out takes an entry out and tells its owner. The caller holds mu.
func (q *Queue) out(e *Entry, how How) {
	q.remove(e)
	e.how = how
	close(e.Out)
}

// remove takes an entry out. The caller holds mu.
func (q *Queue) remove(e *Entry) {
	e.status = gone
	q.n.Add(-1)
	q.bytes -= e.Bytes
	if e.Class != "" {
		q.special--
	}
	q.bands[e.Band.Rank()].remove(e)
}

// Leave takes an entry out for its owner. It waits for the end of an offer and reports
// false where the entry has left by then.
func (q *Queue) Leave(e *Entry) bool { return q.change(e, gone) }

// Pause keeps an entry's place and offers it no replica until Resume. It reports false
// as Leave does.
func (q *Queue) Pause(e *Entry) bool { return q.change(e, paused) }

// Resume ends a pause. The entry may have been displaced meanwhile.
func (q *Queue) Resume(e *Entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.status == paused {
		e.status = waiting
	}
}

func (q *Queue) change(e *Entry, to status) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for e.status == offered {
		q.answered.L = &q.mu
		q.answered.Wait()
	}
	if e.status == gone {
		return false
	}
	if to == gone {
		q.remove(e)
	} else {
		e.status = to
	}
	return true
}

// Pump offers replicas to entries in their order, until those left are blocked or most
// of them were placed. try is called without a lock; one goroutine calls it at a time.
// A call while another goroutine pumps makes that one go round again. It reports
// whether there may be more to do.
func (q *Queue) Pump(most int, try func(*Entry) Verdict) (more bool) {
	if q.n.Load() == 0 {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pumping {
		q.again = true
		return false
	}
	q.pumping = true
	defer func() { q.pumping = false }()
	for range maxRounds {
		q.again = false
		if most = q.round(most, try); most <= 0 {
			return true
		}
		if !q.again {
			return false
		}
	}
	return true
}

// round is one way through the queue. It returns how many may still be placed. The
// caller holds mu.
func (q *Queue) round(most int, try func(*Entry) Verdict) int {
	var room [maxBlocked]string
	blocked, due := room[:0], true
	for most > 0 && len(blocked) < maxBlocked {
		e := q.next(blocked, due)
		if e == nil {
			break
		}
		switch q.offer(e, try) {
		case Blocked:
			if e.due { // those before it may have places of their own
				due = false
				continue
			}
			blocked = append(blocked, e.Class)
		case Placed:
			q.charge(e)
			q.out(e, Served)
			most--
		case Failed:
			q.out(e, Refused)
		}
	}
	return most
}

// offer calls try without the lock. An entry whose try panics waits on.
func (q *Queue) offer(e *Entry, try func(*Entry) Verdict) (v Verdict) {
	e.status = offered
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		if v == Blocked {
			e.status = waiting
		}
		q.answered.Broadcast()
	}()
	return try(e)
}
