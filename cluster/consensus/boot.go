package consensus

import (
	"cmp"
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
		peers := n.cfg.Peers()
		if !f.found(&n.cfg, peers, time.Now()) {
			continue
		}
		first := firstVoters(&n.cfg, peers)
		_, err := n.wait(ctx, func(r *raft.Raft) (any, error) {
			return nil, r.BootstrapCluster(raft.Configuration{Servers: first}).Error()
		})
		switch {
		case err == nil:
			n.log.Info().Int("voters", len(first)).Msg("founded a cluster")
			return
		case errors.Is(err, raft.ErrCantBootstrap):
			return
		default:
			n.log.Warn().Err(err).Msg("cluster not founded")
		}
	}
}

// firstVoters are those a cluster is founded with: this router and, in id order,
// as many of the others as make an odd number up to the wanted one. So the loss of
// one router right after the founding freezes nothing.
func firstVoters(cfg *Config, peers []Peer) []raft.Server {
	list := []raft.Server{{ID: raft.ServerID(cfg.Self), Address: serverAddress(cfg.Self, cfg.Addr)}}
	peers = slices.Clone(peers)
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
	for _, p := range peers {
		if p.ID != cfg.Self && p.Addr != "" {
			list = append(list, raft.Server{ID: raft.ServerID(p.ID), Address: serverAddress(p.ID, p.Addr)})
		}
	}
	n := min(len(list), cfg.Voters)
	return list[:n-(n+1)%2]
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
