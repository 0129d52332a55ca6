package sketch

import (
	"math"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// Placement is one request of this router at one replica. Its methods are safe
// for concurrent use; each does its work once, and those that come too late or out
// of order do nothing. Exactly one of End and Withdraw must be called. A nil
// Placement does nothing.
type Placement struct {
	r *replica
	// Guarded by r.mu.
	f      *flight
	id     uint64
	leaf   uint64 // deepest mark kept
	live   int    // leading marks that were live at the placing
	solid  int    // of those, up to the deepest that is not an answer's
	marks  []placed
	answer []prefix.Mark // those of prompt and answer behind marks[:same]
	depths []int32       // of answer
	same   int
	told   bool // evidence was given
	unsure int  // leading marks that another router was using too, as came out since
}

// placed is one mark of the prompt as it stood at the placing.
type placed struct {
	hash     uint64
	tokens   int32   // depth by estimate
	atPlace  float32 // tokens used more recently at the placing; 0 held, negative: not used before
	atFirst  float32 // the same at the first token
	use      int64
	pending  bool // another placement was about to prefill it
	measured bool
}

// Place records a request sent to a replica: pending until First, holding its
// marks until End or Withdraw. tokens[i] is the estimated token depth of marks[i];
// both ascend and are copied. Counts for the very next Lookup.
func (x *Index) Place(id state.ReplicaID, marks []prefix.Mark, tokens []int32, now time.Time) *Placement {
	x.maybeSweep(now)
	n := min(len(marks), len(tokens), MaxLinks)
	if n == 0 || id == "" || len(id) > MaxIDBytes {
		return nil
	}
	t := x.ownTime(now)
	r := x.replica(id, math.MaxInt64, t)
	defer r.mu.Unlock()
	p := &Placement{r: r, id: x.nextID.Add(1), marks: make([]placed, n)}
	x.makeRoom(r, n)
	op := Op{Kind: OpPlace, Replica: id, Boot: x.clock.Boot(), Stamp: x.clock.Stamp(now), Placement: p.id}
	leaf := r.enter(p, &op, marks[:n], tokens[:n])
	if leaf == nil {
		r.settle()
		return nil
	}
	p.leaf, op.Mark = leaf.hash, leaf.hash
	f, ok := r.begin(flightKey{op.Boot, p.id}, leaf, t)
	if !ok {
		r.settle()
		return nil
	}
	p.f = f
	if r.own = append(r.own, p); len(r.own) > maxOwn {
		r.tidyOwn(t)
	}
	r.settle()
	x.news(r, op, true, t)
	return p
}

// enter makes the prompt's marks known, notes in p how they stood before, and in
// op those that others may not know. It returns the deepest mark that had room.
func (r *replica) enter(p *Placement, op *Op, marks []prefix.Mark, tokens []int32) (leaf *entry) {
	m := r.ages.meter()
	depth, from := int32(0), -1
	for i := range marks {
		hash, d := marks[i].Hash, max(depth, min(tokens[i], MaxLinkTokens))
		e := r.x.table.get(hash, r.slot)
		was := placed{hash: hash, tokens: d, atPlace: -1, atFirst: -1, use: never}
		alive := false
		if e != nil {
			s := e.state.Load()
			was.use, was.pending, was.measured = e.use.Load(), pendOf(s) > 0, e.scale != 0
			if alive = r.live(e); alive {
				p.live = i + 1
				if s&promptFlag != 0 {
					p.solid = i + 1
				}
			}
			switch {
			case pinsOf(s) > 0:
				was.atPlace = 0
			case was.use != never:
				was.atPlace = float32(m.distance(was.use))
			}
		} else if hash != 0 {
			e = r.make(hash)
		}
		if e == nil || e == leaf {
			p.marks = p.marks[:i]
			p.live, p.solid = min(p.live, i), min(p.solid, i)
			break
		}
		p.marks[i] = was
		l := Link{Hash: hash, Tokens: uint32(d - depth), Scale: e.scale}
		if news := r.link(e, leaf, &l); (news || !alive) && from < 0 {
			from = i
			if leaf != nil {
				op.Parent = leaf.hash
			}
			op.Links = make([]Link, 0, len(marks)-i)
		}
		if from >= 0 {
			op.Links = append(op.Links, l)
		}
		leaf, depth = e, d
	}
	return leaf
}

// First says that the first token came: the prompt is prefilled, its marks are
// resident and were used now.
func (p *Placement) First(now time.Time) {
	if p == nil {
		return
	}
	r := p.r
	x, t := r.x, r.x.ownTime(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.f.phase != phasePending {
		return
	}
	p.measureFirst()
	if p.f.pend == 0 && !slices.ContainsFunc(p.f.path, (*entry).answer) {
		p.f.phase = phaseFirst // all is held as resident already: no news
		return
	}
	r.first(p.f, t)
	r.settle()
	x.news(r, p.op(OpFirst, now), true, t)
}

// overlap notes for this router's placements which of their marks the flight, told
// by another router, was using before their engine looked: that these were found
// says nothing of how long the cache keeps what is not used.
func (r *replica) overlap(f *flight) {
	r.tidyOwn(f.began)
	for _, p := range r.own {
		if p.f.phase != phasePending && f.began > p.f.told {
			continue
		}
		n := 0
		for i := len(f.path) - 1; i >= 0 && n < len(p.marks) && f.path[i].hash == p.marks[n].hash; i-- {
			n++
		}
		p.unsure = max(p.unsure, n)
	}
}

// tidyOwn forgets placements that need no comparing any more, and the oldest that
// are too many.
func (r *replica) tidyOwn(now int64) {
	r.own = slices.DeleteFunc(r.own, func(p *Placement) bool {
		return p.told || p.f.phase == phaseWithdrawn || p.f.phase == phaseEnded && now-p.f.began > ownKept
	})
	if len(r.own) > maxOwn {
		r.own = slices.Delete(r.own, 0, maxOwn/4)
	}
}

const (
	maxOwn  = 64                      // own placements that late news of others is compared with
	ownKept = int64(30 * time.Second) // for how long, when no usage comes
)

// measureFirst notes the marks' distances at the first token. The placement's own
// marks from each mark on are left out, since they were not there before.
func (p *Placement) measureFirst() {
	m := p.r.ages.meter()
	var whole int64
	if n := len(p.marks); n > 0 {
		whole = int64(p.marks[n-1].tokens)
	}
	for i := range p.marks {
		k := &p.marks[i]
		if k.use == never || k.atPlace == 0 {
			k.atFirst = k.atPlace
			continue
		}
		own := whole
		if i > 0 {
			own -= int64(p.marks[i-1].tokens)
		}
		k.atFirst = max(k.atPlace, float32(m.distance(k.use)-own))
	}
}

func (p *Placement) op(k OpKind, now time.Time) Op {
	x := p.r.x
	return Op{
		Kind: k, Replica: p.r.id, Boot: x.clock.Boot(), Stamp: x.clock.Stamp(now), Mark: p.leaf,
		Placement: p.id, Age: time.Duration(max(0, x.ownTime(now)-p.f.began)),
	}
}

// Answer gives the marks of prompt and answer, as the next turn would send them.
// Call it before End; the slices are copied.
func (p *Placement) Answer(marks []prefix.Mark, tokens []int32) {
	if p == nil {
		return
	}
	n := min(len(marks), len(tokens), MaxLinks)
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	for p.same = 0; p.same < min(n, len(p.marks)) && marks[p.same].Hash == p.marks[p.same].hash; {
		p.same++
	}
	p.answer = append(p.answer[:0], marks[p.same:n]...)
	p.depths = append(p.depths[:0], tokens[p.same:n]...)
}

// End releases the placement, aborts after the first token included: its marks
// and the answer's were used until now. Without a First before, it is one.
func (p *Placement) End(now time.Time) {
	if p == nil {
		return
	}
	r := p.r
	x, t := r.x, r.x.ownTime(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.f.phase > phaseFirst {
		return
	}
	r.first(p.f, t)
	op := p.op(OpEnd, now)
	p.answerLinks(&op)
	x.makeRoom(r, len(op.Links))
	if len(op.Links) > 0 {
		if leaf, _ := r.chain(op.Parent, op.Links); leaf != nil {
			r.touch(leaf, t, p.f.began)
		}
	}
	r.end(p.f, t)
	r.settle()
	x.news(r, op, true, t)
}

// answerLinks puts into op the marks that only prompt and answer together have.
func (p *Placement) answerLinks(op *Op) {
	depth := int32(0)
	if same := p.same; same > 0 {
		op.Parent, depth = p.marks[same-1].hash, p.marks[same-1].tokens
	}
	if len(p.answer) > 0 {
		op.Links = make([]Link, 0, len(p.answer))
	}
	for i := range p.answer {
		d := max(depth, min(p.depths[i], MaxLinkTokens))
		if p.answer[i].Hash == 0 {
			break
		}
		op.Links = append(op.Links, Link{Hash: p.answer[i].Hash, Tokens: uint32(d - depth), Answer: true})
		op.Answer, depth = p.answer[i].Hash, d
	}
	p.answer, p.depths = nil, nil
}

// Withdraw says that the request ended without a first token: it vanishes.
func (p *Placement) Withdraw(now time.Time) {
	if p == nil {
		return
	}
	r := p.r
	x, t := r.x, r.x.ownTime(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.f.phase != phasePending {
		return
	}
	op := p.op(OpWithdraw, now)
	r.release(p.f, phaseWithdrawn, t)
	r.settle()
	x.news(r, op, true, t)
}
