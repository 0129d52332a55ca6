package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// leader finds who leads, as all of some routers say.
func (t *trial) leader(ctx context.Context, among []*harness.Proc) (leader *harness.Proc, err error) {
	_, err = until(ctx, 15*time.Second, "one router leads", func() (bool, string) {
		leader = nil
		for _, r := range among {
			var s console.Status
			if err := r.GetAdmin(ctx, "status", &s); err != nil {
				return false, err.Error()
			}
			if s.Router.Raft.Role == "leader" {
				if leader != nil {
					return false, "two lead"
				}
				leader = r
			}
		}
		return leader != nil, "none does"
	})
	return leader, err
}

func (t *trial) without(r *harness.Proc) []*harness.Proc {
	return slices.DeleteFunc(slices.Clone(t.cluster.Routers), func(x *harness.Proc) bool { return x == r })
}

// decided waits until a router knows of a decision for so many replicas.
func decided(ctx context.Context, r *harness.Proc, to int) error {
	_, err := until(ctx, 15*time.Second, "the decision is known", func() (bool, string) {
		list, err := decisions(ctx, r)
		return err == nil && len(list) > 0 && list[0].To == to, fmt.Sprint(err)
	})
	return err
}

// leaderKilled kills the leader when a step is decided and not done.
func (t *trial) leaderKilled(ctx context.Context) (string, error) {
	leader, err := t.leader(ctx, t.cluster.Routers)
	if err != nil {
		return "", err
	}
	others := t.without(leader)
	if err := target(ctx, others[0], 3); err != nil {
		return "", err
	}
	if err := decided(ctx, others[0], 3); err != nil {
		return "", err
	}
	leader.Kill()
	defer t.again(ctx, leader)
	begin := time.Now()
	if _, err := t.leader(ctx, others); err != nil {
		return "", err
	}
	took := time.Since(begin)
	whole := t.cluster.Routers
	t.cluster.Routers = others // those that are asked
	d, _, err := t.reached(ctx, others[0], 3)
	t.cluster.Routers = whole
	return fmt.Sprintf("another leads after %.1f s, decision %s of epoch %d done after %.1f s", took.Seconds(), d.ID, d.Epoch, time.Since(begin).Seconds()), err
}

// again starts a router that was killed and waits until it is back; that it is not shows
// in the checks that come after.
func (t *trial) again(ctx context.Context, r *harness.Proc) {
	if t.cluster.Start(r) == nil {
		_ = r.WaitReady(ctx, startWithin)
	}
}

// leaderPaused stops the leader's process in the middle of a step, which it can't take
// for want of an API server, lets its successor take another one, and lets it go on.
func (t *trial) leaderPaused(ctx context.Context) (string, error) {
	old, err := t.leader(ctx, t.cluster.Routers)
	if err != nil {
		return "", err
	}
	others := t.without(old)
	before, err := t.replicasAsked(ctx)
	if err != nil {
		return "", err
	}
	t.relay.cut()
	defer t.relay.mend()
	if err := target(ctx, others[0], 5); err != nil {
		return "", err
	}
	if err := decided(ctx, others[0], 5); err != nil {
		return "", err
	}
	if err := old.Signal(syscall.SIGSTOP); err != nil {
		return "", err
	}
	resume := func() { _ = old.Signal(syscall.SIGCONT) }
	defer resume()
	t.relay.mend()
	if n, err := t.replicasAsked(ctx); err != nil || n != before {
		return "", fmt.Errorf("the step is over: %d replicas are asked for, %d before %w", n, before, err)
	}
	if _, err := t.leader(ctx, others); err != nil {
		return "", err
	}
	whole := t.cluster.Routers
	t.cluster.Routers = others
	d, _, err := t.step(ctx, others[0], 2)
	t.cluster.Routers = whole
	if err != nil {
		return "", err
	}
	resume()
	if err := old.WaitReady(ctx, startWithin); err != nil {
		return "", err
	}
	if _, err := t.leader(ctx, t.cluster.Routers); err != nil {
		return "", err
	}
	for begin := time.Now(); time.Since(begin) < 5*time.Second; {
		n, err := t.replicasAsked(ctx)
		if err != nil || n != 2 {
			return "", fmt.Errorf("it asks for %d replicas %w", n, err)
		}
	}
	return fmt.Sprintf("%d replicas, epoch %d, before and after it went on", d.To, d.Epoch), nil
}
