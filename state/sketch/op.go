package sketch

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// OpKind says what an Op tells.
type OpKind uint8

// Kinds of ops. Every kind names Replica, Boot, Seq and Stamp; the other fields
// of Op say for which kinds they count.
const (
	// OpInsert: the chain Links below Parent was used at Stamp, its last mark being
	// Mark (snapshots).
	OpInsert OpKind = iota + 1
	// OpTouch: Mark and its ancestors were used at Stamp.
	OpTouch
	// OpPlace: a request whose deepest mark is Mark was sent; Links below Parent
	// are those of its marks the others may not know.
	OpPlace
	// OpFirst: the placement had its first token; its path is resident.
	OpFirst
	// OpEnd: the placement was released; Mark and its ancestors were used at Stamp.
	// Links below Parent are the answer's marks, and then Answer is the deepest.
	OpEnd
	// OpWithdraw: the placement ended without a first token.
	OpWithdraw
	// OpDead: everything the replica's cache held at Stamp or before is gone.
	OpDead
	// OpEvidence: an engine reported cached tokens; see Sample. Scale corrects the
	// token counts of the Count marks from Mark upward.
	OpEvidence
	// OpCapacity: the capacity learned so far (snapshots); see Learned.
	OpCapacity

	opKinds
)

var opNames = [opKinds]string{"none", "insert", "touch", "place", "first", "end", "withdraw", "dead_before", "evidence", "capacity"}

// String is the kind's name in metrics and logs.
func (k OpKind) String() string {
	if k >= opKinds {
		return "unknown"
	}
	return opNames[k]
}

// Op is one piece of news about what a replica holds, as it travels. It is a
// value; its Links are shared and must not be changed.
//
// (Boot, Seq) names the op: a router numbers its own ops from 1 without gaps in
// the order of its Journal. Seq 0 stands in snapshots only, whose ops merge by
// their content alone. Stamp is relayed unchanged (see Index.Restamp for the one
// exception).
type Op struct {
	Kind    OpKind
	Replica state.ReplicaID
	Boot    state.BootID // the router that made the op, and its placement's owner
	Seq     uint64
	Stamp   state.Stamp

	Mark   uint64 // insert, touch, place, end, evidence: the prompt's deepest mark
	Answer uint64 // end: deepest mark of prompt and answer, 0 none
	Parent uint64 // insert, place, end: mark above the first link, 0 = the root
	Links  []Link // insert, place, end

	Placement uint64        // place, first, end, withdraw: id within Boot
	Age       time.Duration // Stamp less the instant the request was placed: insert, touch, first, end, withdraw, evidence

	Scale  uint16  // evidence: measured over estimated tokens, in 1/ScaleOne; 0 none
	Count  uint32  // evidence: marks Scale applies to, from Mark upward
	Sample Sample  // evidence
	Learn  Learned // capacity
}

// Link is one mark of a chain; its parent is the link before it, or Op.Parent.
type Link struct {
	Hash   uint64
	Tokens uint32 // estimated tokens between the parent and this mark
	Scale  uint16 // measured correction of Tokens in 1/ScaleOne; 0 = not measured
	Answer bool   // no prompt with this mark was prefilled: an answer made it
}

// ScaleOne is the Scale that changes nothing.
const ScaleOne = 4096

// Verdict is what one report of cached tokens says about a replica's capacity.
type Verdict uint8

// Verdicts of a Sample.
const (
	Neutral Verdict = iota // nothing to learn
	Alive                  // a mark last used Distance tokens ago was still there
	Missing                // a mark last used Distance tokens ago was gone
	Lost                   // a large prefix used recently was wholly gone
	Kept                   // at least half of the prediction was there, at Distance

	verdicts
)

// Sample is one report of cached tokens, reduced to what routers learn from it.
type Sample struct {
	Verdict  Verdict
	Distance float32 // tokens used more recently than the mark in question
	Trust    float32 // share of predicted answer tokens that was there, 0..1; negative: none predicted
	Ratio    float32 // reported over predicted cached tokens; negative: nothing predicted
}

// Learned is what a router has learned of a replica's capacity.
type Learned struct {
	Given  float64 // what the engine or the configuration says, tokens; 0 unknown
	Source CapacitySource
	Tokens float64 // C_eff
	Trust  float64 // of answer marks, 0..1
	Rho    float64 // reported over predicted cached tokens, smoothed
	Count  uint64  // samples behind it; more wins
}

// CapacitySource says where a capacity figure comes from; a higher one wins.
type CapacitySource uint8

// Sources of capacity figures.
const (
	CapacityUnknown CapacitySource = iota
	CapacityConfigured
	CapacityEngine

	capacitySources
)

// Limits of a valid Op.
const (
	MaxLinks      = 8192    // links of one op, marks of one path
	MaxLinkTokens = 1 << 24 // tokens of one link
	MaxIDBytes    = 512     // replica id
	maxCapacity   = 1 << 34 // tokens
)

// Valid reports whether the op could have been made by a router of this version.
// Index.Apply refuses others.
func (o *Op) Valid() bool {
	if o.Kind == 0 || o.Kind >= opKinds || o.Boot == 0 || len(o.Replica) == 0 || len(o.Replica) > MaxIDBytes || len(o.Links) > MaxLinks {
		return false
	}
	if o.Age < 0 || o.Age > maxSpan || o.Stamp.At > maxSpan || o.Stamp.At < -maxSpan {
		return false
	}
	for i := range o.Links {
		if l := &o.Links[i]; l.Hash == 0 || l.Tokens > MaxLinkTokens || !validScale(l.Scale) {
			return false
		}
	}
	switch o.Kind {
	case OpInsert, OpTouch, OpPlace:
		return o.Mark != 0
	case OpEvidence:
		return o.Count <= MaxLinks && validScale(o.Scale) && o.Sample.valid()
	case OpCapacity:
		return o.Learn.valid()
	}
	return true
}

// maxSpan bounds stamps and ages, so that sums of a few never overflow.
const maxSpan = 100 * 365 * 24 * time.Hour

const (
	minScale = ScaleOne / 4
	maxScale = ScaleOne * 4
)

func validScale(s uint16) bool { return s == 0 || s >= minScale && s <= maxScale }

func (s *Sample) valid() bool {
	return s.Verdict < verdicts && s.Distance >= 0 && s.Distance <= maxCapacity &&
		s.Trust <= 1 && s.Trust >= -1 && s.Ratio >= -1 && s.Ratio <= maxRatio
}

func (l *Learned) valid() bool {
	return l.Source < capacitySources && l.Given >= 0 && l.Given <= maxCapacity && l.Tokens >= minCapacity &&
		l.Tokens <= maxCapacity && l.Trust >= 0 && l.Trust <= 1 && l.Rho >= 0 && l.Rho <= maxRatio
}
