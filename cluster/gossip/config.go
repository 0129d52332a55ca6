package gossip

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/sketch"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// Store is the part of state.Store that gossip reads and writes.
type Store interface {
	View() *state.View
	OwnRows(dst []state.Row) []state.Row
	OwnBacklogs(dst []state.Backlog) []state.Backlog
	OwnTraffic(dst []state.Traffic) []state.Traffic
	Changed() <-chan struct{}
	Clock() *state.Clock

	Batch(f func())
	ApplyRows(state.Rows) (news bool)
	Reinstate(state.RouterID, state.BootID) (was bool)
	ApplyReading(state.Reading) (news bool)
	DropRouter(state.RouterID)
	DropSilent(before time.Time) []state.RouterID
}

// Index is the part of sketch.Index that gossip reads and writes.
type Index interface {
	Apply(op sketch.Op, now time.Time) (news bool)
	DropBoot(boot state.BootID, now time.Time)
	Running(boot state.BootID, running func(placement uint64) bool, now time.Time)
	Journal() *sketch.Journal
	Snapshot(yield func(sketch.Op) bool)
	Restamp(op sketch.Op, now time.Time) (sketch.Op, bool)
}

// Mesh is where frames go out.
type Mesh interface {
	// Send queues a frame without blocking; false: not taken.
	Send(to state.RouterID, k wire.Kind, payload []byte) bool
	// SendAll queues all frames, to leave together, or none.
	SendAll(to state.RouterID, frames ...wire.Frame) bool
	// SetPeers says to which routers streams should exist, with their addresses.
	SetPeers(map[state.RouterID]string)
}

// Events is where frames and streams come from; Attach registers with it.
type Events interface {
	Handle(k wire.Kind, h func(from state.RouterID, boot state.BootID, payload []byte))
	OnUp(func(state.RouterID, state.BootID))
	OnDown(func(state.RouterID, state.BootID))
}

// Config is what a Gossip needs. The zero value of every duration and bound is
// its default.
type Config struct {
	Self    state.RouterID  // at most 128 bytes
	Name    string          // for people
	Cluster string          // label; other clusters' members are not seen
	Scheme  string          // of prefix hashing; routers of another are refused
	Version uint64          // wire version to speak, wire.MinVersion to wire.Version; default wire.Version
	Secret  [][]byte        // shared keys, the one to use first; empty: membership travels in the clear; see SetSecrets
	Join    []string        // host:port of peers' membership ports; tried for ever
	More    func() []string // further peers like Join, as of now; called again and again, from one goroutine; nil: none
	Allow   []net.IPNet     // from where members may be; empty: anywhere

	MeshAddr string // host:port where peers dial the mesh; an empty host is the advertised one
	APIAddr  string // likewise, for people
	// AdminAddr is where operators ask, for people; likewise. Loopback: on this host alone.
	AdminAddr string

	// Packets and Listener are the membership port's, closed by Run.
	Packets  net.PacketConn
	Listener net.Listener
	Dial     func(ctx context.Context, addr string) (net.Conn, error)
	// Resolve turns a host name into addresses; nil: the system's resolver.
	Resolve func(ctx context.Context, host string) ([]string, error)
	// Advertise is the host:port peers reach the membership port at; empty: the
	// listener's, or this machine's first address when that is unspecified.
	Advertise string

	Lessons Lessons // nil: none are told or learned

	Log        zerolog.Logger
	Registerer prometheus.Registerer // nil: no metrics

	RowsEvery    time.Duration // least time between two messages of changed rows; default 10 ms
	FullEvery    time.Duration // between full rows; default 1 s
	OpsEvery     time.Duration // sketch ops wait so long, ten times when they are many; default 10 ms
	BeaconEvery  time.Duration // default 1 s
	RejoinEvery  time.Duration // default 1 s
	Silence      time.Duration // after it a router's rows go; default 2 s
	Remember     time.Duration // the dead, and tried to rejoin, for so long; default 1 h
	WarmBound    time.Duration // ready after it without a snapshot; default 5 s
	SnapshotRate int           // bytes a second, all peers together; default 8 MiB
	LessonRate   int           // own lessons told a second; of more a random part; default 64
	AllPairs     int           // up to so many routers each has a stream to every other; default 128
}

// defaultAllPairs is where a stream to every other router begins to cost more than
// what is passed on by several: flooding crosses every stream, so that at 48 routers
// few streams carry 2.5 times of what all carry.
const defaultAllPairs = 128

// Validate joins all faults.
func (c *Config) Validate() error {
	var errs []error
	for _, f := range []struct {
		bad  bool
		what string
	}{
		{c.Self == "" || len(c.Self) > 128, "router id is empty or longer than 128 bytes"},
		{len(c.Cluster) > 255, "cluster name is longer than 255 bytes"},
		{c.Packets == nil || c.Listener == nil, "membership port is missing"},
		{c.Dial == nil, "dial function is missing"},
		{c.MeshAddr == "", "mesh address is missing"},
		{c.Version != 0 && (c.Version < wire.MinVersion || c.Version > wire.Version), "wire version is not one of ours"},
	} {
		if f.bad {
			errs = append(errs, errors.New(f.what))
		}
	}
	for _, addr := range c.Join {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, checkSecrets(c.Secret))...)
}

func (c *Config) setDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.RowsEvery, 10*time.Millisecond)
	def(&c.FullEvery, time.Second)
	def(&c.OpsEvery, 10*time.Millisecond)
	def(&c.BeaconEvery, time.Second)
	def(&c.RejoinEvery, time.Second)
	def(&c.Silence, 2*time.Second)
	def(&c.Remember, time.Hour)
	def(&c.WarmBound, 5*time.Second)
	if c.Version == 0 {
		c.Version = wire.Version
	}
	if c.SnapshotRate <= 0 {
		c.SnapshotRate = 8 << 20
	}
	if c.LessonRate <= 0 {
		c.LessonRate = 64
	}
	if c.AllPairs <= 0 {
		c.AllPairs = defaultAllPairs
	}
	if c.Resolve == nil {
		c.Resolve = net.DefaultResolver.LookupHost
	}
}
