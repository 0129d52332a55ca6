package autoscale

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// gone lists what the facts still say of the actuator's replicas that are no more.
// Those of another host's actuator are not ours to miss.
func (r *round) gone() (ids []state.ReplicaID) {
	if r.act.Discovered {
		return r.drainsOver()
	}
	if r.act.Prefix == "" {
		return nil
	}
	ours := func(id state.ReplicaID) bool { return strings.HasPrefix(string(id), r.act.Prefix) && !r.owns(id) }
	for id := range r.view.Facts.Draining {
		if ours(id) && r.drainedByUs(id) {
			ids = append(ids, id)
		}
	}
	for id, x := range r.view.Facts.Replicas {
		role := cmp.Or(x.Role, state.RoleBoth)
		if ours(id) && x.Pool == r.key.Pool && role == r.key.Role && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// noneBelieved is how long an actuator has to list nothing, where it had several replicas,
// until that is believed: whom it asks may have just started, and know of nothing yet.
const noneBelieved = 5 * time.Second

// doubt says why the actuator's list is not believed now, or nil. A single replica may go
// at once, and so may any that were drained to go.
func (r *round) doubt() error {
	missed := 0
	if len(r.act.Instances) == 0 && !r.act.Discovered {
		for _, id := range r.gone() {
			if !r.drainedByUs(id) {
				missed++
			}
		}
	}
	switch {
	case missed < 2:
		r.mem.noneSince = time.Time{}
		return nil
	case r.mem.noneSince.IsZero():
		r.mem.noneSince = r.now
	case r.now.Sub(r.mem.noneSince) >= noneBelieved:
		return nil
	}
	return fmt.Errorf("the actuator lists none of %d replicas, which are kept until it has said so for %v", missed, noneBelieved)
}

// conclude settles the decision when reality is what it wanted, or when it has had
// its time.
func (r *round) conclude(ctx context.Context, target int) error {
	d := r.last
	if d == nil || !d.Open() {
		return nil
	}
	if r.act.DryRun {
		return r.l.settle(ctx, d, state.OutcomeDone, state.DryRunDetail, r.now)
	}
	ready, why := 0, problem(&r.act)
	for _, i := range r.act.Instances {
		if i.Ready && !i.Stopping && r.known(i.Replica.ID) && !r.drainedByUs(i.Replica.ID) {
			ready++
		}
	}
	if why != "" {
		why = ": " + why
	}
	running := r.running()
	reached := ready >= r.want && running <= r.want+r.away
	switch {
	case reached && r.others+r.want > target:
		return r.l.settle(ctx, d, state.OutcomeFailed,
			fmt.Sprintf("target %d not reached: the file or 'replica add' has %s", target, replicas(r.others)), r.now)
	case reached:
		return r.l.settle(ctx, d, state.OutcomeDone, replicas(r.others+ready)+r.silent()+r.note(), r.now)
	case r.now.Sub(d.Seen) >= r.deadline(d):
		return r.l.settle(ctx, d, state.OutcomeFailed,
			fmt.Sprintf("%d of %s ready, %d running, in time%s", r.others+ready, replicas(target), running, why)+r.note(), r.now)
	}
	return r.giveUp(ctx)
}

// running counts the actuator's replicas that are not gone. An orchestrator ends others
// than those that we have it end, as in a roll-out, and takes its time: no decision waits
// for them, and none upwards for any that ends.
func (r *round) running() (n int) {
	for _, i := range r.act.Instances {
		ours := r.last.To < r.last.From && r.drainedByUs(i.Replica.ID)
		if !i.Stopping || !r.act.Discovered || ours {
			n++
		}
	}
	return n
}

// silent tells of the replicas that count and do not answer.
func (r *round) silent() string {
	if r.away == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of them not answering", r.away)
}

// replicas counts them in words.
func replicas(n int) string {
	if n == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", n)
}

// problem is what a replica that should come up lacks, if one does.
func problem(a *state.Actual) (s string) {
	for _, i := range a.Instances {
		if !i.Ready && !i.Stopping && i.Problem != "" {
			s = i.Problem
		}
	}
	return s
}

// giveUpAfter is how long an actuator may refuse to take the step that a decision
// needs, again and again, before the decision has failed. The target stays, and is
// tried on: what can be mended without a new decision needs none.
const giveUpAfter = 10 * time.Second

// hindered takes note of an actuator's error. One that says that this term is over, or
// that comes with its end, says nothing of the actuator.
func (r *round) hindered(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		r.mem.trouble, r.mem.fenced = err.Error(), errors.Is(err, state.ErrFenced)
	}
	if r.last == nil || over(err) || ctx.Err() != nil {
		return err
	}
	r.noteBroken(err)
	return errors.Join(err, r.giveUp(ctx))
}

// noteMended forgets an error when the actuator can act again: the last call succeeded,
// and no replica still has the trouble that the error was about.
func (r *round) noteMended() {
	for _, i := range r.act.Instances {
		if i.Problem != "" && strings.Contains(r.mem.broken.what, i.Problem) {
			return
		}
	}
	r.mem.broken = broken{}
}

// noteBroken remembers that the actuator could not act for the present decision.
func (r *round) noteBroken(err error) {
	b := &r.mem.broken
	if b.decision != r.last.ID {
		*b = broken{decision: r.last.ID, since: r.now}
	}
	b.what = err.Error()
}

// giveUp settles a decision that the actuator has refused to carry out for a while,
// so that every router says why.
func (r *round) giveUp(ctx context.Context) error {
	b := &r.mem.broken
	if b.decision != r.last.ID || !r.last.Open() || r.now.Sub(b.since) < giveUpAfter {
		return nil
	}
	what := b.what
	if first, rest, more := strings.Cut(what, "\n"); more {
		what = fmt.Sprintf("%s (and %d more)", first, 1+strings.Count(rest, "\n"))
	}
	return r.l.settle(ctx, r.last, state.OutcomeFailed, what[:min(len(what), maxDetail)], r.now)
}

// maxDetail bounds what a decision says of its end, bytes.
const maxDetail = 1024

// deadline is how long a decision may take: a drain's time comes on top of that
// of starting and stopping.
func (r *round) deadline(d *state.Decision) time.Duration {
	t := r.l.cfg.PendingDeadline
	if d.To < d.From {
		t += r.pool.Spec.DrainDeadline + r.l.cfg.StopGrace
	}
	return t
}
