package autoscale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hearsay-llm/hearsay/state"
)

var chat = state.TargetKey{Pool: "chat", Role: state.RoleBoth}

// world is a cluster as one leader sees it: a real store, facts that are edited at
// once, and an actuator whose replicas take a while to start.
type world struct {
	t       *testing.T
	now     time.Time
	store   *state.Store
	facts   *state.Facts
	live    []state.RouterID
	seq     uint64
	act     *fake
	roles   map[state.Role]*fake // of a pool with two legs, instead of act
	loop    *Loop
	reg     *prometheus.Registry
	queue   int
	held    map[state.RouterID]int           // requests of 3000 tokens that wait at another router
	traffic map[state.RouterID]state.Traffic // as another router has counted
	boots   map[state.RouterID]state.BootID
	silent  map[state.RouterID]bool
	behind  map[state.RouterID]uint64 // facts that a router is stuck at
	tickets map[state.ReplicaID][]*state.Ticket
	remote  map[state.RouterID]map[state.ReplicaID]int64
	unread  map[state.ReplicaID]bool

	// A leader dies at the step numbered dieAt (0: never), before or after the step
	// has its effect.
	steps, dieAt int
	dieAfter     bool
	log          []string
	differ       bool // routers disagree on the pool
	learned      Capacity

	seat    func(c *Config) // changes what a leader is given
	pending time.Duration

	found map[state.ReplicaID]bool // that discovery listed once
	real  Actuator                 // in the place of act
}

// byRole gives each role its own actuator.
type byRole struct{ w *world }

func (b byRole) of(k state.TargetKey) *fake {
	if a := b.w.roles[k.Role]; a != nil {
		return a
	}
	return b.w.act
}

func (b byRole) List(ctx context.Context, k state.TargetKey) (state.Actual, error) {
	return b.of(k).List(ctx, k)
}

func (b byRole) Ensure(ctx context.Context, d state.Desired) (state.Actual, error) {
	return b.of(d.Target).Ensure(ctx, d)
}

var errDied = errors.New("the leader died")

type instance struct {
	state.Instance
	since time.Time
}

type fake struct {
	w         *world
	prefix    string
	role      state.Role
	epoch     uint64
	decision  uint64
	instances []*instance
	startTime time.Duration
	made      int
	stuck     bool // nothing becomes ready
	broken    error
	refuses   error  // of every start
	meanwhile func() // happens once, while the actuator works

	discovered bool // discovery lists the replicas, under these ids
	asked      int
	turn       map[state.ReplicaID]int
	clings     map[state.ReplicaID]bool // it takes for ever to end
	note       string
}

func (w *world) step(what string, effect func() error) error {
	w.steps++
	if w.steps == w.dieAt && !w.dieAfter {
		return errDied
	}
	err := effect()
	if err == nil {
		w.log = append(w.log, what)
	}
	if w.steps == w.dieAt {
		return errDied
	}
	return err
}

func spec() state.PoolSpec {
	return state.PoolSpec{
		Name: "chat", Model: "m", ScaleMin: 1, ScaleMax: 6, ScaleActuator: "fake",
		ScaleCooldown: time.Minute, ScaleDownWindow: 5 * time.Minute, DrainDeadline: 2 * time.Minute,
	}
}

func newWorld(t *testing.T, s state.PoolSpec) *world {
	w := &world{
		t: t, now: time.Unix(1_000_000, 0), facts: state.NewFacts(), live: []state.RouterID{"r1", "r2", "r3"},
		silent: map[state.RouterID]bool{}, tickets: map[state.ReplicaID][]*state.Ticket{},
		behind: map[state.RouterID]uint64{},
		held:   map[state.RouterID]int{}, traffic: map[state.RouterID]state.Traffic{}, boots: map[state.RouterID]state.BootID{},
		found:  map[state.ReplicaID]bool{},
		remote: map[state.RouterID]map[state.ReplicaID]int64{}, unread: map[state.ReplicaID]bool{},
		pending: 3 * time.Minute,
	}
	w.store = state.NewStore(state.Config{
		Self: "r1", Clock: state.NewClock(1, w.now), Pools: []state.PoolSpec{s}, Now: func() time.Time { return w.now },
	})
	w.act = &fake{w: w, prefix: "fake:", role: state.RoleBoth, startTime: 20 * time.Second}
	w.elect()
	return w
}

// elect begins the next term with a leader that remembers nothing.
func (w *world) elect() {
	w.facts = w.facts.Clone()
	w.facts.Index++
	w.facts.Epoch = w.facts.Index
	w.store.SetFacts(w.facts)
	w.reg = prometheus.NewPedanticRegistry()
	act := Actuator(byRole{w})
	if w.real != nil {
		act = w.real
	}
	cfg := Config{
		Self: "r1", Cluster: w, Committer: w, Actuators: map[string]Actuator{"fake": act},
		Default: Capacity{Requests: 10, PrefillTokens: 10000}, Utilisation: 0.8, PendingDeadline: w.pending,
		Queued:    func(pool string) int { return w.queue + int(w.View().Backlog(w.View().PoolNamed(pool)).Requests) },
		Learned:   func(id state.ReplicaID) (Capacity, bool) { return w.learned, w.learned != Capacity{} },
		Unsettled: func(string) bool { return w.differ }, Registerer: w.reg,
	}
	if w.seat != nil {
		w.seat(&cfg)
	}
	l, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	l.Begin(w.facts.Epoch)
	w.loop = l
}

func (w *world) View() *state.View      { return w.store.View() }
func (w *world) Live() []state.RouterID { return w.live }

// Commit edits the facts with the rules that the loop relies on.
func (w *world) Commit(_ context.Context, c state.Command) error {
	what := string(c.Kind) + " " + string(c.Of)
	switch {
	case c.Decision != nil:
		what = fmt.Sprintf("target %d->%d", c.Decision.From, c.Decision.To)
	case c.Replica != nil:
		what = "add " + string(c.Replica.ID)
	case c.Kind == state.CommandSettle:
		what = "settle " + string(c.Outcome)
	}
	return w.step(strings.TrimSpace(what), func() error { return w.edit(c) })
}

func (w *world) edit(c state.Command) error {
	f := w.facts.Clone()
	f.Index++
	if c.Epoch != f.Epoch {
		return &state.Refusal{Code: state.RefusedStaleEpoch}
	}
	switch c.Kind {
	case state.CommandSetTarget:
		d := *c.Decision
		k := state.TargetKey{Pool: d.Pool, Role: d.Role}
		if last := f.LastDecision(k); last != nil && last.Open() {
			w.t.Errorf("decision %s overlaps %s", d.ID, last.ID)
			return &state.Refusal{Code: state.RefusedOverlap}
		}
		if n, ok := f.Targets[k]; ok && n != d.From {
			return &state.Refusal{Code: state.RefusedChanged}
		}
		d.Index, d.Seen = f.Index, w.now
		f.Targets[k] = d.To
		f.Decisions = append(f.Decisions, d)
	case state.CommandSettle:
		d := f.Decision(c.Settles)
		d.Outcome, d.Detail, d.DoneAt = c.Outcome, c.Detail, c.At
	case state.CommandAddReplica:
		f.Replicas[c.Replica.ID] = *c.Replica
	case state.CommandRemoveReplica:
		delete(f.Replicas, c.Of)
		delete(f.Draining, c.Of)
	case state.CommandDrain:
		d := *c.Drain
		d.Index = f.Index
		f.Draining[c.Of] = d
	case state.CommandUndrain:
		delete(f.Draining, c.Of)
	default:
		w.t.Errorf("unexpected %s", c.Kind)
	}
	w.facts = f
	w.store.SetFacts(f)
	return nil
}

func (a *fake) actual() (x state.Actual) {
	x.Prefix = a.prefix
	if a.discovered {
		x.Prefix, x.Discovered, x.Asked, x.Note = "", true, a.asked, a.note
	}
	for _, i := range a.instances {
		i.Ready = !a.stuck && !i.Stopping && a.w.now.Sub(i.since) >= a.startTime
		i.Turn = a.turn[i.Replica.ID]
		x.Instances = append(x.Instances, i.Instance)
	}
	return x
}

func (a *fake) List(context.Context, state.TargetKey) (state.Actual, error) {
	return a.actual(), a.broken
}

func (a *fake) Ensure(_ context.Context, d state.Desired) (state.Actual, error) {
	if d.Epoch < a.epoch || d.Decision < a.decision {
		return state.Actual{}, state.ErrFenced
	}
	a.epoch, a.decision = d.Epoch, d.Decision
	if f := a.meanwhile; f != nil {
		a.meanwhile = nil
		f()
	}
	if a.discovered {
		return a.ensureDiscovered(d)
	}
	// Stopping ones are gone at the next call.
	a.instances = slices.DeleteFunc(a.instances, func(i *instance) bool { return i.Stopping })
	have := 0
	for _, i := range a.instances {
		if !slices.Contains(d.Remove, i.Replica.ID) {
			have++
			continue
		}
		id := i.Replica.ID
		if err := a.w.step("stop "+string(id), func() error {
			if _, ok := a.w.facts.Draining[id]; !ok {
				a.w.t.Errorf("%s is stopped and does not drain", id)
			}
			i.Stopping = true
			return nil
		}); err != nil {
			return a.actual(), err
		}
	}
	for ; have < d.Want; have++ {
		if a.refuses != nil {
			return a.actual(), a.refuses
		}
		if err := a.w.step("start", func() error {
			a.made++
			a.instances = append(a.instances, &instance{since: a.w.now, Instance: state.Instance{Replica: state.Replica{
				ID: state.ReplicaID(fmt.Sprint(a.prefix, a.made)), Pool: "chat", Role: a.role, URL: fmt.Sprint("http://", a.role, ":", a.made),
			}}})
			return nil
		}); err != nil {
			return a.actual(), err
		}
	}
	return a.actual(), nil
}

// hear lets the other routers' rows and the engines' readings come in.
func (w *world) hear() {
	for _, id := range w.live[1:] {
		if w.silent[id] {
			w.store.DropRouter(id)
			continue
		}
		w.seq++
		m := state.Rows{Router: id, Boot: 2 + w.boots[id], Seq: w.seq, Full: true, FactsIndex: w.facts.Index}
		if n := w.held[id]; n > 0 {
			m.Backlogs = []state.Backlog{{Pool: "chat", Requests: int64(n), Tokens: 3000 * int64(n)}}
		}
		if t, ok := w.traffic[id]; ok {
			m.Traffic = []state.Traffic{t}
		}
		if w.behind[id] != 0 {
			m.FactsIndex = w.behind[id]
		}
		for r, n := range w.remote[id] {
			m.Rows = append(m.Rows, state.Row{Replica: r, Load: state.Load{InFlight: n}})
		}
		w.store.ApplyRows(m)
	}
	for _, p := range w.View().Pools {
		for _, r := range p.Replicas {
			if w.unread[r.ID] {
				continue
			}
			x := state.UnknownReading(r.ID)
			x.OK, x.At = true, w.store.Clock().Stamp(w.now)
			x.Running, x.Waiting = float64(r.Load().InFlight), 0
			w.store.ApplyReading(x)
		}
	}
}

// run lets time pass, a second at a time.
func (w *world) run(d time.Duration) error {
	for range int(d / time.Second) {
		w.now = w.now.Add(time.Second)
		w.hear()
		if err := w.loop.Step(context.Background(), w.now); errors.Is(err, errDied) || over(err) {
			return err
		}
	}
	return nil
}

// until lets time pass until a condition holds.
func (w *world) until(bound time.Duration, what string, ok func() bool) {
	w.t.Helper()
	for t0 := w.now; !ok(); {
		if w.now.Sub(t0) > bound {
			w.t.Fatalf("not within %v: %s; target %v, decisions %+v, reports %+v", bound, what, w.facts.Targets, w.facts.Decisions, w.loop.Reports())
		}
		if err := w.run(time.Second); err != nil {
			w.t.Fatal(err)
		}
	}
}

// load puts n requests on this router's side of a replica, in all.
func (w *world) load(id state.ReplicaID, n int) {
	for len(w.tickets[id]) < n {
		w.tickets[id] = append(w.tickets[id], w.store.Begin(w.View().Replica(id), 0))
		w.tickets[id][len(w.tickets[id])-1].FirstToken()
	}
	for _, t := range w.tickets[id][n:] {
		t.End()
	}
	w.tickets[id] = w.tickets[id][:n]
}

// spread puts n requests evenly on the replicas that there are.
func (w *world) spread(n int) {
	p := poolOf(w.View(), "chat")
	for id := range w.tickets {
		if w.View().Replica(id) == nil {
			delete(w.tickets, id)
		}
	}
	for i, r := range p.Replicas {
		share := n / len(p.Replicas)
		if i < n%len(p.Replicas) {
			share++
		}
		w.load(r.ID, share)
	}
}

func (w *world) target() int { return w.facts.Targets[chat] }

func (w *world) settled() bool {
	d := w.facts.LastDecision(chat)
	return d != nil && !d.Open()
}

func (w *world) running() (n int) {
	for _, i := range w.act.actual().Instances {
		if i.Ready {
			n++
		}
	}
	return n
}

// grown gives a world with n replicas at rest.
func grown(t *testing.T, n int) *world {
	t.Helper()
	s := spec()
	s.ScaleMin = n
	w := newWorld(t, s)
	w.grow(n)
	return w
}

// grow brings a world whose minimum is n to n replicas at rest.
func (w *world) grow(n int) {
	w.t.Helper()
	w.until(2*time.Minute, "the minimum", func() bool { return w.settled() && len(w.facts.Replicas) == n })
	w.store.SetPools([]state.PoolSpec{spec()})
	w.now = w.now.Add(2 * time.Minute) // past the cooldown
	w.elect()
	if err := w.run(2 * time.Second); err != nil {
		w.t.Fatal(err)
	}
	w.log = nil
}

func (w *world) refusal() string {
	w.t.Helper()
	r := w.loop.Reports()
	if len(r) != 1 {
		w.t.Fatalf("%d reports", len(r))
	}
	return r[0].Refusal
}
