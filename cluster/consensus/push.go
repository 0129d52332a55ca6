package consensus

import (
	"context"
	"errors"
	"sync"

	"github.com/hearsay-llm/hearsay/state"
)

// pushAtOnce bounds the peers that are told at one time.
const pushAtOnce = 16

// push tells learners at once of what takes something away, while this router leads:
// they would find it out at their next look, and give work meanwhile to a replica that
// is to get none. Voters have it by Raft. Who can't be told looks for itself.
func (n *Node) push(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.urgent:
			n.pushNow(ctx)
		}
	}
}

func (n *Node) pushNow(ctx context.Context) {
	r := n.raft.Load()
	if r == nil {
		return
	}
	index, cluster := n.ledger.current().Index, n.ledger.current().ClusterID
	votes := map[state.RouterID]bool{}
	for _, v := range n.voters(r) {
		votes[state.RouterID(v.ID)] = true
	}
	news := map[uint64][]byte{} // by what peers have
	room := make(chan struct{}, pushAtOnce)
	var told sync.WaitGroup
	defer told.Wait()
	for _, p := range n.cfg.Peers() {
		if votes[p.ID] || p.FactsIndex >= index || !p.mayBeOf(cluster) {
			continue
		}
		b, ok := news[p.FactsIndex]
		if !ok {
			b = n.NewsAfter(p.FactsIndex)
			news[p.FactsIndex] = b
		}
		if len(b) == 0 {
			continue
		}
		room <- struct{}{}
		told.Go(func() {
			defer func() { <-room }()
			ctx, cancel := context.WithTimeout(ctx, n.cfg.exchange())
			defer cancel()
			if err := n.cfg.Push(ctx, p.ID, b); err != nil && ctx.Err() == nil {
				n.log.Debug().Err(err).Str("peer", string(p.ID)).Str("name", n.name(p.ID)).Msg("peer not told of new facts")
			}
		})
	}
}

// HandlePush takes news that the leader pushed. The payload is foreign: an error means
// that it is none. A router that can't use it asks the one it came from.
func (n *Node) HandlePush(from state.RouterID, payload []byte) error {
	if len(payload) == 0 {
		return errors.New("no news")
	}
	err := n.takeNews(payload, from)
	if err != nil && n.cfg.Fetch != nil {
		select {
		case n.hurry <- from:
		default: // one is under way
		}
	}
	return err
}
