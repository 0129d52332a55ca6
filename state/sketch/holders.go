package sketch

import (
	mathbits "math/bits"
	"unsafe"

	"github.com/hearsay-llm/hearsay/state"
)

// holders are the holders of a mark that has several. They are never changed.
type holders struct {
	hash uint64   // of the mark
	from uint32   // no holder's slot is below 64*from
	word uint64   // bit set of the slots from 64*from on
	rest []uint64 // and on
	refs []*entry // ascending by slot
}

const holdersBytes = int64(unsafe.Sizeof(holders{})) + 8 // as the allocator hands them out

func newHolders(e *entry) *holders {
	return &holders{hash: e.hash, from: uint32(e.slot / 64), word: filterBit(e.slot), refs: []*entry{e}}
}

func (h *holders) bytes() int64 {
	return holdersBytes + int64(len(h.rest)+len(h.refs))*8
}

// bits is the word of slots from 64*i on.
func (h *holders) bits(i int) uint64 {
	switch i -= int(h.from); {
	case i == 0:
		return h.word
	case i > 0 && i <= len(h.rest):
		return h.rest[i-1]
	}
	return 0
}

// end is the number of words that a bit set from slot 0 would have.
func (h *holders) end() int { return int(h.from) + 1 + len(h.rest) }

func (h *holders) filter() uint64 {
	f := h.word
	for _, w := range h.rest {
		f |= w
	}
	return f
}

// rank is the number of holders before a slot.
func (h *holders) rank(slot state.Slot) (n int) {
	w := int(slot / 64)
	for i := int(h.from); i < min(w, h.end()); i++ {
		n += mathbits.OnesCount64(h.bits(i))
	}
	return n + mathbits.OnesCount64(h.bits(w)&(filterBit(slot)-1))
}

// at is the entry of a slot, or nil.
func (h *holders) at(slot state.Slot) *entry {
	if h.bits(int(slot/64))&filterBit(slot) == 0 {
		return nil
	}
	return h.refs[h.rank(slot)]
}

// other is the first holder that is not e.
func (h *holders) other(e *entry) *entry {
	if h.refs[0] == e {
		return h.refs[1]
	}
	return h.refs[0]
}

// with is h and a new holder.
func (h *holders) with(e *entry) *holders {
	w, i := int(e.slot/64), h.rank(e.slot)
	n := h.words(min(int(h.from), w), max(h.end(), w+1))
	*n.set(w) |= filterBit(e.slot)
	n.refs = make([]*entry, len(h.refs)+1)
	copy(n.refs, h.refs[:i])
	n.refs[i] = e
	copy(n.refs[i+1:], h.refs[i:])
	return n
}

// without is h without the holder of a slot.
func (h *holders) without(slot state.Slot) *holders {
	i := h.rank(slot)
	n := h.words(int(h.from), h.end())
	*n.set(int(slot / 64)) &^= filterBit(slot)
	n.refs = make([]*entry, len(h.refs)-1)
	copy(n.refs, h.refs[:i])
	copy(n.refs[i:], h.refs[i+1:])
	return n
}

// words copies the bit set into one of the words from, up to end, which holds it.
func (h *holders) words(from, end int) *holders {
	n := &holders{hash: h.hash, from: uint32(from)}
	if end > from+1 {
		n.rest = make([]uint64, end-from-1)
	}
	for i := int(h.from); i < h.end(); i++ {
		*n.set(i) = h.bits(i)
	}
	return n
}

// set is the word of slots from 64*i on, while h is made.
func (h *holders) set(i int) *uint64 {
	if i == int(h.from) {
		return &h.word
	}
	return &h.rest[i-int(h.from)-1]
}
