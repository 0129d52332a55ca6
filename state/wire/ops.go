package wire

import (
	"encoding/binary"
	"math"
	"math/bits"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// OpBatch collects sketch ops for one message. Sequence numbers and stamps are
// written as differences to the op before, replica and boot ids once. The zero
// value is empty and ready.
type OpBatch struct {
	e     encoder
	n     int
	prev  opBase
	table *Table // of a stream; see On
	head  []byte
}

// opBase is what differences are taken to.
type opBase struct {
	seq   uint64
	stamp time.Duration
}

// Flags of an op: which of its fields follow from others.
const (
	opOwnStamp   = 1 << iota // Stamp.Boot is Boot
	opMark                   // Mark is not zero
	opMarkLast               // Mark is the last link
	opAnswer                 // Answer is not zero
	opAnswerLast             // Answer is the last link
	opParent                 // Parent is not zero
)

// Len is the number of ops added.
func (b *OpBatch) Len() int { return b.n }

// Size is the number of bytes the ops take so far.
func (b *OpBatch) Size() int { return len(b.e.b) }

// Reset empties the batch and keeps its memory.
func (b *OpBatch) Reset() {
	b.e.b, b.e.told = b.e.b[:0], nil
	b.e.own.clear()
	b.n, b.prev, b.table = 0, opBase{}, nil
}

// Add appends one op. Fields that mean nothing for its kind do not travel.
func (b *OpBatch) Add(op *sketch.Op) {
	b.n++
	b.e.item(func() { b.add(op) })
	b.prev = opBase{op.Seq, op.Stamp.At}
}

func (b *OpBatch) add(op *sketch.Op) {
	e := &b.e
	flags := opFlags(op)
	e.byte(byte(op.Kind))
	e.byte(flags)
	e.str(string(op.Replica))
	e.boot(op.Boot)
	e.int(int64(op.Seq - b.prev.seq))
	if flags&opOwnStamp == 0 {
		e.boot(op.Stamp.Boot)
	}
	e.int(int64(op.Stamp.At - b.prev.stamp))

	k := op.Kind
	if hasLinks(k) {
		e.uint(uint64(len(op.Links)))
		for i := range op.Links {
			l := &op.Links[i]
			e.fixed(l.Hash)
			v := uint64(l.Tokens) << 2
			if l.Answer {
				v |= 1
			}
			if l.Scale != 0 {
				v |= 2
			}
			e.uint(v)
			if l.Scale != 0 {
				e.uint(uint64(l.Scale))
			}
		}
	}
	if flags&opMark != 0 && flags&opMarkLast == 0 {
		e.fixed(op.Mark)
	}
	if flags&opAnswer != 0 && flags&opAnswerLast == 0 {
		e.fixed(op.Answer)
	}
	if flags&opParent != 0 {
		e.fixed(op.Parent)
	}
	if hasPlacement(k) {
		e.uint(op.Placement)
	}
	if hasAge(k) {
		e.duration(op.Age)
	}
	switch k {
	case sketch.OpEvidence:
		e.uint(uint64(op.Scale))
		e.uint(uint64(op.Count))
		e.byte(byte(op.Sample.Verdict))
		e.float32(op.Sample.Distance)
		e.float32(op.Sample.Trust)
		e.float32(op.Sample.Ratio)
	case sketch.OpCapacity:
		e.float(op.Learn.Given)
		e.byte(byte(op.Learn.Source))
		e.float(op.Learn.Tokens)
		e.float(op.Learn.Trust)
		e.float(op.Learn.Rho)
		e.uint(op.Learn.Count)
	}
}

func opFlags(op *sketch.Op) (flags byte) {
	set := func(ok bool, f byte) {
		if ok {
			flags |= f
		}
	}
	var last uint64
	if hasLinks(op.Kind) && len(op.Links) > 0 {
		last = op.Links[len(op.Links)-1].Hash
	}
	set(op.Stamp.Boot == op.Boot, opOwnStamp)
	if hasMark(op.Kind) {
		set(op.Mark != 0, opMark)
		set(op.Mark != 0 && op.Mark == last, opMarkLast)
	}
	if op.Kind == sketch.OpEnd {
		set(op.Answer != 0, opAnswer)
		set(op.Answer != 0 && op.Answer == last, opAnswerLast)
	}
	set(hasLinks(op.Kind) && op.Parent != 0, opParent)
	return flags
}

func hasLinks(k sketch.OpKind) bool {
	return k == sketch.OpInsert || k == sketch.OpPlace || k == sketch.OpEnd
}

func hasMark(k sketch.OpKind) bool {
	return hasLinks(k) || k == sketch.OpTouch || k == sketch.OpEvidence
}

func hasPlacement(k sketch.OpKind) bool {
	return k == sketch.OpPlace || k == sketch.OpFirst || k == sketch.OpEnd || k == sketch.OpWithdraw
}

func hasAge(k sketch.OpKind) bool {
	switch k {
	case sketch.OpInsert, sketch.OpTouch, sketch.OpFirst, sketch.OpEnd, sketch.OpWithdraw, sketch.OpEvidence:
		return true
	}
	return false
}

func (e *encoder) float32(v float32) { e.uint(uint64(bits.ReverseBytes32(math.Float32bits(v)))) }

func (r *reader) float32() float32 {
	u := r.uint()
	v := math.Float32frombits(bits.ReverseBytes32(uint32(u)))
	if u > math.MaxUint32 || v != v || math.IsInf(float64(v), 0) {
		r.fail("not a finite number")
		return 0
	}
	return v
}

// Append appends the batch as the message that takes a reader of the journal from
// position from to next.
func (b *OpBatch) Append(dst []byte, from, next uint64) []byte {
	dst = binary.AppendUvarint(dst, from)
	dst = binary.AppendUvarint(dst, next)
	dst = binary.AppendUvarint(dst, uint64(b.n))
	return append(dst, b.e.b...)
}

// Ops are sketch ops as they came out of a peer's journal between two positions,
// less those that the receiver gets otherwise. In a snapshot's chunks the
// positions are zero.
type Ops struct {
	From, Next uint64
	Ops        []sketch.Op
	Unknown    int // ops of kinds this release does not know, skipped
}

// minLink is the least number of bytes of one link, minOp of one op.
const (
	minLink = 9
	minOp   = 6
)

// Ops reads what OpBatch wrote. The ops are checked by their index, not here.
func (d *Decoder) Ops(b []byte) (m Ops, err error) {
	r := reader{dec: d, b: b}
	m.From, m.Next = r.uint(), r.uint()
	var prev opBase
	r.ops(&m, &prev)
	if r.err != nil {
		return Ops{}, r.err
	}
	return m, nil
}

// ops reads the list of ops, each written as the difference to the one before.
func (r *reader) ops(m *Ops, prev *opBase) {
	n := r.list()
	m.Ops = make([]sketch.Op, 0, min(n, 1+len(r.b)/minOp))
	for range n {
		var op sketch.Op
		known := false
		r.item(func() { known = r.op(&op, prev) })
		switch {
		case r.err != nil:
			return
		case known:
			m.Ops = append(m.Ops, op)
		default:
			m.Unknown++
		}
	}
}

// op reads one op. Of an unknown kind it reads what all kinds begin with, so that
// the tables and differences stay right.
func (r *reader) op(op *sketch.Op, prev *opBase) (known bool) {
	k := sketch.OpKind(r.byte())
	flags := r.byte()
	op.Kind = k
	op.Replica = state.ReplicaID(r.str())
	op.Boot = r.boot()
	op.Seq = prev.seq + uint64(r.int())
	op.Stamp.Boot = op.Boot
	if flags&opOwnStamp == 0 {
		op.Stamp.Boot = r.boot()
	}
	op.Stamp.At = prev.stamp + r.duration()
	*prev = opBase{op.Seq, op.Stamp.At}
	if k < sketch.OpInsert || k > sketch.OpCapacity {
		return false
	}
	var last uint64
	if hasLinks(k) {
		n := r.list()
		if n > len(r.b)/minLink || n > sketch.MaxLinks {
			r.fail("number of links")
			return false
		}
		if n > 0 {
			op.Links = make([]sketch.Link, n)
		}
		for i := range op.Links {
			op.Links[i] = r.link()
		}
		if n > 0 {
			last = op.Links[n-1].Hash
		}
	}
	pick := func(has, isLast byte) uint64 {
		switch {
		case flags&has == 0:
			return 0
		case flags&isLast != 0:
			return last
		default:
			return r.fixed()
		}
	}
	if hasMark(k) {
		op.Mark = pick(opMark, opMarkLast)
	}
	if k == sketch.OpEnd {
		op.Answer = pick(opAnswer, opAnswerLast)
	}
	if hasLinks(k) && flags&opParent != 0 {
		op.Parent = r.fixed()
	}
	if hasPlacement(k) {
		op.Placement = r.uint()
	}
	if hasAge(k) {
		op.Age = r.duration()
	}
	switch k {
	case sketch.OpEvidence:
		op.Scale, op.Count = uint16(r.limit(math.MaxUint16)), uint32(r.limit(math.MaxUint32))
		op.Sample.Verdict = sketch.Verdict(r.byte())
		op.Sample.Distance, op.Sample.Trust, op.Sample.Ratio = r.float32(), r.float32(), r.float32()
	case sketch.OpCapacity:
		op.Learn.Given = r.float()
		op.Learn.Source = sketch.CapacitySource(r.byte())
		op.Learn.Tokens, op.Learn.Trust, op.Learn.Rho = r.float(), r.float(), r.float()
		op.Learn.Count = r.uint()
	}
	return true
}

func (r *reader) link() (l sketch.Link) {
	l.Hash = r.fixed()
	v := r.limit(math.MaxUint32<<2 | 3)
	l.Tokens, l.Answer = uint32(v>>2), v&1 != 0
	if v&2 != 0 {
		l.Scale = uint16(r.limit(math.MaxUint16))
	}
	return l
}

// limit is a number of at most most.
func (r *reader) limit(most uint64) uint64 {
	v := r.uint()
	if v > most {
		r.fail("number out of range")
		return 0
	}
	return v
}
