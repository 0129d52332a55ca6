package consensus

import (
	"context"
	"math/rand/v2"
	"slices"
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
	if r := n.raft.Load(); r != nil && n.ledger.current().Index < index && !n.votes(r) {
		select {
		case n.hurry <- n.leader(r):
		default: // one is under way, or follows within FollowInterval
		}
	}
	return n.ledger.await(ctx, index)
}

// follow keeps the facts current while Raft does not: on a learner, on a voter that
// hears no leader, and on one that hears it and gets nothing. That one was away: a
// leader that could not reach it tries to send it its log again after growing pauses,
// up to 10 s, and its heartbeats know nothing of that.
func (n *Node) follow(ctx context.Context, r *raft.Raft) {
	// Who has just started meets the others one by one, and is asked for work meanwhile.
	t := time.NewTicker(n.cfg.FollowInterval / 5)
	defer t.Stop()
	grown := time.NewTimer(10 * n.cfg.FollowInterval)
	defer grown.Stop()
	var left uint64 // the facts of the last tick, when somebody had newer ones
	for {
		var from state.RouterID // who surely has newer ones, if anybody
		select {
		case <-ctx.Done():
			return
		case <-grown.C:
			t.Reset(n.cfg.FollowInterval)
			continue
		case <-t.C:
		case from = <-n.hurry:
		}
		n.askWhoVotes(ctx, r)
		f := n.ledger.current()
		behind := f.Index == left
		left = 0
		current := r.State() == raft.Leader || from == "" && time.Since(r.LastContact()) < 2*n.cfg.HeartbeatTimeout
		if current && !n.passed() {
			if r.State() == raft.Leader || !slices.ContainsFunc(n.cfg.Peers(), func(p Peer) bool { return p.mayBeOf(f.ClusterID) && p.FactsIndex > f.Index }) {
				continue
			}
			if left = f.Index; !behind {
				continue
			}
		}
		n.catchUp(ctx, f, from)
	}
}

// askedAtMost bounds the peers that are asked for newer facts at a time.
const askedAtMost = 3

// catchUp asks for newer facts: from, unless that is empty; else peers, until one
// answers.
func (n *Node) catchUp(ctx context.Context, f *state.Facts, from state.RouterID) {
	peers := n.cfg.Peers()
	for range askedAtMost {
		peer, ok := from, from != ""
		if !ok {
			peer, ok = pickPeer(peers, f.ClusterID, f.Index)
		}
		if !ok {
			return
		}
		err := n.fetch(ctx, peer, f.Index)
		if err == nil || ctx.Err() != nil {
			return
		}
		n.log.Debug().Err(err).Str("peer", string(peer)).Str("name", n.name(peer)).Msg("facts not fetched")
		from, peers = "", slices.DeleteFunc(slices.Clone(peers), func(p Peer) bool { return p.ID == peer })
	}
}

// pickPeer chooses at random among the peers known to have newer facts, else
// among those of which it is not known what they have. Those to whom there is no
// stream can't be asked: one that was killed is a member for seconds after.
func pickPeer(peers []Peer, cluster string, have uint64) (state.RouterID, bool) {
	var newer, unknown []state.RouterID
	for _, p := range peers {
		switch {
		case p.NoStream || cluster != "" && p.ClusterID != "" && p.ClusterID != cluster:
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
	ctx, cancel := context.WithTimeout(ctx, n.cfg.exchange())
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
