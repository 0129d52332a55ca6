package consensus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	// leaveWait is how long the leader may take to let a router go: a replacement has
	// to be stable and to catch up first. Less than an Apply may take.
	leaveWait = 8 * time.Second
	// leavingFor is how long the leader gives a router no vote that said it leaves and
	// still lives: longer than its requests run out.
	leavingFor = 5 * time.Minute
)

// departures are the live routers that said they leave, and until when that counts.
// Safe for concurrent use.
type departures struct {
	mu    sync.Mutex
	until map[state.RouterID]time.Time // guarded by mu
}

func (d *departures) add(id state.RouterID, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.until == nil {
		d.until = map[state.RouterID]time.Time{}
	}
	d.until[id] = now.Add(leavingFor)
}

func (d *departures) remove(id state.RouterID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.until, id)
}

// among are those that still count, and forgets the others: a router that is gone
// may come back.
func (d *departures) among(here func(state.RouterID) bool, now time.Time) map[state.RouterID]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[state.RouterID]bool{}
	for id, t := range d.until {
		if !here(id) || now.After(t) {
			delete(d.until, id)
			continue
		}
		out[id] = true
	}
	return out
}

// Leave gives up this router's vote for good, before it stops: it hands leadership
// over, another router takes its place if there is one, and it is taken out of
// Raft's configuration. Alone there is nobody to leave it to, and it does nothing.
// Afterwards the router is silent towards Raft and follows the facts as a learner
// until it stops. The error is a *state.Refusal when the voters can't do without it,
// or wraps ErrNoLeader or ErrOutcomeUnknown; the router then goes on as it was.
func (n *Node) Leave(ctx context.Context) (err error) {
	n.leaving.add(n.cfg.Self, time.Now())
	defer func() {
		if err != nil {
			n.leaving.remove(n.cfg.Self)
		}
	}()
	for {
		r := n.raft.Load()
		if r == nil {
			return ErrNoLeader
		}
		if r.State() == raft.Leader {
			alone, err := n.leaveOffice(ctx, r)
			if alone || err != nil {
				return err
			}
		}
		_, err := n.apply(ctx, state.Command{Kind: state.CommandLeave, Router: n.cfg.Self})
		if errors.Is(err, ErrNoLeader) && ctx.Err() == nil && r.State() == raft.Leader {
			continue // it was elected once more
		}
		if err != nil {
			return err
		}
		n.log.Info().Msg("left the voters")
		n.stream.mute(true) // no later leader gives it a vote
		return nil
	}
}

// leaveOffice waits until there is another voter that lives and hands leadership
// over. alone says that there is no other router.
func (n *Node) leaveOffice(ctx context.Context, r *raft.Raft) (alone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaveWait)
	defer cancel()
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for r.State() == raft.Leader {
		own, peers := n.ledger.current().ClusterID, map[state.RouterID]bool{}
		for _, p := range n.cfg.Peers() {
			peers[p.ID] = p.mayBeOf(own)
		}
		voters := n.voters(r)
		if len(voters) < 2 && len(peers) == 0 {
			return true, nil
		}
		if slices.ContainsFunc(voters, func(v raft.Server) bool { return peers[state.RouterID(v.ID)] }) {
			if err := n.handOver(ctx); err == nil {
				return false, nil
			}
		}
		select {
		case <-ctx.Done():
			return false, refuse(state.RefusedQuorum, "it leads, and no other router could take over within %v", leaveWait)
		case <-t.C:
		}
	}
	return false, nil
}

// letGo is the leader's side of Leave: it waits until the voters have been arranged
// without a router.
func (n *Node) letGo(ctx context.Context, id state.RouterID) (Result, verdict) {
	if id == "" || id == n.cfg.Self {
		return Result{}, verdictNone // it hands over first
	}
	n.leaving.add(id, time.Now())
	ctx, cancel := context.WithTimeout(ctx, leaveWait)
	defer cancel()
	t := time.NewTicker(lookEvery / 4)
	defer t.Stop()
	for {
		r := n.raft.Load()
		if r == nil || r.State() != raft.Leader {
			n.leaving.remove(id)
			return Result{}, verdictNone
		}
		list := n.servers(r)
		if !slices.ContainsFunc(list, func(s raft.Server) bool { return s.ID == raft.ServerID(id) }) {
			return Result{}, verdictDone
		}
		select {
		case <-ctx.Done():
			n.leaving.remove(id)
			return Result{Code: state.RefusedQuorum, Reason: fmt.Sprintf(
				"the %d voters can't do without it within %v: too few of the others live. Start them, or remove those that are gone for good", len(list), leaveWait)}, verdictDone
		case <-t.C:
		}
	}
}
