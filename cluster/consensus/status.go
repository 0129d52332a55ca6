package consensus

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hearsay-llm/hearsay/state"
)

// Status is what there is to say of the agreement, as this router sees it.
type Status struct {
	// State is "leader", "follower", "candidate" (a voter that looks for a leader:
	// no quorum, if it lasts), "learner", "returning" (started a few seconds ago, a
	// voter by its own log, and not called by the leader yet), or "stopped".
	State      string
	Leader     state.RouterID // empty: none known
	Term       uint64
	Index      uint64 // last log entry committed here
	FactsIndex uint64
	Epoch      uint64
	ClusterID  string
	Voters     []Voter // in id order; a learner knows none
	// Removed says of a learner that it was a voter, by its own log still is, and that the
	// leader has told it that it has no vote any more.
	Removed bool
	// LastContact is the time since the leader was last heard; 0 on the leader
	// itself, negative when none ever was.
	LastContact time.Duration
}

// Voter is a router that votes.
type Voter struct {
	ID   state.RouterID
	Addr string // where gossip sees it, else where it was when it became a voter
	Live bool   // gossip sees it
}

// Status does not block.
func (n *Node) Status() Status {
	f := n.ledger.current()
	s := Status{State: "stopped", FactsIndex: f.Index, Epoch: f.Epoch, ClusterID: f.ClusterID, LastContact: -1}
	r := n.raft.Load()
	if r == nil {
		return s
	}
	s.Term, s.Index, s.Leader = r.CurrentTerm(), r.CommitIndex(), n.leader(r)
	live := map[state.RouterID]string{n.cfg.Self: n.cfg.Addr}
	for _, p := range n.cfg.Peers() {
		live[p.ID] = p.Addr
	}
	for _, v := range n.voters(r) {
		x := Voter{ID: state.RouterID(v.ID)}
		if x.Addr, x.Live = live[x.ID]; !x.Live {
			_, x.Addr = splitAddress(v.Address)
		}
		s.Voters = append(s.Voters, x)
	}
	slices.SortFunc(s.Voters, func(a, b Voter) int { return cmp.Compare(a.ID, b.ID) })
	if c := r.LastContact(); !c.IsZero() {
		s.LastContact = time.Since(c)
	}
	switch st := r.State(); {
	case st == raft.Leader:
		s.State, s.LastContact = "leader", 0
	case !n.isVoter(r):
		s.State, s.Voters = "learner", nil // those of its log may be old
	case n.removed(r):
		s.State, s.Voters, s.Removed = "learner", nil, true
	case n.leftBehind(r) && !n.called(r) && s.Leader != "":
		if s.State = "learner"; time.Since(n.began) < n.patience() {
			s.State = "returning" // whether it still votes, the leader will show
		} else {
			s.Voters = nil
		}
	case st == raft.Candidate || s.Leader == "":
		s.State = "candidate"
	default:
		s.State = "follower"
	}
	return s
}

// returning is how many heartbeat time-outs a leader may take to call a voter that
// was started again: it dials anew, with growing pauses.
const returning = 10

// called reports that the leader has called this router of late: it has its vote.
func (n *Node) called(r *raft.Raft) bool {
	at := r.LastContact()
	return !at.IsZero() && time.Since(at) < 2*n.cfg.HeartbeatTimeout
}

// servers is the newest configuration in this router's log.
func (n *Node) servers(r *raft.Raft) []raft.Server {
	f := r.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	return f.Configuration().Servers
}

func (n *Node) voters(r *raft.Raft) []raft.Server {
	return slices.DeleteFunc(slices.Clone(n.servers(r)), func(s raft.Server) bool { return s.Suffrage != raft.Voter })
}

func (n *Node) isVoter(r *raft.Raft) bool {
	return slices.ContainsFunc(n.voters(r), func(s raft.Server) bool { return s.ID == raft.ServerID(n.cfg.Self) })
}

func (n *Node) term() uint64 {
	if r := n.raft.Load(); r != nil {
		return r.CurrentTerm()
	}
	return 0
}

// newMetrics registers gauges that read the node.
func newMetrics(reg prometheus.Registerer, n *Node) error {
	if reg == nil {
		return nil
	}
	return errors.Join(
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "hearsay_raft_leader",
			Help: "1 if this router leads the cluster, else 0.",
		}, func() float64 {
			if r := n.raft.Load(); r != nil && r.State() == raft.Leader {
				return 1
			}
			return 0
		})),
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "hearsay_raft_term",
			Help: "Raft term this router knows of.",
		}, func() float64 { return float64(n.term()) })),
	)
}
