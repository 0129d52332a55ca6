package sim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// chats is the reduced workload of the laws: agents whose chats fill 8 caches.
func chats(t *testing.T, cfg Config) Figures {
	t.Helper()
	w, err := agentsWork(1, 240, 2, brief)
	if err != nil {
		t.Fatal(err)
	}
	cfg.KVTokens, cfg.Link, cfg.Delays = 20_000, lan, true
	name := onOff(max(1, cfg.Routers), cfg.NoSharing)
	r, err := runCell(t, Cell{Group: "law", Name: name, Config: cfg}, 1, w)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	f := r.Figures
	t.Logf("%s: hit rate %.3f, mean TTFT %.3f s, rows p99 %.1f ms, ops p99 %.1f ms, %.1f kB/s", name, f.HitRate, f.TTFTMean, f.RowsP99, f.OpsP99, f.BytesOut/1e3)
	if f.Failed > 0 {
		t.Errorf("%s: %d requests failed", name, f.Failed)
	}
	return f
}

// Three routers that share are as good as one; three that do not are not.
func TestThreeSharingRoutersAreAsGoodAsOne(t *testing.T) {
	t.Parallel()
	one := chats(t, Config{})
	three := chats(t, Config{Routers: 3})
	mute := chats(t, Config{Routers: 3, NoSharing: true})
	if three.FollowUpHit < one.FollowUpHit-0.02 {
		t.Errorf("follow-ups hit at %.3f with three routers, %.3f with one", three.FollowUpHit, one.FollowUpHit)
	}
	if three.TTFTMean > 1.1*one.TTFTMean {
		t.Errorf("mean TTFT %.3f s with three routers, %.3f with one", three.TTFTMean, one.TTFTMean)
	}
	if mute.FollowUpHit > three.FollowUpHit-0.05 {
		t.Errorf("follow-ups hit at %.3f without sharing, %.3f with: the workload shows nothing", mute.FollowUpHit, three.FollowUpHit)
	}
	if three.RowsP99 == 0 || three.RowsP99 > 100 || three.OpsP99 == 0 || three.OpsP99 > 100 {
		t.Errorf("news takes %.1f ms (rows) and %.1f ms (ops) at p99", three.RowsP99, three.OpsP99)
	}
}

// A burst of one cold prefix takes as many replicas with four routers as with one.
// It is a law of the mean: the routers can't have heard of each other's last picks,
// so where three holders are about full at the burst's end each router may spill to
// a replica of its own, 7 in all (in one burst of sixty).
func TestBurstTakesAsManyReplicasWhateverTheRouters(t *testing.T) {
	t.Parallel()
	const bursts = 10
	used := map[int]float64{}
	for _, n := range []int{1, 4} {
		for seed := range uint64(bursts) {
			w, err := burstWork(seed+1, 32)
			if err != nil {
				t.Fatal(err)
			}
			r, err := runCell(t, Cell{Group: "law", Name: onOff(n, false), Config: Config{Routers: n, Replicas: 16, InTurn: true, Link: lan}, Drive: driveBurst}, seed+1, w)
			if err != nil {
				t.Fatal(err)
			}
			used[n] += r.Extra["holders"] / bursts
		}
	}
	t.Logf("%.1f replicas with one router, %.1f with four", used[1], used[4])
	if used[1] > 6 || used[4] > used[1]+2 || used[4] < used[1]-2 {
		t.Errorf("%.1f replicas with one router, %.1f with four", used[1], used[4])
	}
}

// A joiner that gets all traffic at once hits as the others did.
func TestJoinerIsWarm(t *testing.T) {
	t.Parallel()
	w, err := groupsWork(1, 1, true, 40)
	if err != nil {
		t.Fatal(err)
	}
	r, err := runCell(t, Cell{Group: "law", Name: "join", Config: Config{Routers: 3, Late: 1, KVTokens: 2 * K01KV, Link: lan}, Drive: driveJoin}, 1, w)
	if err != nil {
		t.Fatal(err)
	}
	if x := r.Extra; x["hit_100"] < x["hit_before"]-0.03 || x["ready_s"] > 5 {
		t.Errorf("ready after %.3f s, first 100 requests hit at %.3f, the others' 400 before at %.3f", x["ready_s"], x["hit_100"], x["hit_before"])
	}
}

// What a matrix writes is there, and names every cell.
func TestResultsAreWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{Scale: Quick, Groups: []string{"k06"}, Out: dir, Images: dir}
	results := Run(t, o)
	var text strings.Builder
	Tables(&text, results)
	b, err := os.ReadFile(filepath.Join(dir, "sim.csv"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range Matrix(Quick) {
		if c.Group == "k06" && (!strings.Contains(text.String(), c.Name) || !strings.Contains(string(b), c.Name)) {
			t.Errorf("%q is missing in\n%s\n%s", c.Name, text.String(), b)
		}
	}
}

// Every cell of every scale names a workload and a table that exist.
func TestMatrixIsWhole(t *testing.T) {
	t.Parallel()
	for _, s := range []Scale{Quick, Usual, Full} {
		seen := map[string]bool{}
		for _, c := range Matrix(s) {
			if works[c.Work] == nil || tables[c.Group] == nil || titles[c.Group] == "" {
				t.Errorf("%s, %s: workload %q or table is missing", c.Group, c.Name, c.Work)
			}
			key := c.Group + "/" + c.Name
			if seen[key] {
				t.Errorf("%s stands twice", key)
			}
			seen[key] = true
		}
		for _, g := range Groups() {
			if len(Matrix(s)) > 0 && tables[g] == nil {
				t.Errorf("no table for %s", g)
			}
		}
	}
}
