package gossip

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// Gossip is one router's part in spreading news. Its methods are safe for
// concurrent use.
type Gossip struct {
	cfg     Config
	log     zerolog.Logger
	metrics *metrics
	store   Store
	index   Index
	mesh    Mesh
	boot    state.BootID
	clock   *state.Clock
	roster  *roster

	inbox         chan inbound
	streamChanges atomic.Uint64 // streams that came or went

	stopped chan struct{} // closed when Run ends: nothing is taken any more
	poke    chan struct{} // something for the sender to look at; capacity 1
	ready   chan struct{}
	warm    sync.Once

	mu      sync.Mutex
	peers   map[state.RouterID]*peer    // guarded by mu; those with a stream
	byAll   map[state.BootID]bool       // guarded by mu; see heardByAll; emptied when peers, or what they hear, change
	heard   map[state.RouterID]hearsay  // guarded by mu; what came last of each router
	cursors map[state.BootID]cursor     // guarded by mu; how much of each journal is here
	retired map[state.BootID]time.Time  // guarded by mu; boots that are over
	fresh   map[state.ReplicaID]reading // guarded by mu; readings to tell
	relay   []relayed                   // guarded by mu; news to pass on
	loads   map[state.BootID]*load      // guarded by mu; rows to pass on, by origin
	source  state.RouterID              // guarded by mu; whose snapshot we wait for
	synced  bool                        // guarded by mu; a first snapshot was applied
	greet   bool                        // guarded by mu; a stream came up, or facts changed: full rows are due
	resume  bool                        // guarded by mu; a peer said where to begin
	say     bool                        // guarded by mu; a beacon is due: whom we hear has changed
	again   bool                        // guarded by mu; a peer has lost an origin
	out     outbox                      // the sender goroutine's own
	taught  map[state.BootID]*taught    // the apply loop's own
}

// peer is a router we have a stream to. All fields are guarded by Gossip.mu.
type peer struct {
	id    state.RouterID
	boot  state.BootID
	upAt  time.Time
	hears map[state.BootID]struct{} // whose news it gets otherwise
	lost  []state.BootID            // those it heard until lately
	has   map[state.BootID]uint64   // the last rows it passed on to us, by origin
	knows map[state.BootID]uint64   // the last op it passed on to us, by origin
	speak uint64                    // its wire version, as far as it said

	told  wire.Table // the sender goroutine's own: what our stream to it told
	heard wire.Table // the apply loop's own: what its stream to us told
	lists *lists     // the apply loop's own: of the snapshot that it is sending us
	again bool       // told is to start over

	// Its reading of our journal.
	following bool   // it said where to begin
	cursor    uint64 // next position to look at
	sent      uint64 // position up to which it was told
	snapshot  *snapshot
	chunk     int            // next of the snapshot to send
	closing   bool           // the snapshot is sent; its end is when the journal since then is
	beganAt   time.Time      // the sender goroutine's own: its last snapshot
	saidHears []state.BootID // the sender goroutine's own: whose news we said we hear
	untaught  bool           // it waits for summaries of what was learned
	lessons   [][]byte       // the sender goroutine's own: those it was not sent yet

	askedAt time.Time // we asked it to resume
}

// needs says that a peer gets an origin's news only if somebody passes it on, and
// not from the router it came from. The caller holds Gossip.mu.
func (p *peer) needs(origin state.BootID, from state.RouterID) bool {
	if p.id == from || p.boot == origin {
		return false
	}
	_, hears := p.hears[origin]
	return !hears
}

// relayAfter is how long a stream is up before rows and readings are relayed on
// it: by then its peer has said whom it hears. Full rows bridge the time.
const relayAfter = 2500 * time.Millisecond

// hearsay is what came last of a router, from itself or relayed.
type hearsay struct {
	boot   state.BootID
	at     time.Time
	rowsAt time.Time     // rows that were news
	delay  time.Duration // of its rows, smoothed
}

// cursor is how far a peer's journal has been applied here.
type cursor struct {
	next uint64
	open bool // the first frame may begin anywhere
}

type reading struct {
	state.Reading
	from state.RouterID // direct sender; empty: our own
}

// relayed is a message to pass on to those who do not hear its origin.
type relayed struct {
	kind    wire.Kind
	payload []byte
	origin  state.BootID
	from    state.RouterID
}

// Bounds of what is kept between two turns.
const (
	inboxSize  = 4096
	maxRelay   = 1024
	maxFresh   = 1 << 14
	maxCursors = 1024
	maxRetired = 1024
)

// New makes a Gossip that does nothing until Run. Register its handlers with
// Attach before the mesh runs.
func New(cfg Config, store Store, index Index, mesh Mesh) (*Gossip, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	log := cfg.Log.With().Str("component", "gossip").Logger()
	clock := store.Clock()
	g := &Gossip{
		cfg: cfg, log: log, metrics: newMetrics(cfg.Registerer),
		store: store, index: index, mesh: mesh, boot: clock.Boot(), clock: clock,
		inbox: make(chan inbound, inboxSize), stopped: make(chan struct{}), poke: make(chan struct{}, 1),
		ready: make(chan struct{}), peers: map[state.RouterID]*peer{}, byAll: map[state.BootID]bool{}, heard: map[state.RouterID]hearsay{},
		cursors: map[state.BootID]cursor{}, retired: map[state.BootID]time.Time{},
		fresh: map[state.ReplicaID]reading{}, loads: map[state.BootID]*load{}, taught: map[state.BootID]*taught{},
	}
	g.roster = &roster{
		cfg: &g.cfg, log: log, metrics: g.metrics, changed: g.wake, packet: g.packet, secrets: cfg.Secret,
		failed: map[string]failure{}, joined: map[string]bool{}, refused: map[state.RouterID]Refused{},
		members: map[state.RouterID]*member{}, warned: map[string]time.Time{}, hints: map[state.RouterID]string{},
		meta: wire.AppendMeta(nil, &wire.Meta{
			Boot: g.boot, MinVersion: wire.MinVersion, Version: cfg.Version, Scheme: cfg.Scheme,
			MeshAddr: cfg.MeshAddr, APIAddr: cfg.APIAddr, AdminAddr: cfg.AdminAddr, Name: cfg.Name,
		}),
	}
	ip, port, err := advertised(&g.cfg)
	if err != nil {
		return nil, fmt.Errorf("no address to advertise: %w", err)
	}
	g.roster.ip, g.roster.port = ip, port
	g.out = newOutbox(time.Now())
	if cfg.Registerer != nil {
		if err := cfg.Registerer.Register(newCollector(g)); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return g, nil
}

// Attach registers what takes frames and streams. Call it before the mesh runs.
func (g *Gossip) Attach(e Events) {
	for _, k := range kinds {
		if k >= wire.KindLessons && g.cfg.Version < tableVersion {
			break
		}
		e.Handle(k, func(from state.RouterID, boot state.BootID, payload []byte) { g.frame(k, from, boot, payload) })
	}
	e.OnUp(g.up)
	e.OnDown(g.down)
}

// Ready is closed once the first snapshot of another router was applied, or the
// warm bound is over, or at once when no peers are configured.
func (g *Gossip) Ready() <-chan struct{} { return g.ready }

// FactsChanged tells the others at once that this router has applied newer
// committed facts, so that those who follow ask for them. It never blocks.
func (g *Gossip) FactsChanged() {
	g.mu.Lock()
	g.greet = true
	g.mu.Unlock()
	g.wake()
}

// PublishReading tells the others of a reading this router took. It never blocks.
func (g *Gossip) PublishReading(r state.Reading) {
	g.mu.Lock()
	g.keepReading(reading{Reading: r})
	g.mu.Unlock()
	g.wake()
}

// keepReading holds a reading for the sender's next turn, the latest per replica.
// The caller holds mu.
func (g *Gossip) keepReading(r reading) {
	if _, ok := g.fresh[r.Replica]; !ok && len(g.fresh) >= maxFresh {
		g.metrics.drop("queue")
		return
	}
	g.fresh[r.Replica] = r
}

func (g *Gossip) wake() {
	select {
	case g.poke <- struct{}{}:
	default:
	}
}

// Run joins, tells and listens until ctx ends, then leaves and returns nil. It
// leaves no goroutine behind. It returns an error at once when membership cannot
// start.
func (g *Gossip) Run(ctx context.Context) error {
	defer close(g.stopped)
	if err := g.roster.start(); err != nil {
		return err
	}
	if len(g.cfg.Join) == 0 && g.cfg.More == nil {
		g.warm.Do(func() { close(g.ready) })
	}
	var wg sync.WaitGroup
	wg.Go(func() { g.apply(ctx) })
	wg.Go(func() { g.tell(ctx) })
	wg.Go(func() { g.roster.rejoin(ctx) })
	<-ctx.Done()
	g.goodbye()
	g.roster.stop()
	wg.Wait()
	return nil
}

// Member is one router as this one knows it, for status.
type Member struct {
	ID       state.RouterID
	Name     string
	Self     bool
	State    MemberState
	Since    time.Time // of the state
	Addr     string    // membership
	MeshAddr string
	APIAddr  string
	Admin    string // address; of loopback: on its own host; empty: it does not tell
	Boot     state.BootID
	Version  uint64 // wire
	Scheme   string
	Stream   bool      // a mesh stream exists
	Heard    time.Time // last time anything of it came; zero: never
	Degraded string    // empty: nothing wrong; else one of the reasons
	JoinErr  string    // not alive: why it can't be made a member again at present; empty: nothing is known
	Answers  bool      // it refuses, or is refused, for JoinErr; else nobody answers, or the cause is not known
	Behind   uint64    // journal positions it was not told of yet

	RowsAt time.Time     // last time rows of it came; zero: never
	Delay  time.Duration // from sending to application of its rows here, smoothed, less the fastest seen
}

// Members lists all routers, this one included, in id order.
func (g *Gossip) Members() []Member {
	now := time.Now()
	self := Member{
		ID: g.cfg.Self, Name: g.cfg.Name, Self: true, State: Alive, Since: g.clock.Time(0),
		Addr: g.roster.self(), MeshAddr: dialable(g.cfg.MeshAddr, g.roster.ip), APIAddr: dialable(g.cfg.APIAddr, g.roster.ip), Admin: dialable(g.cfg.AdminAddr, g.roster.ip), Boot: g.boot,
		Version: g.cfg.Version, Scheme: g.cfg.Scheme, Heard: now,
	}
	head := g.index.Journal().Head()
	list := []Member{self}
	members, failed := g.roster.snapshot(), g.roster.failures(now)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range members {
		x := Member{
			ID: m.id, Name: m.meta.Name, State: m.state, Since: m.since, Addr: m.node.Address(),
			MeshAddr: dialable(m.meta.MeshAddr, m.node.Addr), APIAddr: dialable(m.meta.APIAddr, m.node.Addr), Admin: dialable(m.meta.AdminAddr, m.node.Addr),
			Boot: m.meta.Boot, Version: m.meta.Version, Scheme: m.meta.Scheme,
			Heard: g.heard[m.id].at, Degraded: g.degraded(&m, now), RowsAt: g.heard[m.id].rowsAt, Delay: g.heard[m.id].delay,
		}
		if f := failed[x.Addr]; m.state != Alive {
			x.JoinErr, x.Answers = f.why, f.answer
		}
		if p := g.peers[m.id]; p != nil {
			x.Stream = true
			if p.following {
				x.Behind = head - min(head, p.cursor)
			}
		}
		list = append(list, x)
	}
	return sortMembers(list)
}

// Name is what a router calls itself, as far as membership remembers it; empty: not
// known.
func (g *Gossip) Name(id state.RouterID) string {
	if id == g.cfg.Self {
		return g.cfg.Name
	}
	return g.roster.name(id)
}

// Bounds past which a member is called degraded.
const (
	streamGrace = 4 * time.Second
	udpGrace    = 20 * time.Second
)

// degraded says what does not pass between us and a member. The caller holds mu.
func (g *Gossip) degraded(m *member, now time.Time) string {
	p := g.peers[m.id]
	switch {
	case m.state == Left:
		return ""
	case m.state == Dead:
		if p != nil {
			return NotMember
		}
		return ""
	case p == nil && g.out.wanted[m.id] && now.Sub(m.since) > streamGrace:
		return NoStream
	case p != nil && (m.quiet || g.udpQuiet(m, p, now)):
		return UDPBlocked
	case now.Sub(m.since) > streamGrace && now.Sub(g.heard[m.id].at) > g.cfg.Silence:
		return Silent
	}
	return ""
}

// udpQuiet says that none of a member's datagrams came for a while.
func (g *Gossip) udpQuiet(m *member, p *peer, now time.Time) bool {
	return now.Sub(later(later(m.heard, m.since), p.upAt)) > udpGrace
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// dialable puts the member's own address where one has no host.
func dialable(addr string, ip net.IP) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if p := net.ParseIP(host); host == "" || p != nil && p.IsUnspecified() {
		return net.JoinHostPort(ip.String(), port)
	}
	return addr
}

// pause waits for d, and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// jitter is d, give or take a fifth, so that routers do not act in step.
func jitter(d time.Duration) time.Duration {
	return d - d/5 + rand.N(2*d/5+1)
}
