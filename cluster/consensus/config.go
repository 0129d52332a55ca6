package consensus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

// Layer carries Raft's connections: authenticated byte streams between routers.
// Accept yields the peers' connections; Close ends Accept.
type Layer interface {
	net.Listener
	DialContext(ctx context.Context, addr string) (net.Conn, error)
}

// NewLayer joins a listener and a dial function.
func NewLayer(ln net.Listener, dial func(ctx context.Context, addr string) (net.Conn, error)) Layer {
	return joined{ln, dial}
}

type joined struct {
	net.Listener
	dial func(ctx context.Context, addr string) (net.Conn, error)
}

func (j joined) DialContext(ctx context.Context, addr string) (net.Conn, error) {
	return j.dial(ctx, addr)
}

// Peer is another live router, as gossip sees it.
type Peer struct {
	ID         state.RouterID
	Name       string // for logs
	Addr       string // for Layer.DialContext
	ClusterID  string // empty: it has none yet
	FactsIndex uint64 // committed facts it has; 0: unknown
	NoStream   bool   // it can't be asked now, by Fetch, Forward or Push
}

// mayBeOf says that the peer is not known to be of another cluster.
func (p *Peer) mayBeOf(cluster string) bool { return p.ClusterID == "" || p.ClusterID == cluster }

// Config is what a Node needs. Functions are called from the node's goroutines,
// several at once.
type Config struct {
	Self state.RouterID // stable over restarts; also the Raft server id
	Addr string         // where peers' layers reach this one

	// DataDir keeps log, snapshots and the last facts. Unused with Memory.
	DataDir string
	// Memory, if set, keeps everything in it instead. A node started again with
	// the same Memory has its disk back. For tests and throw-away routers.
	Memory *Memory
	// SegmentSize is the size of a log file, preallocated, in bytes. Default 4 MiB:
	// the facts are small, and raft-wal's 64 MiB would be paid by every router.
	SegmentSize int

	Layer Layer // owned by the node from Run on, which closes it

	Voters          int  // wanted voters, odd. Default 3
	BootstrapExpect int  // routers that must see each other at first boot. Default 1
	Join            bool // a join list is configured: never a cluster of one

	// HeartbeatTimeout is how long a follower hears nothing before it stands for
	// election, and a leader nothing of a majority before it gives up. Default 500 ms:
	// a new leader in about 1.1 s. It has to be well above a round trip between two
	// voters. What else waits for peers waits in proportion.
	HeartbeatTimeout time.Duration
	// ElectionTimeout bounds one round of an election. Default HeartbeatTimeout.
	ElectionTimeout time.Duration
	// ApplyTimeout bounds Apply when its context has no earlier deadline. Default
	// 10 s, at least 5 s: disks under load stall for seconds.
	ApplyTimeout time.Duration
	// LeaderWait is how long Apply waits for a leader to appear. Default as exchange
	// says.
	LeaderWait time.Duration
	// TickInterval is how often the leader proves to itself that its log still
	// takes entries. Default 1 s.
	TickInterval time.Duration
	// TickTimeout is how long such an entry may take before the leader gives up
	// leading. Default 5 s, and no less than 2 HeartbeatTimeout: it crosses the link.
	TickTimeout time.Duration
	// SettleAfter is how long the membership must not have changed before a first
	// bootstrap with others. Default 2 s.
	SettleAfter time.Duration
	// StableAfter is how long a router must have been live before it becomes a
	// voter. Default 2 s.
	StableAfter time.Duration
	// DeadAfter is how long a voter must have been away before another takes its
	// place. Default 30 s: longer than a restart.
	DeadAfter time.Duration
	// FollowInterval is how often a learner asks a peer for newer facts. Default
	// 500 ms.
	FollowInterval time.Duration
	// SnapshotThreshold is the number of log entries after which a snapshot is
	// taken. Default 4096.
	SnapshotThreshold uint64

	// Peers lists the other live routers. It must not block.
	Peers func() []Peer
	// Name is what a router calls itself, whether it lives or not; empty: not known.
	// For logs. Nil: as Peers has it. It must not block.
	Name func(state.RouterID) string
	// Publish is given every newer version of the facts, in order. It must not
	// block for long, keep what it is given unchanged, nor call the node.
	Publish func(*state.Facts)
	// Forward carries a command to the leader, whose HandleForward answers. Nil:
	// commands are only taken by the leader itself.
	Forward func(ctx context.Context, leader state.RouterID, payload []byte) ([]byte, error)
	// Fetch asks a peer's NewsAfter, or its FactsAfter where it does not know the other
	// one, for facts newer than have; no bytes and no error mean that it has none. Nil:
	// this router never follows.
	Fetch func(ctx context.Context, peer state.RouterID, have uint64) ([]byte, error)
	// AskVoters asks a peer's SayVoters. Nil: a voter that was removed while it was away
	// finds out by newer facts alone.
	AskVoters func(ctx context.Context, peer state.RouterID) ([]byte, error)
	// Push carries news to a learner, whose HandlePush takes it. Nil: learners find
	// everything out by themselves.
	Push func(ctx context.Context, peer state.RouterID, news []byte) error
	// OnLead runs while this router leads. Its context ends with the term, and the
	// next term waits until it has returned. Nil: nothing runs.
	OnLead func(ctx context.Context, epoch uint64)

	Log        zerolog.Logger
	Registerer prometheus.Registerer // nil: metrics are kept but not registered
}

// segmentSize is the default of Config.SegmentSize.
const segmentSize = 4 << 20

// minApplyTimeout is the least sensible bound of a commit.
const minApplyTimeout = 5 * time.Second

// exchange bounds one exchange with a peer, and a hand-over of leadership: what hangs
// on a cut connection hangs no longer, so that a healed partition converges in seconds.
// It is 4 heartbeat time-outs, 2 s at least and 10 s at most.
func (c *Config) exchange() time.Duration {
	return min(max(2*time.Second, 4*c.HeartbeatTimeout), 10*time.Second)
}

// withDefaults fills in what is not set.
func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if c.SegmentSize == 0 {
		c.SegmentSize = segmentSize
	}
	if c.Voters == 0 {
		c.Voters = 3
	}
	if c.BootstrapExpect == 0 {
		c.BootstrapExpect = 1
	}
	if c.SnapshotThreshold == 0 {
		c.SnapshotThreshold = 4096
	}
	def(&c.HeartbeatTimeout, 500*time.Millisecond)
	def(&c.ElectionTimeout, c.HeartbeatTimeout)
	def(&c.ApplyTimeout, 10*time.Second)
	def(&c.LeaderWait, c.exchange())
	def(&c.TickInterval, time.Second)
	def(&c.TickTimeout, max(5*time.Second, 2*c.HeartbeatTimeout))
	def(&c.SettleAfter, 2*time.Second)
	def(&c.StableAfter, 2*time.Second)
	def(&c.DeadAfter, 30*time.Second)
	def(&c.FollowInterval, 500*time.Millisecond)
	if c.Peers == nil {
		c.Peers = func() []Peer { return nil }
	}
	if c.Publish == nil {
		c.Publish = func(*state.Facts) {}
	}
	return c
}

// Validate joins everything that is wrong with the configuration, defaults
// filled in.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.Self == "", "self is empty")
	bad(c.Addr == "", "addr is empty")
	bad(c.Layer == nil, "layer is missing")
	bad(c.DataDir == "" && c.Memory == nil, "data_dir is empty")
	bad(c.Voters < 1 || c.Voters > 9 || c.Voters%2 == 0, "voters: %d is not an odd number from 1 to 9", c.Voters)
	bad(c.BootstrapExpect < 1, "bootstrap_expect: %d is less than 1", c.BootstrapExpect)
	bad(c.ApplyTimeout < minApplyTimeout, "apply timeout: %v is less than %v", c.ApplyTimeout, minApplyTimeout)
	bad(c.HeartbeatTimeout < 20*time.Millisecond, "heartbeat timeout: %v is less than 20ms", c.HeartbeatTimeout)
	bad(c.ElectionTimeout < c.HeartbeatTimeout, "election timeout: %v is less than the heartbeat timeout", c.ElectionTimeout)
	bad(c.SegmentSize < 64<<10, "segment size: %d is less than 64 KiB", c.SegmentSize)
	return errors.Join(errs...)
}
