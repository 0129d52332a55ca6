package consensus

import (
	"slices"

	"github.com/hashicorp/raft"

	"github.com/hearsay-llm/hearsay/state"
)

// remove takes a router out of Raft's configuration, on the leader. What would
// change nothing is refused: a router that has no vote, and one that is live, which
// would be given its vote again at the next look. It blocks until the change is
// committed.
func (n *Node) remove(r *raft.Raft, id state.RouterID) (Result, error) {
	servers := r.GetConfiguration()
	if err := servers.Error(); err != nil {
		return Result{}, err
	}
	own := n.ledger.current().ClusterID
	list := servers.Configuration().Servers
	at := slices.IndexFunc(list, func(s raft.Server) bool { return s.ID == raft.ServerID(id) })
	switch {
	case at < 0:
		return Result{Code: state.RefusedUnknown, Reason: "it is no voter: nothing to remove"}, nil
	case id == n.cfg.Self:
		return Result{Code: state.RefusedAlive, Reason: "it leads, and would be a voter again at once: stop it first, then remove it"}, nil
	case slices.ContainsFunc(n.cfg.Peers(), func(p Peer) bool { return p.ID == id && p.mayBeOf(own) }):
		return Result{Code: state.RefusedAlive, Reason: "it is alive, and would be a voter again at once: stop it first, then remove it"}, nil
	}
	f := r.RemoveServer(raft.ServerID(id), 0, minApplyTimeout)
	if err := f.Error(); err != nil {
		return Result{}, err
	}
	voters := 0
	for _, s := range list {
		if s.Suffrage == raft.Voter {
			voters++
		}
	}
	n.changed(voterStep{opRemove, list[at], whyByHand}, voters)
	return Result{Index: f.Index()}, nil
}

// name is what a router calls itself; empty when it is not known. For logs.
func (n *Node) name(id state.RouterID) string {
	if n.cfg.Name != nil {
		return n.cfg.Name(id)
	}
	for _, p := range n.cfg.Peers() {
		if p.ID == id {
			return p.Name
		}
	}
	return ""
}
