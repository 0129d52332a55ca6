package autoscale

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// refuse says why a plan is not carried out, or "".
func (l *Loop) refuse(t *turn, p *Plan) string {
	if p.Reason == "" {
		return p.Refusal
	}
	if r := Guard(t.seen, p, &l.lim); r != "" {
		return r
	}
	switch {
	case errors.Is(t.err, state.ErrNotOurs):
		return refusedNotOurs
	case t.err != nil:
		return refusedActuator // what can't be carried out is not decided
	case l.cfg.Unsettled != nil && l.cfg.Unsettled(t.key.Pool):
		return refusedConfig
	}
	return ""
}

// decide guards a plan and commits it; it says why not.
func (l *Loop) decide(ctx context.Context, t *turn, p Plan, now time.Time) (refusal string, err error) {
	o := t.seen
	if refusal := l.refuse(t, &p); refusal != "" {
		text := p.Text
		if t.err != nil && (refusal == refusedActuator || refusal == refusedNotOurs) {
			text = t.err.Error()
		}
		l.noteRefused(t, &p, l.cfg.Cluster.View().Facts, refusal, text, now)
		l.log.Debug().Str("pool", o.Key.Pool).Str("role", string(o.Key.Role)).Str("reason", refusal).
			Int("from", p.From).Int("to", p.To).Int("needed", p.Needed).Msg("scale decision refused")
		return refusal, nil
	}
	if p.Reason == "" {
		l.noteTrouble(t, &p, now)
		return "", nil
	}
	v := l.cfg.Cluster.View()
	if last := v.Facts.LastDecision(o.Key); last != nil && last.Open() {
		outcome, why := turned(last, o, &p)
		if err := l.settle(ctx, last, outcome, why, now); err != nil {
			return l.uncommitted(v, t, &p, err, now)
		}
	}
	l.decision++
	d := &state.Decision{
		ID: fmt.Sprintf("d%d-%d", l.epoch, l.decision), Epoch: l.epoch, Pool: o.Key.Pool, Role: o.Key.Role,
		From: p.From, To: p.To, Reason: p.Text, Evidence: evidence(o, &p, &l.lim), By: string(l.cfg.Self), At: now,
	}
	if p.To < p.From && !t.actual.DryRun {
		d.Victims = l.victims(v, t.actual, nil, nil, p.From-p.To)
	}
	if err := l.cfg.Committer.Commit(ctx, state.Command{ID: d.ID, Kind: state.CommandSetTarget, Epoch: l.epoch, Decision: d}); err != nil {
		return l.uncommitted(v, t, &p, err, now)
	}
	direction := "up"
	if p.To < p.From {
		direction = "down"
	}
	l.m.decisions.WithLabelValues(o.Key.Pool, direction, p.Reason).Inc()
	l.log.Info().Str("pool", d.Pool).Str("role", string(d.Role)).Str("decision", d.ID).Int("from", d.From).Int("to", d.To).
		Str("reason", d.Reason).Msg("scale decision")
	return "", nil
}

// turned is how an open decision ends that another one follows: a step up of which as many
// came as were needed is done.
func turned(last *state.Decision, o *Observation, p *Plan) (state.Outcome, string) {
	if p.Reason == reasonEnough && float64(o.Serving) >= last.Evidence[evidenceNeeded] {
		return state.OutcomeDone, fmt.Sprintf("%s serve, which is enough", replicas(o.Serving))
	}
	if last.To > last.From && p.To > p.From {
		return state.OutcomeSuperseded, "the load grew"
	}
	return state.OutcomeSuperseded, "the load turned"
}

func (l *Loop) uncommitted(v *state.View, t *turn, p *Plan, err error, now time.Time) (refusal string, _ error) {
	l.noteRefused(t, p, v.Facts, refusedCommit, err.Error(), now)
	return refusedCommit, err
}

func (l *Loop) settle(ctx context.Context, d *state.Decision, o state.Outcome, detail string, now time.Time) error {
	err := l.cfg.Committer.Commit(ctx, state.Command{
		Kind: state.CommandSettle, Epoch: l.epoch, Settles: d.ID, Outcome: o, Detail: detail, At: now,
	})
	if err == nil {
		l.log.Info().Str("pool", d.Pool).Str("decision", d.ID).Str("outcome", string(o)).Str("reason", detail).Msg("scale decision settled")
	}
	return err
}
