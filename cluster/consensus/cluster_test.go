package consensus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is routers on one simulated network, with a gossip that knows at once who
// can reach whom.
type fleet struct {
	t   *testing.T
	net *simnet.Net

	mu      sync.Mutex
	members map[state.RouterID]*member // running ones
	disks   map[state.RouterID]*Memory
	hosts   map[state.RouterID]*simnet.Host
	cuts    map[[2]state.RouterID]bool
	terms   []lease
}

type lease struct {
	router state.RouterID
	epoch  uint64
	from   time.Time
	to     time.Time
}

type member struct {
	*Node
	id    state.RouterID
	stop  context.CancelFunc
	done  chan error
	mu    sync.Mutex
	facts []*state.Facts // published
}

func newFleet(t *testing.T) *fleet {
	return &fleet{
		t: t, net: simnet.New(1), members: map[state.RouterID]*member{}, disks: map[state.RouterID]*Memory{},
		hosts: map[state.RouterID]*simnet.Host{}, cuts: map[[2]state.RouterID]bool{},
	}
}

func (f *fleet) reach(a, b state.RouterID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[a] != nil && f.members[b] != nil && !f.cuts[[2]state.RouterID{a, b}]
}

func (f *fleet) member(id state.RouterID) *member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[id]
}

func (f *fleet) all() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	var l []*member
	for _, id := range slices.Sorted(maps.Keys(f.members)) {
		l = append(l, f.members[id])
	}
	return l
}

func (f *fleet) peers(id state.RouterID) (list []Peer) {
	for _, m := range f.all() {
		if m.id != id && f.reach(id, m.id) {
			fs := m.Facts()
			list = append(list, Peer{ID: m.id, Addr: m.cfg.Addr, ClusterID: fs.ClusterID, FactsIndex: fs.Index})
		}
	}
	return list
}

// start runs a router; with a disk from before if it ran before.
func (f *fleet) start(id state.RouterID, edit func(*Config)) *member {
	f.t.Helper()
	return f.startWith(id, edit, nil)
}

func (f *fleet) startWith(id state.RouterID, edit func(*Config), tweak func(*Node)) *member {
	f.t.Helper()
	f.mu.Lock()
	h := f.hosts[id]
	if h == nil {
		h = f.net.Host(string(id))
		f.hosts[id] = h
		f.disks[id] = NewMemory()
	}
	disk := f.disks[id]
	f.mu.Unlock()
	ln, err := h.Listen("tcp", ":7947")
	if err != nil {
		f.t.Fatal(err)
	}
	m := &member{id: id, done: make(chan error, 1)}
	cfg := Config{
		Self: id, Addr: string(id) + ":7947", Memory: disk, BootstrapExpect: 3, Join: true,
		Layer: NewLayer(ln, func(ctx context.Context, addr string) (net.Conn, error) {
			return h.DialContext(ctx, "tcp", addr)
		}),
		Peers: func() []Peer { return f.peers(id) },
		Publish: func(x *state.Facts) {
			m.mu.Lock()
			m.facts = append(m.facts, x)
			m.mu.Unlock()
		},
		Forward: func(ctx context.Context, to state.RouterID, b []byte) ([]byte, error) {
			if !f.reach(id, to) {
				return nil, errors.New("cut off")
			}
			return f.member(to).HandleForward(ctx, b)
		},
		Fetch: func(_ context.Context, to state.RouterID, have uint64) ([]byte, error) {
			if !f.reach(id, to) {
				return nil, errors.New("cut off")
			}
			return f.member(to).NewsAfter(have), nil
		},
		AskVoters: func(ctx context.Context, to state.RouterID) ([]byte, error) {
			if !f.reach(id, to) {
				return nil, errors.New("cut off")
			}
			return f.member(to).SayVoters(ctx)
		},
		Push: func(_ context.Context, to state.RouterID, news []byte) error {
			if !f.reach(id, to) {
				return errors.New("cut off")
			}
			return f.member(to).HandlePush(id, news)
		},
		OnLead: func(ctx context.Context, epoch uint64) { f.onLead(ctx, id, epoch) },
		Log:    zerolog.Nop(), Registerer: prometheus.NewRegistry(),
	}
	if os.Getenv("CONSENSUS_TEST_LOG") != "" {
		cfg.Log = zerolog.New(zerolog.NewTestWriter(f.t)).Level(zerolog.DebugLevel).With().Str("router", string(id)).Timestamp().Logger()
	}
	if edit != nil {
		edit(&cfg)
	}
	if m.Node, err = New(cfg); err != nil {
		f.t.Fatal(err)
	}
	if tweak != nil {
		tweak(m.Node)
	}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	f.mu.Lock()
	f.members[id] = m
	f.mu.Unlock()
	go func() { m.done <- m.Run(ctx) }()
	return m
}

func (f *fleet) onLead(ctx context.Context, id state.RouterID, epoch uint64) {
	f.mu.Lock()
	i := len(f.terms)
	f.terms = append(f.terms, lease{router: id, epoch: epoch, from: time.Now()})
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	f.terms[i].to = time.Now()
	f.mu.Unlock()
}

// kill stops a router's network first, so that it can say nothing any more.
func (f *fleet) kill(id state.RouterID) {
	m := f.member(id)
	f.mu.Lock()
	delete(f.members, id)
	h := f.hosts[id]
	f.mu.Unlock()
	h.Crash()
	m.stop()
	<-m.done
	h.Restart()
}

func (f *fleet) leave(id state.RouterID) {
	m := f.member(id)
	m.stop()
	if err := <-m.done; err != nil {
		f.t.Errorf("%s: run: %v", id, err)
	}
	f.mu.Lock()
	delete(f.members, id)
	f.mu.Unlock()
}

func (f *fleet) stopAll() {
	for _, m := range f.all() {
		m.stop()
	}
	for _, m := range f.all() {
		if err := <-m.done; err != nil {
			f.t.Errorf("%s: run: %v", m.id, err)
		}
	}
}

// cut separates two groups, or joins them again.
func (f *fleet) cut(on bool, a, b []state.RouterID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range a {
		for _, y := range b {
			f.cuts[[2]state.RouterID{x, y}], f.cuts[[2]state.RouterID{y, x}] = on, on
			if on {
				f.net.Cut(string(x), string(y))
			} else {
				f.net.Heal(string(x), string(y))
			}
		}
	}
}

// until waits for a condition in virtual time and says how long it took.
func (f *fleet) until(bound time.Duration, what string, ok func() bool) time.Duration {
	f.t.Helper()
	t0 := time.Now()
	for !ok() {
		if time.Since(t0) > bound {
			f.t.Fatalf("not within %v: %s", bound, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(t0)
}

func (f *fleet) leader(among ...state.RouterID) *member {
	for _, m := range f.all() {
		if m.Status().State == "leader" && (len(among) == 0 || slices.Contains(among, m.id)) {
			return m
		}
	}
	return nil
}

func (f *fleet) waitLeader(among ...state.RouterID) *member {
	f.t.Helper()
	f.until(20*time.Second, "a leader", func() bool { return f.leader(among...) != nil })
	return f.leader(among...)
}

func (f *fleet) waitVoters(n int) {
	f.t.Helper()
	f.until(time.Minute, fmt.Sprint(n, " voters"), func() bool {
		l := f.leader()
		return l != nil && len(l.Status().Voters) == n
	})
}

func names(n int) (l []state.RouterID) {
	for i := range n {
		l = append(l, state.RouterID(fmt.Sprintf("r%d", i+1)))
	}
	return l
}

func replica(i int) state.Command {
	id := state.ReplicaID(fmt.Sprint("replica", i))
	return state.Command{
		Kind:    state.CommandAddReplica,
		Replica: &state.Replica{ID: id, Pool: "chat", URL: fmt.Sprintf("http://10.0.0.%d:8000", i%256), Role: state.RoleBoth},
	}
}

func bubble(t *testing.T, f func(t *testing.T, f *fleet)) {
	synctest.Test(t, func(t *testing.T) {
		fl := newFleet(t)
		f(t, fl)
		fl.stopAll()
	})
}

// started runs n routers and waits for their voters.
func (f *fleet) started(n, voters int) {
	f.t.Helper()
	for _, id := range names(n) {
		f.start(id, nil)
	}
	f.waitVoters(voters)
}

func must(t *testing.T, m *member, c state.Command) Result {
	t.Helper()
	r, err := m.Apply(context.Background(), c)
	if err != nil {
		t.Fatalf("%s: %s: %v", m.id, c.Kind, err)
	}
	return r
}

// stopAllAndForget stops everybody before the bubble's end does.
func (f *fleet) stopAllAndForget() {
	f.stopAll()
	f.mu.Lock()
	f.members = map[state.RouterID]*member{}
	f.mu.Unlock()
}

func slicesWithout(l []state.RouterID, id state.RouterID) []state.RouterID {
	return slices.DeleteFunc(l, func(x state.RouterID) bool { return x == id })
}
