package consensus

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/hearsay-llm/hearsay/state"
)

// entry is a command that has changed the facts, from those of one index to the next.
type entry struct {
	prev, index uint64
	command     []byte // encoded; not changed
	urgent      bool   // it takes something away
}

// Bounds of the entries that are kept for peers that are a little behind.
const (
	maxEntries    = 256
	maxEntryBytes = 64 << 10 // of one
)

// urgent reports whether routers must not go on for long without knowing a command: it
// takes something away. A restore may: it can drain, hold and leave out. Clients' keys are
// no facts: each router has them from its own file.
func urgent(k state.CommandKind) bool {
	switch k {
	case state.CommandDrain, state.CommandRemoveReplica, state.CommandHold, state.CommandRestore:
		return true
	}
	return false
}

// suffixMark is the first byte of an encoded suffix; whole facts begin with a brace.
const suffixMark = 's'

// wireSuffix is the commands that make the facts of one index out of those of another.
type wireSuffix struct {
	V       int         `json:"v"`
	After   uint64      `json:"after"`
	Index   uint64      `json:"index"`
	Sum     string      `json:"sum"` // of the encoded facts that come of it
	Entries []wireEntry `json:"entries"`
}

type wireEntry struct {
	Index   uint64          `json:"index"`
	Command json.RawMessage `json:"command"`
}

// sumOf names encoded facts. Equal facts have equal bytes.
func sumOf(encoded []byte) string {
	h := sha256.Sum256(encoded)
	return hex.EncodeToString(h[:8])
}

// encodeSuffix is the travelling form of entries that follow each other.
func encodeSuffix(list []entry, sum string) ([]byte, error) {
	w := wireSuffix{V: factsVersion, After: list[0].prev, Index: list[len(list)-1].index, Sum: sum}
	for _, e := range list {
		w.Entries = append(w.Entries, wireEntry{e.index, e.command})
	}
	b, err := json.Marshal(&w)
	return append([]byte{suffixMark}, b...), err
}

// errGap says that a suffix does not begin where the facts here end.
var errGap = errors.New("the suffix begins elsewhere")

// decodeSuffix reads encodeSuffix's bytes. It never panics.
func decodeSuffix(b []byte) (list []entry, sum string, err error) {
	if len(b) == 0 || b[0] != suffixMark || len(b) > 2*maxEntries*maxEntryBytes {
		return nil, "", errors.New("decode suffix: it is none")
	}
	var w wireSuffix
	if err := json.Unmarshal(b[1:], &w); err != nil {
		return nil, "", fmt.Errorf("decode suffix: %w", err)
	}
	if w.V < 1 || w.V > factsVersion {
		return nil, "", fmt.Errorf("decode suffix: version %d is not known here", w.V)
	}
	if len(w.Entries) == 0 || len(w.Entries) > maxEntries || w.Entries[len(w.Entries)-1].Index != w.Index {
		return nil, "", errors.New("decode suffix: its entries are not those it names")
	}
	at := w.After
	for _, e := range w.Entries {
		if e.Index <= at {
			return nil, "", errors.New("decode suffix: its entries are out of order")
		}
		list, at = append(list, entry{prev: at, index: e.Index, command: e.Command}), e.Index
	}
	return list, w.Sum, nil
}

// advance applies entries to facts, from where those are on. It returns the entries that
// it took, none if the facts are as new already.
func advance(f *state.Facts, list []entry, sum string) (*state.Facts, []entry, error) {
	if f.Index >= list[len(list)-1].index {
		return f, nil, nil
	}
	i := slices.IndexFunc(list, func(e entry) bool { return e.prev == f.Index })
	if i < 0 {
		return nil, nil, errGap
	}
	f = f.Clone()
	for _, e := range list[i:] {
		c, err := decodeCommand(e.command)
		if err != nil {
			return nil, nil, err
		}
		if ref := change(f, c, e.index); ref != nil {
			return nil, nil, ref
		}
		f.Index = e.index
	}
	b, err := EncodeFacts(f)
	if err == nil && sumOf(b) != sum { // of a release that knows more, or of another line
		err = errors.New("other facts come of the suffix here")
	}
	return f, list[i:], err
}

// NewsAfter is what brings facts of the index have up to date: a suffix of commands, or
// the facts as a whole where that is shorter or the commands are not known any more, and
// always where have is 0. It is for a peer's Fetch; no bytes: there is nothing newer. The
// bytes must not be changed.
func (n *Node) NewsAfter(have uint64) []byte {
	if have > 0 {
		if b := n.ledger.suffix(have); b != nil {
			return b
		}
	}
	b, _, _ := n.FactsAfter(have)
	return b
}

// suffix is the encoded commands after an index; nil: they are not known, or longer than
// the facts.
func (l *ledger) suffix(have uint64) []byte {
	whole, index, err := l.bytes()
	if err != nil {
		return nil
	}
	l.mu.Lock()
	list := l.entries
	l.mu.Unlock()
	i := slices.IndexFunc(list, func(e entry) bool { return e.prev == have })
	if i < 0 || list[len(list)-1].index != index {
		return nil
	}
	b, err := encodeSuffix(list[i:], sumOf(whole))
	if err != nil || len(b) >= len(whole) {
		return nil
	}
	return b
}

// keep adds entries that lead from the facts before to those there are; others are of no
// use from then on. The caller holds mu.
func (l *ledger) keep(before uint64, list []entry) {
	large := slices.ContainsFunc(list, func(e entry) bool { return len(e.command) > maxEntryBytes })
	if len(list) == 0 || list[0].prev != before || large {
		l.entries = nil
		return
	}
	l.entries = slices.Concat(l.entries, list) // readers have the one before
	if n := len(l.entries) - maxEntries; n > 0 {
		l.entries = l.entries[n:]
	}
}

// takeNews takes what NewsAfter gave.
func (n *Node) takeNews(b []byte, from state.RouterID) error {
	if b[0] != suffixMark {
		f, err := DecodeFacts(b)
		if err != nil {
			return err
		}
		if own := n.ledger.current().ClusterID; own != "" && own != f.ClusterID {
			n.log.Warn().Str("peer", string(from)).Str("name", n.name(from)).Msg("facts of another cluster refused")
			return nil
		}
		n.ledger.offer(f, nil)
		return nil
	}
	list, sum, err := decodeSuffix(b)
	if err != nil {
		return err
	}
	f, list, err := advance(n.ledger.current(), list, sum)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		n.ledger.offer(f, list)
	}
	return nil
}

// entryOf is a command of the log as an entry.
func entryOf(prev, index uint64, kind state.CommandKind, data []byte) entry {
	return entry{prev: prev, index: index, command: bytes.Clone(data), urgent: urgent(kind)}
}
