package consensus

import (
	"slices"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// outvoted has r1 to r3 vote and r4 follow, and gives the leader, another voter, and the rest.
func (f *fleet) outvoted() (l *member, away state.RouterID, rest []state.RouterID) {
	for _, id := range names(3) {
		f.start(id, nil)
	}
	f.waitVoters(3)
	f.start("r4", nil)
	l = f.waitLeader()
	f.until(10*time.Second, "r4 follows", func() bool { return f.member("r4").Facts().Index == l.Facts().Index })
	away = slicesWithout(names(3), l.id)[0]
	time.Sleep(5 * time.Second) // it could take a vote at once
	return l, away, slicesWithout(names(4), away)
}

// knowsItsPlace waits until a router says that it is no longer a voter, and looks on for a minute: it follows, forwards
// commands, and disturbs nobody.
func (f *fleet) knowsItsPlace(id state.RouterID, l *member) {
	f.t.Helper()
	m := f.member(id)
	took := f.until(12*time.Second, "it knows that it has no vote", func() bool {
		s := m.Status()
		return s.State == "learner" && s.Removed && s.Leader == l.id
	})
	f.t.Logf("it knows %v after its return", took)
	term, epoch := l.Status().Term, l.Facts().Epoch
	for i := range 6 {
		r := must(f.t, m, replica(100+i))
		f.until(time.Second, "it has what it wrote", func() bool { return m.Facts().Index >= r.Index })
		time.Sleep(10 * time.Second)
		if s := m.Status(); !s.Removed || s.State != "learner" || len(s.Voters) != 0 {
			f.t.Errorf("it is %+v", s)
		}
	}
	if s := l.Status(); s.State != "leader" || s.Term != term || l.Facts().Epoch != epoch {
		f.t.Errorf("the leader is disturbed: %+v, before in term %d", s, term)
	}
}

// A voter dies, and is replaced. Back, it says that it is a learner, and once another voter is gone it has a vote again.
func TestVoterThatWasReplacedIsALearner(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		l, away, rest := f.outvoted()
		f.kill(away)
		f.until(time.Minute, "it is replaced", func() bool {
			v := l.Status().Voters
			return len(v) == 3 && !slices.ContainsFunc(v, func(v Voter) bool { return v.ID == away })
		})
		back := f.start(away, nil)
		f.knowsItsPlace(away, l)

		f.kill(slicesWithout(rest, l.id)[0])
		f.until(time.Minute, "it has a vote again", func() bool {
			s := back.Status()
			return s.State == "follower" && !s.Removed && len(s.Voters) == 3
		})
	})
}

// A voter is cut off and removed by hand, another takes its place, and nothing else is committed: it has all facts there
// are, and none shows it that it has no vote.
func TestVoterRemovedBehindItsBackIsALearner(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		l, away, rest := f.outvoted()
		f.cut(true, []state.RouterID{away}, rest)
		must(t, l, state.Command{Kind: state.CommandRemoveMember, Router: away})
		for _, m := range f.all() { // else what is on its way to it would tell it when the cut heals
			m.stream.cut()
		}
		f.waitVoters(3)
		time.Sleep(5 * time.Second)
		f.cut(false, []state.RouterID{away}, rest)
		if a, b := f.member(away).Facts().Index, l.Facts().Index; a != b {
			t.Fatalf("its facts are at %d, the leader's at %d: the test shows nothing", a, b)
		}
		f.knowsItsPlace(away, l)
	})
}

// Where there is no quorum nobody can tell a voter that it is none: it stays a candidate.
func TestVoterWithoutAQuorumIsNotRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		l := f.waitLeader()
		others := slicesWithout(names(3), l.id)
		f.kill(others[0])
		f.kill(others[1])
		f.kill(l.id)
		m := f.start(l.id, nil)
		time.Sleep(30 * time.Second)
		if s := m.Status(); s.State != "candidate" || s.Removed {
			t.Errorf("%+v", s)
		}
		f.start(others[0], nil)
		f.waitLeader()
		if s := m.Status(); s.Removed {
			t.Errorf("%+v", s)
		}
	})
}

// Only a leader that a majority follows says who votes.
func TestWhoSaysWhoVotes(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		l := f.waitLeader()
		f.until(5*time.Second, "three names", func() bool {
			b, err := l.SayVoters(t.Context())
			if err != nil {
				return false
			}
			list, err := decodeVoters(b)
			slices.Sort(list)
			return err == nil && slices.Equal(list, names(3))
		})
		others := slicesWithout(names(3), l.id)
		if b, err := f.member(others[0]).SayVoters(t.Context()); err == nil {
			t.Errorf("a follower says %s", b)
		}
		f.cut(true, []state.RouterID{l.id}, others)
		if b, err := l.SayVoters(t.Context()); err == nil {
			t.Errorf("a leader that is cut off says %s", b)
		}
	})
}

func FuzzVoters(f *testing.F) {
	for _, s := range []string{`{"voters":["a","b"]}`, `{"voters":[]}`, `{"voters":[""]}`, `{`, ``, `null`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := decodeVoters(b)
		if err == nil && (len(list) == 0 || len(list) > maxVoters || slices.Contains(list, "")) {
			t.Errorf("%q reads as %q", b, list)
		}
	})
}
