package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

// workers bounds the futures that are waited for at once.
const workers = 16

// Node is one router's part in the agreement. Its methods may be called from any
// goroutine, before Run too.
type Node struct {
	cfg     Config
	log     zerolog.Logger
	ledger  *ledger
	office  office
	tasks   chan task
	hurry   chan state.RouterID // capacity 1: fetch facts from it now
	urgent  chan struct{}       // capacity 1: there is something to push
	resign  chan struct{}       // capacity 1: full while leadership is handed over
	ended   chan struct{}       // closed when Raft takes no more tasks
	leaving departures
	gone    removal
	line    atomic.Uint64             // Facts.Recovered of what this router's own log holds
	raft    atomic.Pointer[raft.Raft] // nil unless Run runs
	open    func(*Node) (*disk, error)
	prove   func(context.Context) error // before a read: that it leads, and has applied all there was
	// Set by Run before it starts anything that reads them.
	began  time.Time // of Raft
	stream *stream
	trans  raft.Transport
}

// New checks the configuration and starts nothing.
func New(cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("consensus: %w", err)
	}
	cfg = cfg.withDefaults()
	n := &Node{
		cfg:    cfg,
		log:    cfg.Log.With().Str("component", "consensus").Logger(),
		ledger: newLedger(cfg.Publish),
		office: office{wake: make(chan struct{}, 1)},
		tasks:  make(chan task),
		hurry:  make(chan state.RouterID, 1),
		urgent: make(chan struct{}, 1),
		resign: make(chan struct{}, 1),
		ended:  make(chan struct{}),
		open: func(n *Node) (*disk, error) {
			if n.cfg.Memory != nil {
				return openMemory(n.cfg.Memory), nil
			}
			return openDir(n.cfg.DataDir, n.cfg.SegmentSize, newRaftLog(n.log))
		},
	}
	n.prove = n.barrier
	if err := newMetrics(cfg.Registerer, n); err != nil {
		return nil, fmt.Errorf("consensus: %w", err)
	}
	return n, nil
}

// Facts are the newest this router knows. They must not be changed.
func (n *Node) Facts() *state.Facts { return n.ledger.current() }

// Run takes part until ctx ends: it then ends the term if it has one, hands
// leadership over, and stops. It returns an error only if it could not start or
// stop cleanly. Call it once.
func (n *Node) Run(ctx context.Context) (err error) {
	d, err := n.open(n)
	if err != nil {
		return errors.Join(err, n.cfg.Layer.Close())
	}
	defer func() { err = errors.Join(err, d.close()) }()
	last, err := d.lastFacts()
	if err != nil {
		// The Raft log or a peer brings them back; without either there is nothing
		// better than to start empty.
		n.log.Warn().Err(err).Msg("last facts are unreadable")
	}
	if last != nil {
		n.ledger.offer(last, nil)
	}

	n.stream = newStream(n.cfg.Layer, n.cfg.Self, n.cfg.Addr, n.line.Load, func() uint64 { return n.ledger.current().Recovered })
	n.stream.removed = func() bool { r := n.raft.Load(); return r != nil && n.removed(r) }
	// No pipelining (one request in flight): a few commits a second need none, and
	// in raft 1.8 a sender whose decoder has left on a newer term blocks for ever,
	// and with it Shutdown.
	trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: n.stream, ServerAddressProvider: &addresses{peers: n.cfg.Peers, seen: map[state.RouterID]string{n.cfg.Self: n.cfg.Addr}},
		MaxPool: 3, MaxRPCsInFlight: 1, Timeout: n.cfg.exchange(), Logger: newRaftLog(n.log),
	})
	n.trans = trans
	var fsm *machine
	fsm = newMachine(func(f *state.Facts) {
		n.line.Store(f.Recovered)
		n.ledger.offer(f, fsm.by)
		if r := n.raft.Load(); r != nil && len(fsm.by) > 0 && fsm.by[0].urgent && r.State() == raft.Leader {
			select {
			case n.urgent <- struct{}{}:
			default:
			}
		}
	})
	had, err := raft.HasExistingState(d.logs, d.stable, d.snapshots)
	if err != nil {
		return errors.Join(fmt.Errorf("read raft state: %w", err), trans.Close())
	}
	notify := make(chan bool, 1)
	r, err := raft.NewRaft(n.raftConfig(notify), fsm, d.logs, d.stable, d.snapshots, trans)
	if err != nil {
		return errors.Join(fmt.Errorf("start raft: %w", err), trans.Close())
	}
	n.began = time.Now()
	n.raft.Store(r)

	// Those of loops act until ctx ends, workers as long as Raft may be asked, and
	// helpers are needed until Raft itself has stopped.
	var loops, asking, helpers sync.WaitGroup
	help, stopHelp := context.WithCancel(context.WithoutCancel(ctx))
	helpers.Go(func() { n.office.read(help, notify) })
	for range workers {
		asking.Go(func() { n.work(r) })
	}
	helpers.Go(func() { n.save(help, d) })
	loops.Go(func() { n.lead(ctx) })
	if !had {
		loops.Go(func() { n.boot(ctx, r) })
	}
	if n.cfg.Fetch != nil {
		loops.Go(func() { n.follow(ctx, r) })
	}
	if n.cfg.Push != nil {
		loops.Go(func() { n.push(ctx) })
	}

	<-ctx.Done()
	loops.Wait()
	if err := n.handOver(context.WithoutCancel(ctx)); err != nil {
		n.log.Warn().Err(err).Msg("leadership not handed over")
	}
	n.stream.cut() // what waits for a peer waits no longer
	// Raft 1.8 leaves futures unanswered that are in its queues when it stops
	// (transfers, verifications, entries on the way to the state machine). As long as
	// it runs it answers all of them, so it stops when nothing is asked any more.
	close(n.ended)
	asking.Wait()
	err = errors.Join(n.stream.Close(), r.Shutdown().Error(), trans.Close())
	n.raft.Store(nil)
	stopHelp()
	helpers.Wait()
	return err
}

func (n *Node) raftConfig(notify chan<- bool) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(n.cfg.Self)
	c.HeartbeatTimeout = n.cfg.HeartbeatTimeout
	c.ElectionTimeout = n.cfg.ElectionTimeout
	c.LeaderLeaseTimeout = n.cfg.HeartbeatTimeout
	c.CommitTimeout = max(time.Millisecond, min(c.CommitTimeout, n.cfg.HeartbeatTimeout/10))
	c.SnapshotThreshold = n.cfg.SnapshotThreshold
	c.TrailingLogs = max(256, n.cfg.SnapshotThreshold/4)
	c.ShutdownOnRemove = false // a router that is voted out becomes a learner
	c.NotifyCh = notify
	c.NoLegacyTelemetry = true
	c.Logger = newRaftLog(n.log)
	return c
}

// Resign hands leadership to another voter, if this router has it and there is one,
// and returns when that has happened or is not to be had within one exchange. The router goes
// on as a voter: it follows, forwards commands, and may be elected again. For one
// that is about to stop, so that there is a leader while its requests run out.
func (n *Node) Resign(ctx context.Context) error { return n.handOver(ctx) }

func (n *Node) handOver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.exchange())
	defer cancel()
	select {
	case n.resign <- struct{}{}:
		defer func() { <-n.resign }()
	case <-ctx.Done():
		return fmt.Errorf("hand over leadership: %w", ctx.Err())
	}
	r := n.raft.Load()
	if r == nil || r.State() != raft.Leader || len(n.voters(r)) < 2 {
		return nil
	}
	// With a stuck log this ends when the log goes on, hence on a worker.
	if _, err := n.wait(ctx, func(r *raft.Raft) (any, error) { return nil, r.LeadershipTransfer().Error() }); err != nil {
		return fmt.Errorf("hand over leadership: %w", err)
	}
	n.log.Info().Msg("leadership handed over")
	return nil
}

// task is something to be waited for that ends when Raft says so.
type task struct {
	ctx  context.Context // of the caller, who may have given up before it starts
	do   func(*raft.Raft) (any, error)
	done chan<- answer // capacity 1
}

type answer struct {
	value any
	err   error
}

// errNotStarted says that a task surely had no effect.
var errNotStarted = errors.New("not started")

// errAbandoned says that a task was started and its end not seen.
var errAbandoned = errors.New("not ended in time")

func (n *Node) work(r *raft.Raft) {
	for {
		select {
		case <-n.ended:
			return
		case t := <-n.tasks:
			if t.ctx.Err() != nil {
				t.done <- answer{err: errNotStarted}
				continue
			}
			v, err := t.do(r)
			t.done <- answer{v, err}
		}
	}
}

// wait runs do on a worker and waits for it as long as ctx allows.
func (n *Node) wait(ctx context.Context, do func(*raft.Raft) (any, error)) (any, error) {
	a, err := n.start(ctx, do)
	if err != nil {
		return nil, err
	}
	select {
	case x := <-a:
		return x.value, x.err
	case <-ctx.Done():
		return nil, errAbandoned
	}
}

// start hands do to a worker, whose answer will come on the channel.
func (n *Node) start(ctx context.Context, do func(*raft.Raft) (any, error)) (<-chan answer, error) {
	if n.raft.Load() == nil {
		return nil, errNotStarted
	}
	done := make(chan answer, 1)
	select {
	case n.tasks <- task{ctx, do, done}:
		return done, nil
	case <-n.ended:
		return nil, errNotStarted
	case <-ctx.Done():
		return nil, errNotStarted
	}
}
