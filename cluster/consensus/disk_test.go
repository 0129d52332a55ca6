package consensus

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

// onDisk runs a cluster of one on real files and real time, and returns a function
// that ends it.
func onDisk(t *testing.T, dir string) (*Node, func()) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var d net.Dialer
	n, err := New(Config{
		Self: "r1", Addr: ln.Addr().String(), DataDir: dir, SegmentSize: 64 << 10, SnapshotThreshold: 50,
		HeartbeatTimeout: 50 * time.Millisecond, SettleAfter: 10 * time.Millisecond,
		Layer: NewLayer(ln, func(ctx context.Context, a string) (net.Conn, error) { return d.DialContext(ctx, "tcp", a) }),
		Log:   diskLog(t), Registerer: prometheus.NewPedanticRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	return n, func() {
		t.Helper()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 1000 {
		if ok() {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Fatalf("not within 10 s: %s", what)
}

func TestRestartFromDisk(t *testing.T) {
	dir := t.TempDir()
	n, stop := onDisk(t, dir)
	eventually(t, "leads", func() bool { return n.Facts().Epoch > 0 })
	cluster := n.Facts().ClusterID
	for i := range 120 {
		c := replica(i)
		c.ID = "k" + string(c.Replica.ID)
		if _, err := n.Apply(context.Background(), c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.Apply(context.Background(), state.Command{Kind: state.CommandSetTarget, Decision: decision("d1", 0, 2, state.ByOperator)}); err != nil {
		t.Fatal(err)
	}
	epoch := n.Facts().Epoch
	stop()

	n, stop = onDisk(t, dir)
	eventually(t, "leads again", func() bool { return n.Facts().Epoch > epoch })
	f := n.Facts()
	if f.ClusterID != cluster || len(f.Replicas) != 120 || f.Targets[chat] != 2 || len(f.Decisions) != 1 {
		t.Errorf("cluster %q after %q, %d replicas, targets %v", f.ClusterID, cluster, len(f.Replicas), f.Targets)
	}
	c := replica(0)
	c.ID, c.Replica.URL = "kreplica0", "http://elsewhere"
	if r, err := n.Apply(context.Background(), c); err != nil || !r.Repeated {
		t.Errorf("a repeat after the restart: %+v, %v", r, err)
	}
	stop()

	// The log is lost but for the last facts: they are there at once.
	if err := os.RemoveAll(filepath.Join(dir, "raft")); err != nil {
		t.Fatal(err)
	}
	n, stop = onDisk(t, dir)
	eventually(t, "the last facts", func() bool { return len(n.Facts().Replicas) == 120 })
	stop()
	if n.Facts().ClusterID != cluster {
		t.Errorf("a second cluster was founded: %q", n.Facts().ClusterID)
	}
}

func TestUnreadableFactsFileIsNoObstacle(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "facts.json"), []byte("{torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	n, stop := onDisk(t, dir)
	eventually(t, "leads", func() bool { return n.Facts().Epoch > 0 })
	stop()
}

// stuckLog is a log store that can be made to hang, as a failing disk does.
type stuckLog struct {
	raft.LogStore
	mu   sync.Mutex
	gate chan struct{} // guarded by mu; non-nil: writes wait for it
}

func (s *stuckLog) StoreLogs(l []*raft.Log) error {
	s.mu.Lock()
	g := s.gate
	s.mu.Unlock()
	if g != nil {
		<-g
	}
	return s.LogStore.StoreLogs(l)
}

func (s *stuckLog) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s *stuckLog) stick() (release func()) {
	g := make(chan struct{})
	s.mu.Lock()
	s.gate = g
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		s.gate = nil
		s.mu.Unlock()
		close(g)
	}
}

func TestLeaderWithAStuckDiskGivesWay(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		logs := map[state.RouterID]*stuckLog{}
		for _, id := range names(3) {
			logs[id] = &stuckLog{}
			f.startWith(id, nil, func(n *Node) {
				log := logs[id]
				n.open = func(n *Node) (*disk, error) {
					d := openMemory(n.cfg.Memory)
					log.LogStore = d.logs
					d.logs = log
					return d, nil
				}
			})
		}
		f.waitVoters(3)
		l := f.waitLeader()
		others := slicesWithout(names(3), l.id)
		release := logs[l.id].stick()
		took := f.until(15*time.Second, "another leads", func() bool { return f.leader(others...) != nil })
		t.Logf("another leads after %v", took)
		f.until(time.Second, "the stuck one's term is over", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, x := range f.terms {
				if x.router == l.id && x.to.IsZero() {
					return false
				}
			}
			return true
		})
		must(t, f.leader(others...), replica(1))
		time.Sleep(20 * time.Second)
		release()
		f.until(10*time.Second, "the stuck one follows", func() bool {
			return l.Status().State == "follower" && l.Facts().Index == f.leader(others...).Facts().Index
		})
	})
}

func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		reg := prometheus.NewPedanticRegistry()
		m := f.start("r1", func(c *Config) { c.Join, c.BootstrapExpect, c.Registerer = false, 1, reg })
		f.until(5*time.Second, "leads", func() bool { return m.Status().State == "leader" })
		want := `
# HELP hearsay_raft_leader 1 if this router leads the cluster, else 0.
# TYPE hearsay_raft_leader gauge
hearsay_raft_leader 1
# HELP hearsay_raft_term Raft term this router knows of.
# TYPE hearsay_raft_term gauge
hearsay_raft_term 2
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}

func TestRaftSpeaksAtDebug(t *testing.T) {
	f := func(say func(hclog.Logger), want ...string) {
		t.Helper()
		var b bytes.Buffer
		say(newRaftLog(zerolog.New(&b).Level(zerolog.DebugLevel)))
		for _, w := range want {
			if !strings.Contains(b.String(), w) {
				t.Errorf("%q lacks %q", b.String(), w)
			}
		}
		if len(want) == 0 && b.Len() > 0 {
			t.Errorf("said %q", b.String())
		}
	}
	f(func(l hclog.Logger) { l.Info("election won", "term", 3) }, `"level":"debug"`, `"term":"3"`, "election won")
	f(func(l hclog.Logger) { l.Error("failed to commit logs", "error", os.ErrClosed) }, `"level":"warn"`, `"error":"file already closed"`)
	f(func(l hclog.Logger) { l.Error("failed to heartbeat to", "peer", "x") }, `"level":"debug"`)
	f(func(l hclog.Logger) { l.Named("wal").With("a", "b").Warn("odd", "lonely") }, `"a":"b"`, `"source":"raft.wal"`)
	f(func(l hclog.Logger) { l.Debug("chatter") })
	f(func(l hclog.Logger) { l.Trace("chatter") })
}

func TestConfigFaultsAreAllNamed(t *testing.T) {
	_, err := New(Config{Voters: 4, ApplyTimeout: time.Second, BootstrapExpect: -1})
	for _, w := range []string{"self", "addr", "layer", "data_dir", "voters", "apply timeout", "bootstrap_expect"} {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%v does not name %s", err, w)
		}
	}
}

func diskLog(t *testing.T) zerolog.Logger {
	if os.Getenv("CONSENSUS_TEST_LOG") == "" {
		return zerolog.Nop()
	}
	return zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.DebugLevel).With().Timestamp().Logger()
}
