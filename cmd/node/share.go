package node

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/consensus"
	"github.com/hearsay-llm/hearsay/cluster/gossip"
	"github.com/hearsay-llm/hearsay/cluster/mesh"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// newGossip makes membership and sharing over the mesh.
func (n *Node) newGossip(members net.Listener, keys [][]byte, meshAddr string) error {
	packets, err := n.deps.ListenPacket("udp", members.Addr().String())
	if err != nil {
		return err
	}
	n.closers = append(n.closers, func() { _ = packets.Close() })
	store := Shared(n.store, func(r state.Reading, now time.Time) { n.observe.Note(r, now) })
	var index gossip.Index = n.index
	var lessons gossip.Lessons = n.lessons
	if !n.cfg.Cluster.Sharing {
		lessons = nil
		store, index = Mute(n.store)
	}
	n.gossip, err = gossip.New(gossip.Config{
		Self: n.id, Name: n.cfg.Node.Name, Cluster: n.cfg.Cluster.Name, Scheme: scheme, Secret: keys,
		Join: n.cfg.Cluster.Join, More: n.moreToJoin(), MeshAddr: meshAddr, APIAddr: advertisedAddr(n.apiListener, n.cfg.Listen.API),
		AdminAddr: advertisedAddr(n.adminListener, n.cfg.Listen.Admin),
		Packets:   packets, Listener: members, Advertise: n.clusterAddr,
		Dial:    func(ctx context.Context, addr string) (net.Conn, error) { return n.deps.Dial(ctx, "tcp", addr) },
		Resolve: n.deps.Resolve, Lessons: lessons,
		Log: n.log, Registerer: n.reg,
	}, store, index, n.mesh)
	if err != nil {
		return err
	}
	n.gossip.Attach(n.mesh)
	return nil
}

// scheme names the prefix hashing; routers of another can't share sketches.
var scheme = strconv.Itoa(int(prefix.SchemeVersion))

// advertisedAddr is a listener's host:port as others are told it, the host empty where
// it listens on all.
func advertisedAddr(ln net.Listener, configured string) string {
	host, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		return configured
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = ""
	}
	return net.JoinHostPort(host, port)
}

// warm reports whether the first snapshot of another router was applied, or need
// not be waited for.
func (n *Node) warm() bool {
	select {
	case <-n.gossip.Ready():
		return true
	default:
		return false
	}
}

// publish tells the others of a reading this router took.
func (n *Node) publish(r state.Reading) {
	if n.cfg.Cluster.Sharing {
		n.gossip.PublishReading(r)
	}
}

// peers lists the other live routers of this cluster.
func (n *Node) peers() []consensus.Peer {
	facts := map[state.RouterID]uint64{}
	v := n.store.View()
	for i := range v.Routers {
		facts[v.Routers[i].ID] = v.Routers[i].FactsIndex
	}
	var out []consensus.Peer
	for _, m := range n.gossip.Members() {
		// A router of another cluster may be a member, but it is none of ours: it never
		// has our facts and can't vote here.
		if m.Self || m.State != gossip.Alive || n.mesh.Refused(m.ID) == mesh.ReasonClusterID {
			continue
		}
		out = append(out, consensus.Peer{ID: m.ID, Name: m.Name, Addr: m.MeshAddr, ClusterID: n.mesh.ClusterID(m.ID), FactsIndex: facts[m.ID], NoStream: !m.Stream})
	}
	return out
}

// streams lists the routers that can be called.
func (n *Node) streams() (list []state.RouterID) {
	for _, m := range n.gossip.Members() {
		if !m.Self && m.Stream {
			list = append(list, m.ID)
		}
	}
	return list
}

// Members lists the routers, this one included.
func (n *Node) Members() []console.Member {
	raft := n.raft.Status()
	voters := map[state.RouterID]bool{}
	for _, v := range raft.Voters {
		voters[v.ID] = true
	}
	v, now := n.store.View(), time.Now()
	rows := map[state.RouterID]*state.RouterView{}
	for i := range v.Routers {
		rows[v.Routers[i].ID] = &v.Routers[i]
	}
	rtts, refused := map[state.RouterID]time.Duration{}, map[state.RouterID]string{}
	for _, p := range n.mesh.Status() {
		rtts[p.ID], refused[p.ID] = p.RTT, p.Refused
	}
	out, secrets, twice := []console.Member{}, n.secretPrints(), n.twice()
	for _, m := range n.gossip.Members() {
		if m.Degraded == gossip.NoStream && refused[m.ID] == "" && twice(m.ID) {
			refused[m.ID] = mesh.ReasonTwice
		}
		row := console.Member{
			ID: string(m.ID), Name: m.Name, State: string(m.State), Self: m.Self,
			Leader: m.ID == raft.Leader, Voter: voters[m.ID], API: m.APIAddr, Admin: m.Admin, Cluster: m.Addr,
			Boot: m.Boot.String(), Mesh: "down", HeardMS: age(m.Heard, now), DelayMS: -1, Degraded: m.Degraded, Trouble: trouble(&m, refused[m.ID], secrets),
		}
		switch {
		case refused[m.ID] == mesh.ReasonClusterID: // it votes, or learns, elsewhere
		case row.Leader:
			row.Raft = "leader"
		case row.Voter:
			row.Raft = "voter"
		case len(raft.Voters) > 0 || m.Self: // a learner knows no voters
			row.Raft = "learner"
		}
		if m.Stream {
			row.Mesh = "up"
		}
		if rtt := rtts[m.ID]; rtt > 0 {
			row.DelayMS = float64(rtt.Microseconds()) / 2e3
		}
		if r := rows[m.ID]; r != nil {
			row.InFlight, row.Facts = &r.Total.InFlight, &r.FactsIndex
		}
		if m.Self {
			inFlight, own := n.inFlight(), n.mark(n.digests())
			row.Config = &own
			row.Mesh, row.HeardMS, row.InFlight, row.Facts = "-", 0, &inFlight, &raft.FactsIndex
			if raft.Removed {
				row.Trouble = "no longer a voter: its vote was given up while it was away; nothing to do, it serves as a learner"
			}
		}
		if !m.Self && m.State == gossip.Alive {
			row.Config = n.markOf(m.ID)
		}
		out = append(out, row)
	}
	return out
}

// sharedStore is the store as gossip writes it: readings of others also tell of
// restarts and capacities.
type sharedStore struct {
	*state.Store
	note func(r state.Reading, now time.Time)
}

func (s sharedStore) ApplyReading(r state.Reading) bool {
	if !s.Store.ApplyReading(r) {
		return false
	}
	s.note(r, time.Now())
	return true
}

// muteStore and muteIndex are what gossip gets when sharing is switched off:
// membership works, and nothing is told or learned.
type muteStore struct{ *state.Store }

func (muteStore) OwnRows(dst []state.Row) []state.Row { return dst }
func (muteStore) Changed() <-chan struct{}            { return nil }
func (muteStore) ApplyRows(state.Rows) bool           { return false }
func (muteStore) ApplyReading(state.Reading) bool     { return false }

type muteIndex struct{ *sketch.Index }

func (muteIndex) Apply(sketch.Op, time.Time) bool                              { return false }
func (muteIndex) DropBoot(state.BootID, time.Time)                             {}
func (muteIndex) Running(state.BootID, func(placement uint64) bool, time.Time) {}
func (muteIndex) Snapshot(func(sketch.Op) bool)                                {}
