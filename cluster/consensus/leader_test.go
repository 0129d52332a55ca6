package consensus

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

func TestThreeRoutersElectOneLeaderAndVoters(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		time.Sleep(time.Minute)
		leaders := 0
		for _, m := range f.all() {
			s := m.Status()
			if s.State == "leader" {
				leaders++
			}
			if s.Leader != f.leader().id || len(s.Voters) != 3 || s.ClusterID == "" || s.ClusterID != f.leader().Facts().ClusterID {
				t.Errorf("%s: %+v", m.id, s)
			}
			if m.Facts().Epoch != f.leader().Facts().Epoch || m.Facts().Epoch == 0 {
				t.Errorf("%s: epoch %d", m.id, m.Facts().Epoch)
			}
		}
		if leaders != 1 {
			t.Errorf("%d leaders", leaders)
		}
		if len(f.terms) != 1 {
			t.Errorf("terms without a fault: %+v", f.terms)
		}
	})
}

func TestKilledLeaderIsReplacedWithinFiveSeconds(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		for i := range 5 {
			old := f.waitLeader()
			must(t, old, replica(i))
			epoch := old.Facts().Epoch
			f.kill(old.id)
			took := f.until(5*time.Second, "a new leader that acts", func() bool {
				l := f.leader()
				return l != nil && l.Facts().Epoch > epoch
			})
			t.Logf("new leader after %v", took)
			must(t, f.leader(), replica(100+i))
			f.start(old.id, nil)
			f.until(10*time.Second, "the old one follows", func() bool {
				return f.member(old.id).Facts().Index == f.leader().Facts().Index
			})
		}
	})
}

func TestLeadershipIsHandedOverAtExit(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		old := f.waitLeader()
		f.leave(old.id)
		if took := f.until(5*time.Second, "a leader", func() bool { return f.leader() != nil }); took > 200*time.Millisecond {
			t.Errorf("a new leader only after %v", took)
		}
	})
}

func TestTermsDoNotOverlapOnOneRouterAndEpochsGrow(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		for range 6 {
			l := f.waitLeader()
			others := slicesWithout(names(3), l.id)
			f.cut(true, []state.RouterID{l.id}, others)
			f.waitLeader(others...)
			f.until(5*time.Second, "the old leader steps down", func() bool { return l.Status().State != "leader" })
			f.cut(false, []state.RouterID{l.id}, others)
			time.Sleep(3 * time.Second)
		}
		f.stopAllAndForget()
		if len(f.terms) < 7 {
			t.Fatalf("%d terms", len(f.terms))
		}
		last := map[state.RouterID]lease{}
		for i, x := range f.terms {
			if x.to.IsZero() {
				t.Errorf("term %d of %s was not joined", i, x.router)
			}
			if i > 0 && x.epoch <= f.terms[i-1].epoch {
				t.Errorf("epoch %d after %d", x.epoch, f.terms[i-1].epoch)
			}
			if p := last[x.router]; x.from.Before(p.to) {
				t.Errorf("%s: a term began before the one before was over", x.router)
			}
			last[x.router] = x
		}
	})
}

func TestCutOffLeaderCannotCommitAndStepsDown(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		l := f.waitLeader()
		others := slicesWithout(names(3), l.id)
		f.cut(true, []state.RouterID{l.id}, others)
		t0 := time.Now()
		_, err := l.Apply(context.Background(), replica(1))
		if !errors.Is(err, ErrOutcomeUnknown) && !errors.Is(err, ErrNoLeader) {
			t.Errorf("apply on the minority's side: %v", err)
		}
		if d := time.Since(t0); d > 11*time.Second {
			t.Errorf("apply took %v", d)
		}
		if s := l.Status(); s.State != "candidate" || s.Leader != "" {
			t.Errorf("cut off: %+v", s)
		}
		t0 = time.Now()
		if _, err := l.Apply(context.Background(), replica(2)); !errors.Is(err, ErrNoLeader) {
			t.Errorf("apply without a leader: %v", err)
		}
		if d := time.Since(t0); d > 3*time.Second {
			t.Errorf("saying so took %v", d)
		}
		n := f.waitLeader(others...)
		must(t, n, replica(3))
		f.cut(false, []state.RouterID{l.id}, others)
		f.until(5*time.Second, "both sides agree", func() bool { return l.Facts().Index == n.Facts().Index })
		if _, ok := l.Facts().Replicas["replica2"]; ok {
			t.Error("a refused write appeared later")
		}
		if _, ok := l.Facts().Replicas["replica3"]; !ok {
			t.Error("a committed write is missing")
		}
	})
}

func TestWithoutQuorumFactsStayAndWritesAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		must(t, f.waitLeader(), replica(1))
		time.Sleep(time.Second) // so that the followers know that it is committed
		f.kill("r1")
		f.kill("r2")
		time.Sleep(5 * time.Second)
		m := f.member("r3")
		if _, err := m.Apply(context.Background(), replica(2)); !errors.Is(err, ErrNoLeader) && !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("apply: %v", err)
		}
		if _, ok := m.Facts().Replicas["replica1"]; !ok {
			t.Error("facts are gone with the quorum")
		}
		f.start("r1", nil)
		f.waitLeader()
		must(t, m, replica(3))
		for _, want := range []state.ReplicaID{"replica1", "replica3"} {
			if _, ok := f.leader().Facts().Replicas[want]; !ok {
				t.Errorf("%s is missing", want)
			}
		}
	})
}

func TestWritesAreForwardedFromAnyRouter(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(5, 3)
		for i, id := range names(5) {
			must(t, f.member(id), replica(i))
		}
		f.until(3*time.Second, "all have all", func() bool {
			return !slices.ContainsFunc(f.all(), func(m *member) bool { return len(m.Facts().Replicas) != 5 })
		})
		learners := 0
		for _, m := range f.all() {
			if s := m.Status(); s.State == "learner" {
				learners++
				if s.Leader != f.leader().id {
					t.Errorf("learner %s takes %q for the leader", m.id, s.Leader)
				}
			}
		}
		if learners != 2 {
			t.Errorf("%d learners", learners)
		}
	})
}
