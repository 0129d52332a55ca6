package sketch

import (
	"cmp"
	"slices"

	"github.com/hearsay-llm/hearsay/state"
)

// Some engines (llama.cpp without a shared cache) hold no pool of blocks but S
// slots, each with the sequence it served last. A new prompt goes to the free slot
// whose sequence it shares the most with, if that is more than slotShare of the
// prompt, else to the one unused for longest; there, all beyond the shared part is
// overwritten. So a mark is live iff a slot's sequence runs through it, however old
// it is and however much was used since.
//
// The slots are worked out anew from the last sequences in the order of their
// placing: what routers know of these merges, so what they work out agrees. What a
// slot holds is pinned, like what is in flight.
//
// Such an engine may keep elsewhere what a slot gives up (llama.cpp's --cache-ram, host
// memory), and tell nobody. That is learned as C_eff is, by the distance rule, from
// nothing on: what is found again though no slot holds it makes a horizon of its own.

// slotShare is llama.cpp's --slot-prompt-similarity.
const slotShare = 0.1

// slotBook is what is known of a replica with slots. Guarded by the replica's mu.
type slotBook struct {
	n     int // slots; 0: the replica has none
	last  []sequence
	held  []*flight // one per slot in use
	dirty bool
}

// sequence is a prompt, later with its answer, that a slot was given.
type sequence struct {
	leaf  *entry
	began int64 // own time of the placing
	end   int64 // own time of the last use
}

// MaxSlots bounds what SetSlots takes.
const MaxSlots = 256

// SetSlots says that the replica keeps the last sequence of each of so many slots,
// and no other cache that it tells of; 0 says it has none. tokens is what all together hold. It may
// be repeated with every reading; not shared, like SetCapacity.
func (x *Index) SetSlots(id state.ReplicaID, slots int, tokens float64, source CapacitySource) {
	if id == "" || len(id) > MaxIDBytes || slots < 0 {
		return
	}
	x.SetCapacity(id, tokens, source)
	t := x.ownTime(x.now())
	r := x.replica(id, t, t)
	if r == nil {
		return
	}
	defer r.mu.Unlock()
	if n := min(slots, MaxSlots); n != r.book.n && !r.gone {
		r.book.n, r.book.dirty = n, true
		r.learn.setSlots(n > 0)
		if n > 0 {
			r.recall()
		} else {
			for _, f := range r.book.held {
				r.unpin(f)
			}
			r.book = slotBook{}
		}
		r.settle()
	}
}

// remembered is how many sequences slots are worked out from, so that one which
// comes late is still put in its place. What a slot holds is not forgotten.
func (b *slotBook) remembered() int { return 2*b.n + 16 }

// recall makes sequences of what was used so far: a mark that no later one of its
// own prompt follows ends one.
func (r *replica) recall() {
	for _, c := range r.chains() {
		if e := r.x.table.get(c.leaf, r.slot); e != nil {
			r.book.note(e, c.began, c.use)
		}
	}
}

// note records a use of the path of e.
func (b *slotBook) note(e *entry, began, end int64) {
	if b.n == 0 {
		return
	}
	for i := range b.last {
		if s := &b.last[i]; s.leaf == e && s.began == began {
			if end > s.end {
				s.end, b.dirty = end, true
			}
			return
		}
	}
	b.dirty = true
	s := sequence{e, began, end}
	i, _ := slices.BinarySearchFunc(b.last, s, bySequence)
	b.last = slices.Insert(b.last, i, s)
}

func bySequence(a, b sequence) int {
	return cmp.Or(cmp.Compare(a.began, b.began), cmp.Compare(a.end, b.end), cmp.Compare(a.leaf.hash, b.leaf.hash))
}

// slotted is a slot and its sequence's path from the root, with depths in tokens.
type slotted struct {
	sequence
	path  []*entry
	depth []int64
}

func (r *replica) fillSlot(s sequence) slotted {
	f := slotted{sequence: s, path: r.walk(nil, s.leaf)}
	slices.Reverse(f.path)
	f.depth = make([]int64, len(f.path))
	var sum int64
	for i, e := range f.path {
		sum += e.tokens()
		f.depth[i] = sum
	}
	return f
}

// shared is how many marks two paths have in common from the root on.
func shared(a, b []*entry) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// assign works out what the slots hold, and pins it.
func (r *replica) assign() {
	b := &r.book
	if !b.dirty {
		return
	}
	b.dirty = false
	b.last = slices.DeleteFunc(b.last, func(s sequence) bool { return s.leaf.gone || s.began <= r.dead })
	var slots []slotted
	keep := b.remembered()
	for _, s := range b.last {
		f := r.fillSlot(s)
		if !f.path[0].known {
			keep = 4 * b.remembered() // what it shares is not known yet: who knows what it overwrites
		}
		if i := pickSlot(slots, &f, b.n); i < len(slots) {
			slots[i] = f
		} else {
			slots = append(slots, f)
		}
	}
	for i := 0; i < len(b.last) && len(b.last) > keep; {
		if slices.ContainsFunc(slots, func(f slotted) bool { return f.leaf == b.last[i].leaf }) {
			i++
			continue
		}
		b.last = slices.Delete(b.last, i, i+1)
	}
	held := b.held
	b.held = nil
	for _, s := range slots {
		slices.Reverse(s.path)
		f := &flight{phase: phaseFirst, began: s.began, told: s.end, lost: never, path: s.path}
		for _, e := range f.path {
			r.hold(e, onePin, s.began)
		}
		r.inFlight += f.bytes()
		b.held = append(b.held, f)
	}
	for _, f := range held {
		r.unpin(f)
	}
}

// pickSlot is the slot of n that a sequence goes to; len(slots): one unused so far.
// A slot that is busy when the sequence begins is taken only if all are, as the
// sequence then waits for the first to become free.
func pickSlot(slots []slotted, s *slotted, n int) int {
	best, most, oldest, free := -1, int64(0), 0, -1
	for i := range slots {
		h := &slots[i]
		same := shared(h.path, s.path)
		if h.began == s.began && (same == len(h.path) || same == len(s.path)) {
			if end := max(s.end, h.end); same == len(s.path) { // the same request: keep what is deeper
				*s = *h
				s.end = end
			}
			return i
		}
		if h.end < slots[oldest].end {
			oldest = i
		}
		if h.end > s.began {
			continue
		}
		if free < 0 || h.end < slots[free].end {
			free = i
		}
		if same > 0 && s.depth[same-1] > most && float64(s.depth[same-1]) > slotShare*float64(s.depth[len(s.depth)-1]) {
			best, most = i, s.depth[same-1]
		}
	}
	switch {
	case best >= 0:
		return best
	case len(slots) < n:
		return len(slots)
	case free >= 0:
		return free
	}
	return oldest
}

// unpin lets go of what a slot held.
func (r *replica) unpin(f *flight) {
	r.inFlight -= f.bytes()
	for _, e := range f.path {
		r.unhold(e, onePin)
	}
	f.path = nil
}
