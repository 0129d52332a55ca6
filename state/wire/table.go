package wire

import (
	"errors"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// names are strings and boot ids that were written out, to be referred to by their
// number. The maps exist only where many are looked up.
type names struct {
	strings []string
	index   map[string]int
	boots   []state.BootID
	bootAt  map[state.BootID]int
}

const manyNames = 16

func (n *names) find(s string) (int, bool) {
	if n.index == nil && len(n.strings) > manyNames {
		n.index = make(map[string]int, 2*len(n.strings))
		for i, t := range n.strings {
			n.index[t] = i
		}
	}
	if n.index != nil {
		i, ok := n.index[s]
		return i, ok
	}
	for i, t := range n.strings {
		if t == s {
			return i, true
		}
	}
	return 0, false
}

func (n *names) add(s string) {
	n.strings = append(n.strings, s)
	if n.index != nil {
		n.index[s] = len(n.strings) - 1
	}
}

func (n *names) findBoot(b state.BootID) (int, bool) {
	if n.bootAt == nil && len(n.boots) > manyNames {
		n.bootAt = make(map[state.BootID]int, 2*len(n.boots))
		for i, t := range n.boots {
			n.bootAt[t] = i
		}
	}
	if n.bootAt != nil {
		i, ok := n.bootAt[b]
		return i, ok
	}
	for i, t := range n.boots {
		if t == b {
			return i, true
		}
	}
	return 0, false
}

func (n *names) addBoot(b state.BootID) {
	n.boots = append(n.boots, b)
	if n.bootAt != nil {
		n.bootAt[b] = len(n.boots) - 1
	}
}

func (n *names) clear() {
	n.strings, n.boots = n.strings[:0], n.boots[:0]
	n.index, n.bootAt = nil, nil
}

// Table is what was told over one direction of a stream: names that are then
// referred to, and what differences are taken to. Sender and receiver each have
// one, and the frames that use it must arrive in order and whole. Every such frame
// is numbered, so that a receiver that is out of step knows; the sender then starts
// over. Not for concurrent use; the zero
// value is ready.
type Table struct {
	names
	gen   byte // of starting over
	at    byte // number of the next message; 0: the first, after 255 comes 1
	off   bool // the receiver's: out of step until the sender starts over
	begun bool // the receiver's: the sender started once
	ops   opBase
	loads map[state.BootID]loadBase
}

// loadBase is what an origin's load message is written as the difference to.
type loadBase struct {
	seq   uint64
	facts uint64
	sent  time.Duration
}

// ErrOutOfStep says that a frame refers to what was not received: the sender has to
// start over.
var ErrOutOfStep = errors.New("stream table out of step")

// maxTable bounds the names of a table; past it the sender starts over.
const maxTable = 1 << 14

// Begun reports whether the first message of a stream has come. What came before it
// was meant for the stream before.
func (t *Table) Begun() bool { return t.begun }

// Reset makes the sender start over: nothing is told yet.
func (t *Table) Reset() {
	t.clear()
	t.gen++
	t.at, t.off, t.ops = 0, false, opBase{}
	clear(t.loads)
}

func (t *Table) base(b state.BootID) loadBase { return t.loads[b] }

func (t *Table) setBase(b state.BootID, x loadBase) {
	if t.loads == nil {
		t.loads = map[state.BootID]loadBase{}
	}
	t.loads[b] = x
}

// begin writes the message's number.
func (t *Table) begin(dst []byte) []byte {
	if len(t.strings) > maxTable || len(t.boots) > maxTable {
		t.Reset()
	}
	return append(dst, t.gen, t.at)
}

// next says that the message begun is whole.
func (t *Table) next() { t.at = max(1, t.at+1) }

// follow reads what begin wrote.
func (r *reader) follow(t *Table) {
	gen, at := r.byte(), r.byte()
	switch {
	case r.err != nil:
	case at == 0:
		t.Reset()
		t.gen, t.begun = gen, true
	case t.off || gen != t.gen || at != t.at:
		r.err = ErrOutOfStep
	case len(t.strings) > 2*maxTable || len(t.boots) > 2*maxTable:
		r.fail("table too large")
	}
	r.told = &t.names
}

// settle leaves the receiver's table in step only if the message was whole.
func (r *reader) settle(t *Table) {
	t.off = t.off || r.err != nil
	t.next()
}
