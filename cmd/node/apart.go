package node

import (
	"context"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	// apartEvery is how often routers with a stream are asked for their cluster's id
	// that did not name one when the stream began.
	apartEvery = 2 * time.Second
	apartWait  = time.Second // for one answer
)

// tellApart finds routers of other clusters whose stream came up before both had a
// cluster: while they were being founded, or while one was reading its facts. The
// mesh refuses them from then on.
func (n *Node) tellApart(ctx context.Context) error {
	tick := time.NewTicker(apartEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if n.raft.Facts().ClusterID == "" {
			continue
		}
		for _, id := range n.mesh.Unnamed() {
			n.askCluster(ctx, id)
		}
	}
}

// askCluster asks one router for its cluster's id. One that has none yet is asked
// again, as is one of a release that does not know the question.
func (n *Node) askCluster(ctx context.Context, id state.RouterID) {
	ctx, cancel := context.WithTimeout(ctx, apartWait)
	defer cancel()
	if b, err := n.mesh.Call(ctx, id, callCluster, nil); err == nil && len(b) > 0 {
		n.mesh.Named(id, string(b))
	}
}
