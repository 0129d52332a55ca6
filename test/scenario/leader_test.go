package scenario

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/harness"
)

var (
	errNothing = errors.New("it serves nothing")
	errMatched = errors.New("it matches or does not")
)

// leader is the router that all running ones take for the leader, or nil.
func leader(b *harness.Bubble) (l *harness.Router) {
	name := ""
	for i, r := range b.Alive() {
		said := r.Node().Info().Raft.Leader
		if said == "" || i > 0 && said != name {
			return nil
		}
		name = said
	}
	for _, r := range b.Alive() {
		if string(r.ID()) == name {
			return r
		}
	}
	return nil
}

// waitLeader waits until all agree on a leader that runs and can write.
func waitLeader(b *harness.Bubble, d time.Duration) (*harness.Router, time.Duration) {
	b.T.Helper()
	var l *harness.Router
	took := b.Within(d, "a leader", func() error {
		if l = leader(b); l == nil {
			return errors.New("none that all know")
		}
		return nil
	})
	return l, took
}

// sameFacts objects unless all running routers have applied the same facts, at
// least up to index.
func sameFacts(b *harness.Bubble, index uint64) func() error {
	return func() error {
		var first *state.Facts
		return each(b, func(r *harness.Router) error {
			f := r.Node().View().Facts
			if f.Index < index {
				return fmt.Errorf("facts at %d, want %d", f.Index, index)
			}
			if first == nil {
				first = f
			}
			if f.Index != first.Index || !reflect.DeepEqual(f.Targets, first.Targets) || !reflect.DeepEqual(f.Holds, first.Holds) ||
				!reflect.DeepEqual(f.Draining, first.Draining) || !reflect.DeepEqual(f.Replicas, first.Replicas) ||
				f.Epoch != first.Epoch || f.ClusterID != first.ClusterID || len(f.Decisions) != len(first.Decisions) {
				return fmt.Errorf("facts %+v are not %+v", f, first)
			}
			return nil
		})
	}
}

// setTarget asks a router to set the pool's size.
func setTarget(t testing.TB, r *harness.Router, to int) (index uint64, status int) {
	t.Helper()
	var done console.Done
	status, err := r.Admin("PUT", "/admin/v1/pools/"+harness.Pool+"/target", console.TargetRequest{To: &to}, &done)
	if err != nil {
		t.Fatalf("%s: set target: %v", r.Name, err)
	}
	return done.Index, status
}

// Writes go through any router, leader or not, and all routers have them.
func TestWritesThroughAnyRouter(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 4, Engines: 2, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		waitLeader(b, 5*time.Second)
		for i, r := range b.Routers() {
			to := 2 + i
			index, status := setTarget(t, r, to)
			if status != http.StatusOK {
				t.Fatalf("%s: target %d: status %d", r.Name, to, status)
			}
			b.Within(2*time.Second, "the target on all", func() error {
				if err := sameFacts(b, index)(); err != nil {
					return err
				}
				return each(b, func(r *harness.Router) error {
					if n := r.Node().View().Facts.Targets[state.TargetKey{Pool: harness.Pool, Role: state.RoleBoth}]; n != to {
						return fmt.Errorf("target %d, want %d", n, to)
					}
					return nil
				})
			})
		}
		// dry_run carries nothing out, but the decisions are settled and explained.
		b.Within(time.Minute, "all decisions settled", func() error {
			var list []console.Decision
			if _, err := b.Router(3).Admin("GET", "/admin/v1/decisions", nil, &list); err != nil {
				return err
			}
			if len(list) < 4 {
				return fmt.Errorf("%d decisions", len(list))
			}
			for _, d := range list {
				if d.Outcome == "" || d.Reason == "" {
					return fmt.Errorf("decision %+v is open or unexplained", d)
				}
			}
			return nil
		})
	})
}

// The leader is killed: another leads within five seconds, what was committed
// stays, and writes go on. Requests are served throughout.
func TestLeaderIsKilled(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 4, Engines: 2, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		old, _ := waitLeader(b, 5*time.Second)
		time.Sleep(5 * time.Second) // voters join one by one
		index, status := setTarget(t, old, 5)
		if status != http.StatusOK {
			t.Fatalf("target: status %d", status)
		}
		b.Within(2*time.Second, "the target on all", sameFacts(b, index))
		old.Kill()
		for i, r := range b.Routers() {
			if r.Running() {
				ok(t, b.Chat(i, streamed(chat("Be brief.", "Is anyone leading?", 3))))
			}
		}
		l, took := waitLeader(b, 5*time.Second)
		t.Logf("%s leads %v after the last request without one", l.Name, took)
		for i, r := range b.Alive() {
			if index, status = setTarget(t, r, 6+i); status != http.StatusOK {
				t.Errorf("%s: target: status %d", r.Name, status)
			}
		}
		b.Within(2*time.Second, "the same facts on all", sameFacts(b, index))

		old.Restart()
		b.WaitReady()
		b.Within(5*time.Second, "the same facts on the old leader too", sameFacts(b, index))
	})
}

// Two routers on one side, one on the other, for a minute: both sides serve, only
// the majority writes, and after healing there is one view again.
func TestPartitionAndHeal(t *testing.T) {
	t.Parallel()
	f := func(name string, leads bool) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 2, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
				waitLeader(b, 5*time.Second)
				time.Sleep(10 * time.Second) // all three vote
				l, _ := waitLeader(b, 5*time.Second)
				alone := slices.IndexFunc(b.Routers(), func(r *harness.Router) bool { return (r == l) == leads })
				partition(t, b, alone)
			})
		})
	}
	f("the leader alone", true)
	f("a follower alone", false)
}

func partition(t *testing.T, b *harness.Bubble, alone int) {
	minority, rest := b.Router(alone), []int{(alone + 1) % 3, (alone + 2) % 3}
	b.Partition([]int{alone}, rest)
	for i := range 30 {
		ok(t, b.Chat(i%3, streamed(chat("Be brief.", words(fmt.Sprint("cut", i), 200), 3))))
		time.Sleep(time.Second)
	}
	var fault struct {
		Error struct{ Code string }
	}
	to := 7
	status, err := minority.Admin("PUT", "/admin/v1/pools/"+harness.Pool+"/target", console.TargetRequest{To: &to}, &fault)
	if err != nil || status != http.StatusServiceUnavailable || fault.Error.Code != "no_leader" {
		t.Errorf("the minority answers a write with %d %q %v", status, fault.Error.Code, err)
	}
	if l := minority.Node().Info().Raft.Leader; l != "" {
		t.Errorf("the minority takes %s for the leader", l)
	}
	index, status := setTarget(t, b.Router(rest[0]), 4)
	if status != http.StatusOK {
		t.Errorf("the majority answers a write with %d", status)
	}
	// What each side learns alone the other has soon after.
	where := map[string]state.ReplicaID{
		"minority": ok(t, b.Chat(alone, streamed(chat(words("minority", 3000), "Learned alone.", 5)))).Replica,
		"majority": ok(t, b.Chat(rest[0], streamed(chat(words("majority", 3000), "Learned by two.", 5)))).Replica,
	}
	time.Sleep(30 * time.Second)

	b.Net.HealAll()
	took := b.Within(5*time.Second, "one view", func() error {
		if leader(b) == nil {
			return errors.New("no leader that all know")
		}
		if err := sameFacts(b, index)(); err != nil {
			return err
		}
		return each(b, func(r *harness.Router) error {
			for _, m := range r.Node().Members() {
				if m.State != "alive" || !m.Self && m.Mesh != "up" {
					return fmt.Errorf("member %s is %s, its stream %s", m.Name, m.State, m.Mesh)
				}
			}
			for name, at := range where {
				if x := r.Explain(chat(words(name, 3000), "Who knows?", 5).Body()); x.Replica != at || x.MatchedTokens == 0 {
					return fmt.Errorf("prefix of the %s is taken to %s with %d tokens matched, not to %s", name, x.Replica, x.MatchedTokens, at)
				}
			}
			return nil
		})
	})
	t.Logf("one view %v after healing", took)
	b.Idle(time.Second)
	if _, status := setTarget(t, minority, 3); status != http.StatusOK {
		t.Errorf("after healing, a write through the former minority: %d", status)
	}
}

// Two of three voters die: the third serves with the last facts, refuses writes and
// says why, drains locally, and all is as before once they are back.
func TestQuorumIsLost(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 2, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		waitLeader(b, 5*time.Second)
		time.Sleep(10 * time.Second) // all three vote
		index, status := setTarget(t, b.Router(0), 5)
		if status != http.StatusOK {
			t.Fatalf("target: status %d", status)
		}
		b.Within(2*time.Second, "the target on all", sameFacts(b, index))
		b.Router(1).Kill()
		b.Router(2).Kill()
		time.Sleep(5 * time.Second)
		last := b.Router(0)
		for range 5 {
			ok(t, b.Chat(0, streamed(chat("Be brief.", "Who leads?", 3))))
		}
		if _, status := setTarget(t, last, 6); status != http.StatusServiceUnavailable {
			t.Errorf("a write: status %d", status)
		}
		key := state.TargetKey{Pool: harness.Pool, Role: state.RoleBoth}
		if n := last.Node().View().Facts.Targets[key]; n != 5 {
			t.Errorf("target %d", n)
		}
		var st console.Status
		if _, err := last.Admin("GET", "/admin/v1/status", nil, &st); err != nil || len(st.Warn) == 0 || !st.Ready {
			t.Errorf("status: ready %v, warnings %q, %v", st.Ready, st.Warn, err)
		}
		e := b.Engine(0)
		if status, err := last.Admin("POST", "/admin/v1/replicas/"+string(e.ID)+"/drain", console.ReasonRequest{Local: true}, nil); err != nil || status != http.StatusOK {
			t.Errorf("local drain: %d %v", status, err)
		}
		if reason := last.Node().View().Replica(e.ID).DrainReason; !strings.Contains(reason, "on this router alone") {
			t.Errorf("it is drained for %q", reason)
		}
		for i := range 5 {
			if r := ok(t, b.Chat(0, streamed(chat("Be brief.", words(fmt.Sprint("local", i), 100), 3)))); r.Replica == e.ID {
				t.Error("the drained replica got work")
			}
		}
		b.Router(1).Restart()
		b.Router(2).Restart()
		b.WaitReady()
		waitLeader(b, 5*time.Second)
		index, status = setTarget(t, b.Router(2), 7)
		if status != http.StatusOK {
			t.Errorf("a write afterwards: status %d", status)
		}
		b.Within(2*time.Second, "the target on all", sameFacts(b, index))
	})
}
