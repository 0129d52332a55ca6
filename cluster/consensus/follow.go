package consensus

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/raft"

	"github.com/hearsay-llm/hearsay/state"
)

// FactsAfter is the encoded facts if they are newer than have, for a peer's Fetch;
// changed is false, and there are no bytes, if they are not. The bytes must not be
// changed. Any router answers it, with what it has.
func (n *Node) FactsAfter(have uint64) (b []byte, index uint64, changed bool) {
	if i := n.ledger.current().Index; i <= have {
		return nil, i, false
	}
	b, index, err := n.ledger.bytes()
	if err != nil {
		n.log.Error().Err(err).Msg("facts not encoded")
		return nil, index, false
	}
	return b, index, index > have
}

// Await returns true once this router has facts of that index or later ones, and
// false when ctx ends before. A learner asks the leader for them at once.
func (n *Node) Await(ctx context.Context, index uint64) bool {
	if r := n.raft.Load(); r != nil && n.ledger.current().Index < index && !n.isVoter(r) {
		select {
		case n.hurry <- n.leader(r):
		default: // one is under way, or follows within FollowInterval
		}
	}
	return n.ledger.await(ctx, index)
}

// follow keeps the facts current while Raft does not: on a learner, and on a voter
// that hears no leader.
func (n *Node) follow(ctx context.Context, r *raft.Raft) {
	t := time.NewTicker(n.cfg.FollowInterval)
	defer t.Stop()
	for {
		var from state.RouterID // who surely has newer ones, if anybody
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case from = <-n.hurry:
		}
		current := r.State() == raft.Leader || from == "" && time.Since(r.LastContact()) < 2*n.cfg.HeartbeatTimeout
		if current && !n.passed() {
			continue
		}
		have := n.ledger.current().Index
		peer, ok := from, from != ""
		if !ok {
			peer, ok = pickPeer(n.cfg.Peers(), n.ledger.current().ClusterID, have)
		}
		if !ok {
			continue
		}
		if err := n.fetch(ctx, peer, have); err != nil && ctx.Err() == nil {
			n.log.Debug().Err(err).Str("peer", string(peer)).Str("name", n.name(peer)).Msg("facts not fetched")
		}
	}
}

// pickPeer chooses at random among the peers known to have newer facts, else
// among those of which it is not known what they have.
func pickPeer(peers []Peer, cluster string, have uint64) (state.RouterID, bool) {
	var newer, unknown []state.RouterID
	for _, p := range peers {
		switch {
		case cluster != "" && p.ClusterID != "" && p.ClusterID != cluster:
		case p.FactsIndex > have:
			newer = append(newer, p.ID)
		case p.FactsIndex == 0:
			unknown = append(unknown, p.ID)
		}
	}
	for _, list := range [][]state.RouterID{newer, unknown} {
		if len(list) > 0 {
			return list[rand.IntN(len(list))], true
		}
	}
	return "", false
}

// fetch asks a peer for newer facts: first for what has come since, and for all of them
// where that can't be used here.
func (n *Node) fetch(ctx context.Context, peer state.RouterID, have uint64) error {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	b, err := n.cfg.Fetch(ctx, peer, have)
	if err != nil || len(b) == 0 {
		return err
	}
	err = n.takeNews(b, peer)
	if err == nil || b[0] != suffixMark {
		return err
	}
	n.log.Debug().Err(err).Str("peer", string(peer)).Str("name", n.name(peer)).Msg("facts are fetched as a whole")
	if b, err = n.cfg.Fetch(ctx, peer, 0); err != nil || len(b) == 0 {
		return err
	}
	return n.takeNews(b, peer)
}

// save writes the facts to disk whenever they changed, and once more at the end.
func (n *Node) save(ctx context.Context, d *disk) {
	for {
		ended := false
		select {
		case <-ctx.Done():
			ended = true
		case <-n.ledger.changed:
		}
		if n.ledger.current().Index > 0 {
			b, _, err := n.ledger.bytes()
			if err == nil {
				err = d.saveFacts(b)
			}
			if err != nil {
				n.log.Error().Err(err).Msg("facts not saved")
			}
		}
		if ended {
			return
		}
	}
}
