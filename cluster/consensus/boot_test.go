package consensus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

func ids(f *fleet) map[string]bool {
	m := map[string]bool{}
	for _, x := range f.all() {
		if id := x.Facts().ClusterID; id != "" {
			m[id] = true
		}
	}
	return m
}

func TestRouterWithoutJoinListIsAClusterOfOne(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		m := f.start("r1", func(c *Config) { c.Join, c.BootstrapExpect = false, 1 })
		f.until(4*time.Second, "leads", func() bool { return m.Status().State == "leader" && m.Facts().Epoch > 0 })
		must(t, m, replica(1))
		// Others join it.
		for _, id := range names(3)[1:] {
			f.start(id, func(c *Config) { c.BootstrapExpect = 1 })
		}
		f.waitVoters(3)
		f.until(5*time.Second, "all agree", func() bool {
			return len(ids(f)) == 1 && !slices.ContainsFunc(f.all(), func(m *member) bool { return len(m.Facts().Replicas) != 1 })
		})
	})
}

func TestRouterWithJoinListNeverFoundsAlone(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		for _, expect := range []int{1, 2, 3} {
			id := names(3)[expect-1]
			f.start(id, func(c *Config) { c.BootstrapExpect = expect })
			time.Sleep(time.Minute)
			if n := len(ids(f)); n != 0 {
				t.Fatalf("%s founded a cluster alone", id)
			}
			f.leave(id)
		}
	})
}

func TestTwoRoutersHaveOneVoter(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		for _, id := range names(2) {
			f.start(id, func(c *Config) { c.BootstrapExpect = 2 })
		}
		f.waitLeader("r1")
		time.Sleep(time.Minute)
		if v := f.member("r1").Status().Voters; len(v) != 1 {
			t.Errorf("voters %v", v)
		}
		must(t, f.member("r2"), replica(1))
		// The loss of the other one does not stop writes.
		f.kill("r2")
		must(t, f.member("r1"), replica(2))
	})
}

func TestClusterIsFoundedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		first := ids(f)
		if len(first) != 1 {
			t.Fatalf("clusters %v", first)
		}
		// All stop and start again, in another order; one comes with an empty disk.
		for _, id := range names(3) {
			f.leave(id)
		}
		f.start("r0", nil)
		f.start("r3", nil)
		time.Sleep(10 * time.Second)
		f.start("r2", nil)
		f.waitLeader()
		f.start("r1", nil)
		f.until(20*time.Second, "all have the cluster", func() bool {
			return !slices.ContainsFunc(f.all(), func(m *member) bool { return !first[m.Facts().ClusterID] })
		})
		if n := len(ids(f)); n != 1 {
			t.Errorf("%d clusters", n)
		}
	})
}

func TestFounder(t *testing.T) {
	t0 := time.Now()
	cfg := func(self state.RouterID, expect int, join bool) *Config {
		c := Config{Self: self, BootstrapExpect: expect, Join: join, SettleAfter: time.Second}
		return &c
	}
	peer := func(id state.RouterID, cluster string) Peer { return Peer{ID: id, ClusterID: cluster} }
	f := func(name string, c *Config, peers []Peer, want bool) {
		t.Helper()
		var x founder
		if x.found(c, peers, t0) {
			t.Errorf("%s: at once", name)
		}
		if got := x.found(c, peers, t0.Add(2*time.Second)); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	f("alone", cfg("a", 1, false), nil, true)
	f("alone, with a join list", cfg("a", 1, true), nil, false)
	f("alone, known to a cluster", cfg("a", 1, false), []Peer{peer("b", "x")}, false)
	f("the lowest of three", cfg("a", 3, true), []Peer{peer("b", ""), peer("c", "")}, true)
	f("not the lowest", cfg("b", 3, true), []Peer{peer("a", ""), peer("c", "")}, false)
	f("too few", cfg("a", 3, true), []Peer{peer("b", "")}, false)
	f("one has a cluster", cfg("a", 3, true), []Peer{peer("b", ""), peer("c", "x")}, false)
	f("more than expected", cfg("a", 2, true), []Peer{peer("b", ""), peer("c", "")}, true)

	var x founder
	c := cfg("b", 2, true)
	x.found(c, []Peer{peer("c", "")}, t0)
	if x.found(c, []Peer{peer("c", ""), peer("d", "")}, t0.Add(2*time.Second)) {
		t.Error("founded while the membership was changing")
	}
}

// Who is asked for facts: those that have newer ones first, and none that can't be asked.
func TestPickPeer(t *testing.T) {
	f := func(peers []Peer, want ...state.RouterID) {
		t.Helper()
		got := map[state.RouterID]bool{}
		for range 200 {
			if id, ok := pickPeer(peers, "x", 7); ok {
				got[id] = true
			}
		}
		if len(got) != len(want) {
			t.Errorf("%v, want %v", got, want)
		}
		for _, id := range want {
			if !got[id] {
				t.Errorf("%v, want %v", got, want)
			}
		}
	}
	same, newer, unknown := Peer{ID: "same", FactsIndex: 7}, Peer{ID: "newer", FactsIndex: 8}, Peer{ID: "unknown"}
	newest, gone, other := Peer{ID: "newest", FactsIndex: 9}, Peer{ID: "gone", FactsIndex: 9, NoStream: true}, Peer{ID: "other", FactsIndex: 9, ClusterID: "y"}
	f([]Peer{same, other, gone})
	f([]Peer{same, unknown, gone}, "unknown")
	f([]Peer{same, unknown, newer, newest, gone, other}, "newer", "newest")
}

func TestLearnerFollowsAndKeepsFactsWithoutALeader(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(5, 3)
		must(t, f.waitLeader(), replica(1))
		var learner *member
		for _, m := range f.all() {
			if m.Status().State == "learner" {
				learner = m
			}
		}
		f.until(2*time.Second, "the learner has it", func() bool { return len(learner.Facts().Replicas) == 1 })
		// Away for a while, it misses much, and catches up.
		f.leave(learner.id)
		for i := range 50 {
			must(t, f.waitLeader(), replica(2+i))
		}
		learner = f.start(learner.id, nil)
		f.until(3*time.Second, "it caught up", func() bool { return len(learner.Facts().Replicas) == 51 })

		// All voters go; the learner starts again and has the last facts, and a
		// router that never saw a leader gets them from it.
		for _, m := range f.all() {
			if m.id != learner.id {
				f.leave(m.id)
			}
		}
		f.leave(learner.id)
		learner = f.start(learner.id, nil)
		fresh := f.start("r9", nil)
		f.until(3*time.Second, "both have the facts", func() bool {
			return len(learner.Facts().Replicas) == 51 && len(fresh.Facts().Replicas) == 51
		})
		time.Sleep(time.Minute)
		if s := fresh.Status(); s.State != "learner" || s.Leader != "" || s.ClusterID != learner.Facts().ClusterID {
			t.Errorf("%+v", s)
		}
	})
}

func TestFactsArePublishedInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(4, 3)
		for i := range 20 {
			must(t, f.waitLeader(), replica(i))
			if i == 10 {
				f.leave(f.waitLeader().id)
			}
		}
		time.Sleep(2 * time.Second)
		for _, m := range f.all() {
			m.mu.Lock()
			for i := 1; i < len(m.facts); i++ {
				if m.facts[i].Index <= m.facts[i-1].Index {
					t.Errorf("%s: index %d after %d", m.id, m.facts[i].Index, m.facts[i-1].Index)
				}
			}
			m.mu.Unlock()
		}
	})
}

func TestDecisionsAreSeenOnTheOwnClock(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		d := state.Decision{ID: "d1", Pool: "chat", Role: state.RoleBoth, To: 2, By: state.ByOperator, At: time.Unix(1, 0)}
		t0 := time.Now()
		must(t, f.waitLeader(), state.Command{Kind: state.CommandSetTarget, Decision: &d})
		time.Sleep(time.Minute)
		must(t, f.waitLeader(), replica(1))
		for _, m := range f.all() {
			if got := m.Facts().Decision("d1"); got == nil || got.Seen.Sub(t0) > time.Second || !got.At.Equal(d.At) {
				t.Errorf("%s: %+v", m.id, got)
			}
		}
	})
}

// Only a voter that is gone is removed: what would change nothing is refused, with
// what it would come to, whichever router is asked.
func TestOnlyVotersThatAreGoneAreRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(5, 3)
		l := f.waitLeader()
		var gone state.RouterID
		for _, v := range l.Status().Voters {
			if v.ID != l.id {
				gone = v.ID
			}
		}
		var learner state.RouterID
		for _, m := range f.all() {
			if m.Status().State == "learner" {
				learner = m.id
			}
		}
		before := l.Status().Voters
		refused := func(id state.RouterID, code state.RefusalCode, why string) {
			t.Helper()
			for _, at := range f.all() {
				_, err := at.Apply(context.Background(), state.Command{Kind: state.CommandRemoveMember, Router: id})
				var r *state.Refusal
				if !errors.As(err, &r) || r.Code != code || !strings.Contains(r.Reason, why) {
					t.Errorf("removing %s, asked at %s: %v", id, at.id, err)
				}
			}
		}
		refused(gone, state.RefusedAlive, "alive, and would be a voter again at once: stop it first")
		refused(l.id, state.RefusedAlive, "it leads")
		refused(learner, state.RefusedUnknown, "no voter: nothing to remove")
		refused("nobody", state.RefusedUnknown, "no voter: nothing to remove")
		if v := l.Status().Voters; !slices.Equal(v, before) {
			t.Errorf("voters %v, they were %v", v, before)
		}
		f.kill(gone)
		must(t, f.member(learner), state.Command{Kind: state.CommandRemoveMember, Router: gone})
		f.until(20*time.Second, "another votes for it", func() bool {
			v := l.Status().Voters
			return len(v) == 3 && !slices.ContainsFunc(v, func(v Voter) bool { return v.ID == gone })
		})
		if _, err := l.Apply(context.Background(), state.Command{Kind: state.CommandBeginTerm}); err == nil {
			t.Error("anybody may begin a term")
		}
	})
}

// A cluster is founded with as many voters as it wants and has, so that the
// founder's death right afterwards freezes nothing.
func TestFounderKilledAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		for _, id := range names(3) {
			f.start(id, func(c *Config) { c.BootstrapExpect = 3 })
		}
		f.until(20*time.Second, "a leader and no more", func() bool {
			return slices.ContainsFunc(f.all(), func(m *member) bool { return m.Status().State == "leader" })
		})
		for _, m := range f.all() {
			if m.Status().State == "leader" {
				f.kill(m.id)
				break
			}
		}
		f.until(5*time.Second, "another leads", func() bool {
			return slices.ContainsFunc(f.all(), func(m *member) bool { return m.Status().State == "leader" && m.Facts().Epoch > 0 })
		})
	})
}

func TestFirstVotersAreOdd(t *testing.T) {
	f := func(voters int, peers []Peer, want ...string) {
		t.Helper()
		var got []string
		for _, s := range firstVoters(&Config{Self: "b", Addr: "b:1", Voters: voters}, peers) {
			got = append(got, string(s.ID))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d voters, peers %v: %v, want %v", voters, peers, got, want)
		}
	}
	c, d, e := Peer{ID: "c", Addr: "c:1"}, Peer{ID: "d", Addr: "d:1"}, Peer{ID: "e", Addr: "e:1"}
	f(3, nil, "b")
	f(3, []Peer{c}, "b")
	f(3, []Peer{d, c}, "b", "c", "d")
	f(3, []Peer{e, d, c}, "b", "c", "d")
	f(5, []Peer{e, d, c}, "b", "c", "d")
	f(1, []Peer{d, c}, "b")
	f(3, []Peer{{ID: "x"}, c}, "b")
}
