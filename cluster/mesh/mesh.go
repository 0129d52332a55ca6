package mesh

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// Handler takes one frame's payload, which is only valid during the call. It is
// called from the peer's reader goroutine and holds up that peer's stream while it
// runs. from is the direct sender and boot its present start.
type Handler func(from state.RouterID, boot state.BootID, payload []byte)

// Mesh is one router's end of the streams. Its methods are safe for concurrent
// use.
type Mesh struct {
	cfg     Config
	log     zerolog.Logger
	metrics *metrics

	handlers map[wire.Kind]Handler // written before Run
	onUp     []func(state.RouterID, state.BootID)
	onDown   []func(state.RouterID, state.BootID)
	call     CallHandler
	calls    chan struct{} // slots for calls being served

	keysMu sync.Mutex
	keys   [][]byte // guarded by keysMu; replaced whole

	changed chan struct{} // wanted peers changed; capacity 1
	wg      sync.WaitGroup

	mu       sync.RWMutex
	peers    map[state.RouterID]*peer // guarded by mu
	layers   map[byte]*layer          // guarded by mu
	refusals refusals
}

// New makes a Mesh that does nothing until Run.
func New(cfg Config) (*Mesh, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	return &Mesh{
		cfg:      cfg,
		keys:     cfg.Secret,
		log:      cfg.Log.With().Str("component", "mesh").Logger(),
		metrics:  newMetrics(cfg.Registerer),
		handlers: map[wire.Kind]Handler{},
		calls:    make(chan struct{}, maxServing),
		changed:  make(chan struct{}, 1),
		peers:    map[state.RouterID]*peer{},
		layers:   map[byte]*layer{},
	}, nil
}

// Handle sets who takes frames of a kind. Call it before Run.
func (m *Mesh) Handle(k wire.Kind, h func(from state.RouterID, boot state.BootID, payload []byte)) {
	m.handlers[k] = h
}

// OnUp adds a function called when a stream to a peer is there, before any of its
// frames is handled. Call it before Run; f must not block.
func (m *Mesh) OnUp(f func(state.RouterID, state.BootID)) { m.onUp = append(m.onUp, f) }

// OnDown adds a function called when a stream ended, after the last of its frames
// was handled. Call it before Run; f must not block.
func (m *Mesh) OnDown(f func(state.RouterID, state.BootID)) { m.onDown = append(m.onDown, f) }

// SetPeers says to which routers there should be streams, with their addresses.
// Streams to others that were wanted before are closed. Peers that dial in and
// prove themselves are taken whether they are wanted yet or not.
func (m *Mesh) SetPeers(want map[state.RouterID]string) {
	m.mu.Lock()
	for id, addr := range want {
		if id == m.cfg.Self {
			continue
		}
		p := m.peer(id)
		if !p.wanted || p.addr != addr {
			p.wanted, p.addr = true, addr
			p.signal()
		}
	}
	var drop []*session
	for id, p := range m.peers {
		if _, ok := want[id]; ok || !p.wanted {
			continue
		}
		p.wanted = false
		if p.session != nil {
			drop = append(drop, p.session)
		}
		p.signal()
	}
	m.mu.Unlock()
	for _, s := range drop {
		s.close(errUnwanted)
	}
	m.signal()
}

func (m *Mesh) signal() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// peer finds or makes a peer. The caller holds mu.
func (m *Mesh) peer(id state.RouterID) *peer {
	p := m.peers[id]
	if p == nil {
		p = &peer{id: id, change: make(chan struct{}, 1)}
		m.peers[id] = p
	}
	return p
}

// Send queues a frame for a peer, without blocking. It reports false, and counts
// the drop, when the peer's queue is full or the payload too large; false also
// when there is no stream. The payload is copied.
func (m *Mesh) Send(to state.RouterID, k wire.Kind, payload []byte) bool {
	s := m.session(to)
	return s != nil && s.send(m.cfg.QueueBytes, wire.Frame{Kind: k, Payload: payload})
}

// SendAll is Send for several frames, of which all are queued or none, and which
// leave together.
func (m *Mesh) SendAll(to state.RouterID, frames ...wire.Frame) bool {
	s := m.session(to)
	return s != nil && s.send(m.cfg.QueueBytes, frames...)
}

// Up reports whether there is a stream to the peer.
func (m *Mesh) Up(id state.RouterID) bool { return m.session(id) != nil }

func (m *Mesh) session(id state.RouterID) *session {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if p := m.peers[id]; p != nil {
		return p.session
	}
	return nil
}

// Run accepts and dials until ctx ends, then closes every stream and returns nil;
// it leaves no goroutine behind. It returns early only when the listener breaks.
func (m *Mesh) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	broken := make(chan error, 1)
	m.wg.Go(func() { broken <- m.accept(ctx) })
	stop := context.AfterFunc(ctx, func() { _ = m.cfg.Listener.Close() })
	defer func() {
		cancel()
		if stop() {
			_ = m.cfg.Listener.Close()
		}
		m.closeLayers()
		m.wg.Wait()
		m.closeLayers() // what came in between
	}()
	keepers := map[state.RouterID]context.CancelFunc{}
	for {
		m.reconcile(ctx, keepers)
		select {
		case <-ctx.Done():
			return nil
		case err := <-broken:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case <-m.changed:
		}
	}
}

func (m *Mesh) closeLayers() {
	m.mu.RLock()
	layers := slices.Collect(maps.Values(m.layers))
	m.mu.RUnlock()
	for _, l := range layers {
		_ = l.Close()
	}
}

// reconcile starts and stops the goroutines that keep streams up.
func (m *Mesh) reconcile(ctx context.Context, keepers map[state.RouterID]context.CancelFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, p := range m.peers {
		switch stop := keepers[id]; {
		case p.wanted && stop == nil:
			kctx, cancel := context.WithCancel(ctx)
			keepers[id] = cancel
			m.wg.Go(func() { m.keep(kctx, p) })
		case !p.wanted:
			if stop != nil {
				stop()
				delete(keepers, id)
			}
			if p.session == nil {
				delete(m.peers, id)
			}
		}
	}
}

func (m *Mesh) accept(ctx context.Context) error {
	door := newDoor()
	for {
		conn, err := m.cfg.Listener.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return err
			}
			m.log.Warn().Err(err).Msg("accept failed")
			if !pause(ctx, 50*time.Millisecond) {
				return err
			}
			continue
		}
		host := hostOf(conn)
		if !door.enter(host) {
			m.metrics.drop("handshakes")
			_ = conn.Close()
			continue
		}
		m.wg.Go(func() { m.welcome(ctx, conn, func() { door.leave(host) }) })
	}
}

// welcome handles one accepted connection to its end.
func (m *Mesh) welcome(ctx context.Context, conn net.Conn, shaken func()) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	a, err := m.shake(ctx, conn, false, 0, "", "")
	stop()
	shaken()
	if err != nil {
		m.note(err, conn.RemoteAddr().String(), false)
		_ = conn.Close()
		return
	}
	if a.peer.Proto == protoMesh {
		if w := a.peer.Want; w != "" && w != m.cfg.Self {
			// It looks for the router that was at this address before, and says so itself.
			// The stream that there may be to it stays.
			_ = a.conn.Close()
			return
		}
		_ = m.serve(ctx, a, false)
		return
	}
	m.mu.RLock()
	l := m.layers[a.peer.Proto]
	m.mu.RUnlock()
	if l == nil || !l.offer(&LayerConn{Conn: a.conn, Peer: a.peer.Router}) {
		m.metrics.drop("layer")
		_ = a.conn.Close()
	}
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
