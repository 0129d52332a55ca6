package autoscale

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	// maxRefused bounds the refusals that a leader remembers; the oldest goes first.
	maxRefused = 512
	// refusedGap is the pause after which a refusal is a new one, not a repeat.
	refusedGap = 10 * time.Minute
)

// Refused is a plan that was not carried out, and how often in a row.
type Refused struct {
	Key         state.TargetKey
	First, Last time.Time
	Count       int
	From, To    int // To is From where the limits forbid every change
	Reason      string
	Text        string // what the plan was made for, or hindered it
	After       string // id of the newest decision about the target then; empty: none
}

// same reports that a refusal repeats another one: what is wanted may wander meanwhile.
func (r *Refused) same(o *Refused) bool {
	return r.Key == o.Key && r.Reason == o.Reason && r.From == o.From && r.After == o.After && (r.To > r.From) == (o.To > o.From)
}

// refusedLog is a bounded record of them, the oldest first. Not safe for concurrent use.
type refusedLog struct{ list []Refused }

// add records one, together with the newest about its target if it repeats that.
func (s *refusedLog) add(r Refused) {
	r.First, r.Count = r.Last, 1
	for i := len(s.list) - 1; i >= 0; i-- {
		x := &s.list[i]
		if x.Key != r.Key {
			continue
		}
		if !x.same(&r) || r.Last.Sub(x.Last) > refusedGap {
			break
		}
		x.Last, x.To, x.Text = r.Last, r.To, r.Text
		x.Count++
		return
	}
	if len(s.list) >= maxRefused {
		s.list = append(s.list[:0], s.list[1:]...)
	}
	s.list = append(s.list, r)
}

// Refused lists what was refused in this term, the oldest first. Empty unless this
// router leads. It may be called from any goroutine.
func (l *Loop) Refused() []Refused {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Refused(nil), l.refused.list...)
}

// noteRefused records why a plan was not carried out.
func (l *Loop) noteRefused(o *Observation, p *Plan, f *state.Facts, reason, text string, now time.Time) {
	r := Refused{Key: o.Key, Last: now, From: p.From, To: p.To, Reason: reason, Text: text}
	if d := f.LastDecision(o.Key); d != nil {
		r.After = d.ID
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused.add(r)
}
