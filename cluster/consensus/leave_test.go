package consensus

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// voterIDs are the voters as the leader has them.
func (f *fleet) voterIDs() (ids []state.RouterID) {
	if l := f.leader(); l != nil {
		for _, v := range l.Status().Voters {
			ids = append(ids, v.ID)
		}
	}
	return ids
}

// A voter that leaves is replaced before its vote is gone, and gets none again while
// its requests run out, whoever leads by then.
func TestVoterThatLeavesIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(4, 3)
		i := slices.IndexFunc(f.all(), func(m *member) bool { return m.Status().State == "follower" })
		m := f.all()[i]
		if err := m.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v := f.voterIDs(); len(v) != 3 || slices.Contains(v, m.id) {
			t.Errorf("voters %v after %s left", v, m.id)
		}
		if err := f.waitLeader().Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		// The next leader does not know that it leaves, and would like to have its vote.
		next := f.waitLeader(slicesWithout(names(4), m.id)...)
		other := slicesWithout(slicesWithout(names(4), m.id), next.id)[0]
		f.kill(other)
		for range 120 {
			time.Sleep(time.Second / 2)
			if v := f.voterIDs(); slices.Contains(v, m.id) {
				t.Fatalf("voters %v: %s has a vote again", v, m.id)
			}
		}
		r := must(t, f.waitLeader(), replica(1))
		if !m.Await(t.Context(), r.Index) {
			t.Error("it does not follow the facts while its requests run out")
		}
		// Started again it is a router like any other: here it is needed.
		id := m.id
		f.leave(id)
		f.start(id, nil)
		f.until(time.Minute, "it votes again", func() bool { return slices.Contains(f.voterIDs(), id) })
	})
}

// A leader that leaves hands over first; its place goes to another where there is one.
func TestLeaderThatLeavesHandsOver(t *testing.T) {
	f := func(routers, voters, after int) {
		t.Helper()
		bubble(t, func(t *testing.T, f *fleet) {
			for _, id := range names(routers) {
				f.start(id, func(c *Config) { c.BootstrapExpect = min(3, routers) })
			}
			f.waitVoters(voters)
			l := f.waitLeader()
			r := must(t, l, replica(1))
			if err := l.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			next := f.waitLeader(slicesWithout(names(routers), l.id)...)
			f.until(5*time.Second, "the voters to settle", func() bool { v := f.voterIDs(); return len(v) == after && !slices.Contains(v, l.id) })
			if next.Facts().Index < r.Index || next.Facts().Replicas["replica1"].URL == "" {
				t.Error("what was committed is lost")
			}
			f.leave(l.id)
			must(t, f.waitLeader(), replica(2))
		})
	}
	f(4, 3, 3)
	f(3, 3, 1) // an even number is never kept
	f(2, 1, 1)
}

// Of three voters one leaves, and the leader keeps no even number: who loses its vote by
// that knows it, and does not look for a leader when this one dies.
func TestVoterThatIsDemotedKnowsIt(t *testing.T) {
	for range 8 { // it depended on what Raft was sending at that moment
		bubble(t, func(t *testing.T, f *fleet) {
			f.started(3, 3)
			l := f.waitLeader()
			others := slicesWithout(names(3), l.id)
			if err := f.member(others[0]).Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.leave(others[0])
			f.until(10*time.Second, "one voter", func() bool { return len(f.voterIDs()) == 1 })
			m := f.member(others[1])
			f.until(3*time.Second, "it is a learner", func() bool { s := m.Status(); return s.State == "learner" && len(s.Voters) == 0 })
			f.kill(l.id)
			time.Sleep(30 * time.Second)
			if s := m.Status(); s.State != "learner" || len(s.Voters) > 0 {
				t.Errorf("after the leader's death: %+v", s)
			}
		})
	}
}

func TestOnlyRouterLeavesNothingToAnybody(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.start("r1", func(c *Config) { c.BootstrapExpect, c.Join = 1, false })
		l := f.waitLeader()
		if err := l.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := l.Status(); s.State != "leader" || len(s.Voters) != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// Where the others would have no quorum, a voter is refused and goes on as one.
func TestVoterThatIsNeededDoesNotLeave(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		l := f.waitLeader()
		others := slicesWithout(names(3), l.id)
		f.kill(others[0])
		for _, m := range []*member{f.member(others[1]), l} {
			var ref *state.Refusal
			if err := m.Leave(t.Context()); !errors.As(err, &ref) || ref.Code != state.RefusedQuorum {
				t.Fatalf("%s leaves: %v", m.id, err)
			}
		}
		must(t, f.waitLeader(), replica(1))
		f.kill(f.waitLeader().id)
		last := f.all()[0]
		f.until(10*time.Second, "no leader is known", func() bool { return last.Status().Leader == "" })
		if err := last.Leave(t.Context()); !errors.Is(err, ErrNoLeader) {
			t.Errorf("without a quorum: %v", err)
		}
		f.start(others[0], nil)
		f.waitLeader()
		must(t, f.waitLeader(), replica(2))
	})
}
