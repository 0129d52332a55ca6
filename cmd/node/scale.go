package node

import (
	"context"

	"github.com/hearsay-llm/hearsay/autoscale"
	"github.com/hearsay-llm/hearsay/state"
)

// The methods here are what the autoscaler asks of the node.

// committer commits the autoscaler's edits and waits until the View has them.
type committer struct{ n *Node }

func (c committer) Commit(ctx context.Context, cmd state.Command) error {
	_, err := c.n.raft.Apply(ctx, cmd)
	return err
}

// Live lists the routers that membership takes for live, this one included.
func (n *Node) Live() []state.RouterID {
	out := []state.RouterID{n.id}
	for _, p := range n.peers() {
		out = append(out, p.ID)
	}
	return out
}

func (n *Node) newScale() (err error) {
	n.scale, err = autoscale.New(autoscale.Config{
		Self: n.id, Cluster: n, Committer: committer{n},
		Warm: func(id state.ReplicaID) int { return n.index.Stats(id).Entries },
		Log:  n.log, Registerer: n.reg,
	})
	return err
}
