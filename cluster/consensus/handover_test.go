package consensus

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// A leader that resigns goes on as a follower: another leads at once, writes through
// the former leader go to the new one, and what it follows is current.
func TestResignedLeaderGoesOnAsFollower(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		old := f.waitLeader()
		epoch := old.Facts().Epoch
		if err := old.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		took := f.until(5*time.Second, "a new leader that acts", func() bool {
			l := f.leader()
			return l != nil && l.id != old.id && l.Facts().Epoch > epoch
		})
		if took > time.Second {
			t.Errorf("a new leader only after %v", took)
		}
		f.until(time.Second, "the former leader to follow", func() bool { // it may have stood once more
			s, l := old.Status(), f.leader()
			return s.State == "follower" && l != nil && s.Leader == l.id
		})
		r := must(t, old, replica(1))
		if !old.Await(t.Context(), r.Index) || old.Facts().Replicas["replica1"].URL == "" {
			t.Error("the former leader does not follow")
		}
		if err := old.Resign(t.Context()); err != nil {
			t.Errorf("resigning without leading: %v", err)
		}
	})
}

func TestOnlyVoterKeepsLeading(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.start("r1", func(c *Config) { c.BootstrapExpect, c.Join = 1, false })
		l := f.waitLeader()
		if err := l.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := l.Status(); s.State != "leader" {
			t.Errorf("%+v", s)
		}
	})
}

// Raft leaves questions unanswered that reach it while it stops. So what a router
// asks its Raft ends before that, and a router that stops ends.
func TestWhatIsAskedOfRaftEndsBeforeItStops(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		m := f.member("r2")
		got := make(chan error, 1)
		go func() {
			_, err := m.wait(t.Context(), func(r *raft.Raft) (any, error) {
				time.Sleep(3 * time.Second) // Run is told to end meanwhile
				var err error
				for range 40 { // each one might be the one that is never answered
					err = r.VerifyLeader().Error()
					r.LeadershipTransfer().Error()
				}
				return nil, err
			})
			got <- err
		}()
		time.Sleep(time.Second)
		f.leave("r2")
		if err := <-got; errors.Is(err, raft.ErrRaftShutdown) || errors.Is(err, errNotStarted) {
			t.Errorf("asked a Raft that had stopped: %v", err)
		}
		if _, err := m.wait(t.Context(), func(*raft.Raft) (any, error) { return nil, nil }); !errors.Is(err, errNotStarted) {
			t.Errorf("asked after the end: %v", err)
		}
	})
}

// Whoever takes a write, leader, follower or learner, soon has it itself.
func TestWritesAreSeenWhereTheyWereTaken(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(5, 3)
		time.Sleep(10 * time.Second)
		learners := 0
		for i, m := range f.all() {
			if m.Status().State == "learner" {
				learners++
			}
			t0 := time.Now()
			r := must(t, m, replica(i))
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if !m.Await(ctx, r.Index) || m.Facts().Index < r.Index {
				t.Errorf("%s, %s: facts at %d, committed at %d", m.id, m.Status().State, m.Facts().Index, r.Index)
			}
			cancel()
			if d := time.Since(t0); d > 200*time.Millisecond {
				t.Errorf("%s, %s: seen after %v", m.id, m.Status().State, d)
			}
		}
		if learners != 2 {
			t.Errorf("%d learners", learners)
		}
		m := f.all()[0]
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if m.Await(ctx, m.Facts().Index+1) {
			t.Error("an index that never comes has come")
		}
	})
}
