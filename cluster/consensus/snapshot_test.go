package consensus

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// saved is a snapshot file of facts with a bit of everything.
func saved(t testing.TB, cluster string, index uint64) []byte {
	t.Helper()
	f := state.NewFacts()
	f.ClusterID, f.Index, f.Epoch = cluster, index, 3
	f.Targets[chat] = 4
	f.Replicas["replica1"] = *replica(1).Replica
	f.Draining["replica1"] = state.Drain{Index: index - 1, By: state.ByOperator}
	f.Undrained["replica2"] = index - 2
	b, err := EncodeSaved(f, "r1", time.Unix(1, 0).UTC())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSavedSnapshotIsReadOrRefused(t *testing.T) {
	b := saved(t, "c1", 90)
	f, err := DecodeSaved(b)
	if err != nil || f.ClusterID != "c1" || f.Index != 90 || f.Targets[chat] != 4 || f.Draining["replica1"].Index != 89 {
		t.Errorf("%+v, %v", f, err)
	}
	for what, bad := range map[string][]byte{
		"cut off":       b[:len(b)/2],
		"something":     []byte(`{"pools":[]}`),
		"a later one":   bytes.Replace(b, []byte(`"v": 1`), []byte(`"v": 9`), 1),
		"of no cluster": bytes.Replace(b, []byte(`"c1"`), []byte(`""`), 1),
		"empty":         nil,
		"another kind":  []byte(`{"format":"hearsay-snapshot","v":1,"facts":[]}`),
	} {
		if _, err := DecodeSaved(bad); err == nil {
			t.Errorf("%s is taken", what)
		} else if strings.Contains(err.Error(), "JSON") || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzDecodeSaved(f *testing.F) {
	f.Add(saved(f, "c1", 90))
	f.Add([]byte(`{"format":"hearsay-snapshot","v":1,"facts":{"v":1,"index":1,"cluster_id":"x"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := DecodeSaved(b)
		if err != nil {
			return
		}
		if b, err = EncodeSaved(x, "", time.Time{}); err != nil {
			t.Fatal(err)
		}
		if y, err := DecodeSaved(b); err != nil || y.Index != x.Index {
			t.Fatalf("%v: %+v", err, y)
		}
	})
}

// A snapshot is restored into a running cluster: all routers have its facts, the
// cluster keeps its id, and drains of the snapshot are to be acknowledged anew.
func TestSnapshotIsRestoredIntoARunningCluster(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		l := f.waitLeader()
		own, epoch := l.Facts().ClusterID, l.Facts().Epoch
		must(t, l, replica(7))
		facts := func(cluster string) *state.Facts {
			x, err := DecodeSaved(saved(t, cluster, 100000))
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		c := state.Command{Kind: state.CommandRestore, Facts: facts("another")}
		var ref *state.Refusal
		if _, err := l.Apply(t.Context(), c); !errors.As(err, &ref) || ref.Code != state.RefusedForeign {
			t.Fatalf("of another cluster: %v", err)
		}
		if l.Facts().Targets[chat] != 0 {
			t.Error("what was refused has changed something")
		}
		c.Force = true
		for _, c := range []state.Command{{Kind: state.CommandRestore, Facts: facts(own)}, c} {
			m := f.all()[1]
			r := must(t, m, c)
			f.until(2*time.Second, "all have it", func() bool {
				for _, m := range f.all() {
					if m.Facts().Index < r.Index {
						return false
					}
				}
				return true
			})
			x := m.Facts()
			if x.ClusterID != own || x.Epoch != epoch || x.Targets[chat] != 4 || len(x.Replicas) != 1 {
				t.Errorf("%+v", x)
			}
			if x.Draining["replica1"].Index != r.Index || x.Undrained["replica2"] != r.Index {
				t.Errorf("drained at %d, undrained at %d, restored at %d", x.Draining["replica1"].Index, x.Undrained["replica2"], r.Index)
			}
			must(t, l, replica(8))
		}
	})
}

// What was done before is in what Current gives, on every router, also where the
// facts come late; without a leader it says so.
func TestCurrentHoldsWhatWasDone(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(4, 3)
		for i := range 20 {
			r := must(t, f.all()[i%4], replica(i))
			x, err := f.all()[(i+1)%4].Current(t.Context())
			if err != nil || x.Index < r.Index {
				t.Fatalf("after %d: %v, %v", r.Index, x, err)
			}
		}
		l := f.waitLeader()
		f.cut(true, []state.RouterID{l.id}, slicesWithout(names(4), l.id))
		if _, err := l.Current(t.Context()); !errors.Is(err, ErrNoLeader) {
			t.Errorf("a leader that is cut off: %v", err)
		}
		f.cut(false, []state.RouterID{l.id}, slicesWithout(names(4), l.id))
	})
}

// A quorum is lost for good. One router is made the only voter with the facts that
// were saved, or that it knew last: it leads, nothing is lost, the index goes on
// upwards, and what was there is kept.
func TestRouterIsRecoveredAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "raft")
	n, stop := onDisk(t, dir)
	eventually(t, "leads", func() bool { return n.Facts().Epoch > 0 })
	for i := range 60 { // more than a Raft snapshot
		if _, err := n.Apply(context.Background(), replica(i)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := n.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	term := n.Status().Term
	if _, err := n.Apply(context.Background(), replica(77)); err != nil { // after the snapshot: lost
		t.Fatal(err)
	}
	stop()

	foreign := f.Clone()
	foreign.ClusterID = "another"
	if _, err := Recover(dir, "r1", foreign, false); !errors.Is(err, ErrForeign) {
		t.Fatalf("of another cluster: %v", err)
	}
	r, err := Recover(dir, "r1", f, false)
	if err != nil {
		t.Fatal(err)
	}
	if r.Had <= f.Index || r.Index < r.Had+restoreGap {
		t.Errorf("%+v of facts at %d", r, f.Index)
	}
	if x, err := LastFacts(r.Aside); err != nil || x.Index != r.Had {
		t.Errorf("kept: %+v, %v", x, err)
	}
	n, stop = onDisk(t, dir)
	eventually(t, "leads again", func() bool { return n.Facts().Epoch > r.Index })
	if x := n.Facts(); x.ClusterID != f.ClusterID || len(x.Replicas) != 60 {
		t.Errorf("cluster %s, %d replicas", x.ClusterID, len(x.Replicas))
	}
	if x := n.Facts(); x.Recovered != 1 {
		t.Errorf("recovered %d times", x.Recovered)
	}
	if s := n.Status(); len(s.Voters) != 1 || s.Term <= term {
		t.Errorf("%+v after term %d", s, term)
	}
	if _, err := n.Apply(context.Background(), replica(99)); err != nil {
		t.Fatal(err)
	}
	stop()
	n, stop = onDisk(t, dir) // what was founded so is a Raft log like any other
	eventually(t, "leads a third time", func() bool { return len(n.Facts().Replicas) == 61 && n.Status().State == "leader" })
	stop()

	// On an empty disk, by force or not; a second time beside what was kept before.
	empty := filepath.Join(t.TempDir(), "raft")
	if r, err := Recover(empty, "r9", f, false); err != nil || r.Aside != "" || r.Had != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := Recover(empty, "r9", foreign, true); err != nil || !strings.HasSuffix(r.Aside, "-1") {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := Recover(empty, "r9", f, true); err != nil || !strings.HasSuffix(r.Aside, "-2") {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := os.Stat(empty + ".new"); err == nil {
		t.Error("leftovers")
	}
}

// One of three is recovered alone while the others are away. They come back together,
// on the disks of old, against all advice: with the majority of the old configuration.
// They act for nobody, and become followers of the recovered one with its facts; where
// they could not see it at first, and one of them leads, they give in when they do.
func TestVotersOfOldFollowTheRecoveredOne(t *testing.T) {
	t.Run("seen", func(t *testing.T) { votersOfOld(t, false) })
	t.Run("seen late", func(t *testing.T) { votersOfOld(t, true) })
}

func votersOfOld(t *testing.T, late bool) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		must(t, f.waitLeader(), replica(1))
		one := f.all()[2]
		f.until(5*time.Second, "all have it", func() bool { return one.Facts().Replicas["replica1"].URL != "" })
		term, facts := one.Status().Term, one.Facts()
		f.kill("r1")
		f.kill("r2")
		f.kill("r3")
		next := resumed(facts, facts.Index+restoreGap)
		next.Recovered++
		mem := NewMemory()
		if err := found(openMemory(mem), "r3", next, term+1); err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		f.disks["r3"] = mem
		f.mu.Unlock()
		f.start("r3", nil)
		l := f.waitLeader("r3")
		must(t, l, replica(2))

		back := time.Now()
		old, cut := []state.RouterID{"r1", "r2"}, []state.RouterID{"r3"}
		f.cut(late, old, cut)
		f.start("r1", nil)
		f.start("r2", nil)
		if late {
			must(t, f.waitLeader(old...), replica(66))
			back = time.Now()
			f.cut(false, old, cut)
		}
		f.until(30*time.Second, "all follow the recovered one's facts and vote", func() bool {
			for _, m := range f.all() {
				x := m.Facts()
				if x.Recovered != 1 || m.line.Load() != 1 || x.Replicas["replica2"].URL == "" || len(m.Status().Voters) != 3 {
					return false
				}
			}
			return true
		})
		t.Logf("after %v", time.Since(back))
		f.mu.Lock()
		for _, x := range f.terms {
			if x.from.After(back) && x.epoch < next.Index {
				t.Errorf("%s has led the old line from %v on", x.router, x.from.Sub(back))
			}
		}
		f.mu.Unlock()
		for i, m := range f.all() {
			must(t, m, replica(10+i))
		}
		x, err := f.all()[0].Current(t.Context())
		if err != nil || len(x.Replicas) != 5 || x.Replicas["replica66"].URL != "" {
			t.Errorf("%d replicas, %v", len(x.Replicas), err)
		}
		if err := f.waitLeader().Resign(t.Context()); err != nil {
			t.Error(err)
		}
		f.waitLeader()
	})
}
