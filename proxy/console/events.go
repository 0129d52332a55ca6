package console

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Event is something that happened, as far as the router that tells it knows.
type Event struct {
	At   time.Time `json:"at"`   // the router's wall clock
	Kind string    `json:"kind"` // pick | request | ejection | return | panic | prewarm | decision | member | leader | lost

	Pool    string `json:"pool,omitempty"`
	Replica string `json:"replica,omitempty"`
	Member  string `json:"member,omitempty"` // a router's name, with its id where two share a name
	From    string `json:"from,omitempty"`   // state or size before; of a prewarm the replica that drains
	To      string `json:"to,omitempty"`     // and after
	Reason  string `json:"reason,omitempty"` // a code, or a decision's sentence
	Text    string `json:"text,omitempty"`   // in words

	// Of a decision.
	Decision string `json:"decision,omitempty"` // its id
	Role     string `json:"role,omitempty"`
	Outcome  string `json:"outcome,omitempty"` // empty: under way

	// Of a pick. PromptTokens, those that were prefilled, is of a prewarm as well.
	RequestID     string  `json:"request_id,omitempty"`
	Model         string  `json:"model,omitempty"`
	Tenant        string  `json:"tenant,omitempty"`
	Band          string  `json:"band,omitempty"`
	Attempt       int     `json:"attempt,omitempty"` // from 1
	Policy        string  `json:"policy,omitempty"`
	PromptTokens  int     `json:"prompt_tokens,omitempty"`
	MatchedTokens int     `json:"matched_tokens,omitempty"`
	TTFTMS        float64 `json:"ttft_ms,omitempty"` // predicted

	Record *Record `json:"record,omitempty"` // of a request

	Count uint64 `json:"count,omitempty"` // of lost: events; of a pick: picks before it that were not told
}

// Record is what a request was like, as 'hearsay replay' takes it to run its like
// again. Nothing of what was said is in it.
type Record struct {
	QueuedMS     float64 `json:"queued_ms"`        // in the pool's queue, before the pick
	ObservedMS   float64 `json:"observed_ttft_ms"` // from the pick to a stream's first token; 0: not streamed
	ITLMS        float64 `json:"itl_ms"`           // mean between tokens; 0: unknown
	CachedTokens int     `json:"cached_tokens"`    // as the engine reported them; negative: it did not
	OutputTokens int     `json:"output_tokens"`
	MaxTokens    int     `json:"max_tokens"`        // the client's bound; 0: none
	PromptBytes  int     `json:"prompt_bytes"`      // about
	Session      string  `json:"session,omitempty"` // a hash of the client's x-session-id; empty: it sent none
	// Marks are the hashes of the prompt's beginnings, shallow to deep: each its depth in
	// bytes, a dot and half of the hash in hexadecimal, with a space between two.
	Marks string `json:"marks"`
}

// The kinds of events. KindLost says that the reader was too slow for what came before.
const (
	KindPick     = "pick"
	KindRequest  = "request"
	KindEjection = "ejection"
	KindReturn   = "return"
	KindPanic    = "panic"
	KindPrewarm  = "prewarm"
	KindDecision = "decision"
	KindMember   = "member"
	KindLeader   = "leader"
	KindLost     = "lost"
)

// Kinds are those that can be asked for. KindRequest is told of every request, and only
// to those who name it.
func Kinds() []string {
	return []string{KindPick, KindRequest, KindEjection, KindReturn, KindPanic, KindPrewarm, KindDecision, KindMember, KindLeader}
}

const (
	// maxReaders bounds those who read events at a time.
	maxReaders = 16
	// heldEvents bounds what is held for a reader; what comes when that many wait is lost
	// to it.
	heldEvents = 256
	// picksEvery is the least time between two picks that are told: 10 a second.
	picksEvery = 100 * time.Millisecond
)

// Events hands what happens to those who read along. It keeps nothing for later. Safe
// for concurrent use; publishing never blocks and costs next to nothing while nobody
// reads.
type Events struct {
	reading atomic.Int32 // readers
	picks   atomic.Int32 // readers of picks
	records atomic.Int32 // readers of requests
	pickAt  atomic.Int64 // Unix nanoseconds: when the next pick may be told
	untold  atomic.Uint64

	mu      sync.Mutex
	readers map[*reader]struct{} // guarded by mu
	closed  bool                 // guarded by mu
}

// reader is one who reads events.
type reader struct {
	kinds  []string // empty: all but KindRequest
	events chan Event
	ended  chan struct{} // closed when no more will come
	lost   uint64        // guarded by Events.mu
}

// NewEvents returns one that nobody reads yet.
func NewEvents() *Events { return &Events{readers: map[*reader]struct{}{}} }

func (r *reader) wants(kind string) bool {
	return len(r.kinds) == 0 && kind != KindRequest || slices.Contains(r.kinds, kind)
}

// Read reports whether anybody reads.
func (e *Events) Read() bool { return e.reading.Load() > 0 }

// Publish tells an event.
func (e *Events) Publish(x Event) {
	if !e.Read() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for r := range e.readers {
		if !r.wants(x.Kind) {
			continue
		}
		if r.lost > 0 && r.add(lost(x.At, r.lost)) {
			r.lost = 0
		}
		if r.lost > 0 || !r.add(x) {
			r.lost++
		}
	}
}

// add holds an event for the reader; false when there is no room.
func (r *reader) add(x Event) bool {
	select {
	case r.events <- x:
		return true
	default:
		return false
	}
}

// lost says how many events are missing in its place.
func lost(at time.Time, n uint64) Event {
	return Event{At: at, Kind: KindLost, Count: n, Text: fmt.Sprintf("the reader was too slow: %d events are missing here", n)}
}

// Pick tells a pick, unless another one was told a moment ago or nobody reads picks. The
// event is made only if it is told. It may be called on the request path.
func (e *Events) Pick(now time.Time, make func() Event) {
	if e.picks.Load() == 0 {
		return
	}
	due := e.pickAt.Load()
	if now.UnixNano() < due || !e.pickAt.CompareAndSwap(due, now.Add(picksEvery).UnixNano()) {
		e.untold.Add(1)
		return
	}
	x := make()
	x.Kind, x.Count = KindPick, e.untold.Swap(0)
	e.Publish(x)
}

// Request tells what a request was like that has ended. The event is made only if
// somebody reads them. It may be called on the request path.
func (e *Events) Request(make func() Event) {
	if e.records.Load() == 0 {
		return
	}
	x := make()
	x.Kind = KindRequest
	e.Publish(x)
}

// join adds a reader of these kinds, all but KindRequest if there are none; nil when there are too many
// or the end has come.
func (e *Events) join(kinds []string) *reader {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || len(e.readers) >= maxReaders {
		return nil
	}
	r := &reader{kinds: kinds, events: make(chan Event, heldEvents), ended: make(chan struct{})}
	e.readers[r] = struct{}{}
	e.reading.Add(1)
	if r.wants(KindPick) && e.picks.Add(1) == 1 {
		e.untold.Store(0)
	}
	if r.wants(KindRequest) {
		e.records.Add(1)
	}
	return r
}

// leave takes a reader out.
func (e *Events) leave(r *reader) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, there := e.readers[r]; !there {
		return
	}
	delete(e.readers, r)
	e.reading.Add(-1)
	if r.wants(KindPick) {
		e.picks.Add(-1)
	}
	if r.wants(KindRequest) {
		e.records.Add(-1)
	}
}

// missed is how many events were lost to a reader behind all that it has got.
func (e *Events) missed(r *reader) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(r.events) > 0 {
		return 0 // they come first
	}
	n := r.lost
	r.lost = 0
	return n
}

// close ends all reading.
func (e *Events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.closed = true
	for r := range e.readers {
		close(r.ended)
	}
}
