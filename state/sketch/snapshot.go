package sketch

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Snapshot yields everything known as ops that an empty index can Apply, until
// yield returns false. Stamps are of this router's own clock, whatever router they
// came from (see Restamp), so that a receiver needs to have heard from this router
// only; Seq is 0. Changes made meanwhile may or may not be in it: a reader takes
// Journal.Head before and reads on from there. No lock is held during yield.
func (x *Index) Snapshot(yield func(Op) bool) {
	for _, r := range *x.bySlot.Load() {
		if r == nil {
			continue
		}
		for _, op := range r.snapshot() {
			if !yield(op) {
				return
			}
		}
	}
}

func (r *replica) snapshot() (ops []Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	boot := r.x.clock.Boot()
	op := func(k OpKind, t int64) Op {
		return Op{Kind: k, Replica: r.id, Boot: boot, Stamp: state.Stamp{Boot: boot, At: time.Duration(t)}}
	}
	now := r.lastNews.Load()
	if r.dead != never {
		ops = append(ops, op(OpDead, r.dead))
	}
	if r.learn.now.count > 0 {
		o := op(OpCapacity, now)
		o.Learn = r.learn.export()
		ops = append(ops, o)
	}
	for _, c := range r.chains() {
		o := op(OpInsert, c.use)
		o.Age = time.Duration(max(0, c.use-c.began))
		o.Mark, o.Parent, o.Links = c.leaf, c.parent, c.links
		ops = append(ops, o)
	}
	for k, f := range r.flights {
		if len(f.path) == 0 || f.lost != never {
			continue // what a dead router's have used is in chains
		}
		o := op(OpPlace, f.began)
		o.Boot, o.Placement, o.Mark = k.boot, k.id, f.path[0].hash
		// Marks that were used are in chains already.
		unused := 0
		for unused < len(f.path) && f.path[unused].use.Load() == never {
			unused++
		}
		o.Parent, o.Links = r.links(f.path[:unused])
		ops = append(ops, o)
		if f.phase == phaseFirst {
			o := op(OpFirst, f.path[0].use.Load())
			o.Boot, o.Placement = k.boot, k.id
			o.Age = max(0, time.Duration(f.path[0].use.Load()-f.began))
			ops = append(ops, o)
		}
	}
	return ops
}

// chain is a run of marks that were last used together.
type chain struct {
	use    int64 // of the leaf; each ancestor's is a nanosecond later
	began  int64
	leaf   uint64
	parent uint64
	links  []Link
}

// chains lists all used marks as runs, each mark at least once. r.mu is held.
func (r *replica) chains() (out []chain) {
	together := func(e, up *entry) bool {
		return up != nil && up.use.Load() == e.use.Load()+1 && up.began == e.began
	}
	// Marks that some child's run goes through, or that are listed, are flagged.
	r.eachUsed(func(e *entry) {
		if up := r.up(e); together(e, up) {
			up.state.Store(up.state.Load() | listedFlag)
		}
	})
	var path []*entry
	r.eachUsed(func(e *entry) {
		if e.state.Load()&listedFlag != 0 {
			return
		}
		e.state.Store(e.state.Load() | listedFlag)
		path = append(path[:0], e)
		for up := r.up(e); together(path[len(path)-1], up) && len(path) < MaxLinks; up = r.up(up) {
			path = append(path, up)
		}
		c := chain{use: e.use.Load(), began: e.began, leaf: e.hash}
		c.parent, c.links = r.links(path)
		out = append(out, c)
	})
	r.eachUsed(func(e *entry) { e.state.Store(e.state.Load() &^ listedFlag) })
	return out
}

// links describes a path given from its deepest entry up. Entries that are only
// named, not known, have no links; the run begins below them.
func (r *replica) links(path []*entry) (parent uint64, links []Link) {
	n := 0
	for n < len(path) && path[n].known {
		n++
	}
	if n == 0 {
		return 0, nil
	}
	if up := r.up(path[n-1]); up != nil {
		parent = up.hash
	}
	links = make([]Link, 0, n)
	for i := n - 1; i >= 0; i-- {
		e := path[i]
		links = append(links, Link{Hash: e.hash, Tokens: e.est, Scale: e.scale, Answer: e.answer()})
	}
	return parent, links
}
