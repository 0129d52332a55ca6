package consensus

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/hearsay-llm/hearsay/state"
)

// lookEvery is how often the membership is looked at.
const lookEvery = 200 * time.Millisecond

// boot founds the cluster if it falls to this router to do so. It returns as soon
// as there is a cluster.
func (n *Node) boot(ctx context.Context, r *raft.Raft) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	var f founder
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if n.ledger.current().ClusterID != "" || len(n.servers(r)) > 0 {
			return
		}
		if !f.found(&n.cfg, n.cfg.Peers(), time.Now()) {
			continue
		}
		_, err := n.wait(ctx, func(r *raft.Raft) (any, error) {
			return nil, r.BootstrapCluster(raft.Configuration{Servers: []raft.Server{{
				ID: raft.ServerID(n.cfg.Self), Address: serverAddress(n.cfg.Self, n.cfg.Addr),
			}}}).Error()
		})
		switch {
		case err == nil:
			n.log.Info().Msg("founded a cluster")
			return
		case errors.Is(err, raft.ErrCantBootstrap):
			return
		default:
			n.log.Warn().Err(err).Msg("cluster not founded")
		}
	}
}

// founder decides whether this router founds the cluster.
type founder struct {
	seen  []state.RouterID
	since time.Time // seen has been so
}

// found reports whether to found one now. Alone, a router without a join list
// does, after a moment in which it would have heard of a cluster that knows it.
// With others it is for the lowest id, once enough see each other, none has a
// cluster, and the membership has been the same for a while.
func (f *founder) found(cfg *Config, peers []Peer, now time.Time) bool {
	ids := []state.RouterID{cfg.Self}
	for _, p := range peers {
		if p.ClusterID != "" {
			f.seen = nil
			return false
		}
		if p.ID != cfg.Self {
			ids = append(ids, p.ID)
		}
	}
	slices.Sort(ids)
	if !slices.Equal(ids, f.seen) {
		f.seen, f.since = ids, now
	}
	calm := now.Sub(f.since)
	if cfg.BootstrapExpect <= 1 {
		return !cfg.Join && calm >= cfg.SettleAfter/2
	}
	return len(ids) >= cfg.BootstrapExpect && ids[0] == cfg.Self && calm >= cfg.SettleAfter
}
