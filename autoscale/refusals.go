package autoscale

import (
	"errors"
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

// noteRefused counts and records why a plan was not carried out. An empty pool that is to
// wake is planned for each second: what hinders that counts when it begins, and then at
// each plan that is due, as everything does.
func (l *Loop) noteRefused(t *turn, p *Plan, f *state.Facts, reason, text string, now time.Time) {
	r := Refused{Key: t.key, Last: now, From: p.From, To: p.To, Reason: reason, Text: text}
	if d := f.LastDecision(t.key); d != nil {
		r.After = d.ID
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.early && l.reports[t.key].Refusal == reason {
		return
	}
	l.m.refusals.WithLabelValues(reason).Inc()
	l.refused.add(r)
}

// noteTrouble counts and records, as a refusal that changes nothing, that the actuator
// fails while nothing is asked of it: what comes next would not be carried out. While a
// decision is open, that one says so.
func (l *Loop) noteTrouble(t *turn, p *Plan, now time.Time) {
	trouble, reason := l.memory[t.key].trouble, refusedActuator
	if trouble == "" || t.seen.Open || t.early {
		return
	}
	if errors.Is(t.err, state.ErrNotOurs) {
		reason = refusedNotOurs
	}
	l.noteRefused(t, p, l.cfg.Cluster.View().Facts, reason, trouble, now)
}
