package consensus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/hearsay-llm/hearsay/state"
)

// A voter that was removed while it was away finds a vote in its own log, and no leader
// calls it: Raft would have it look for one for ever. So it asks the router that leads, as
// the facts have it, who votes.

// removal is what such a router was told.
type removal struct {
	told  atomic.Pointer[time.Time] // when the leader said that this router has no vote; nil: never
	asked time.Time                 // only follow touches it
}

// removed reports that this router's log has it for a voter, the leader said that it is
// none, and no leader has called it since.
func (n *Node) removed(r *raft.Raft) bool {
	at := n.gone.told.Load()
	return at != nil && !r.LastContact().After(*at)
}

// votes reports that this router is a voter, by its own log and as far as it was told.
func (n *Node) votes(r *raft.Raft) bool { return n.isVoter(r) && !n.removed(r) }

// patience is how long a leader may take to call a voter that was started again or cut
// off: it dials anew, with growing pauses.
func (n *Node) patience() time.Duration { return returning * n.cfg.HeartbeatTimeout }

// askWhoVotes asks the leader whether this router has a vote, if its log says so and no
// leader has called for long.
func (n *Node) askWhoVotes(ctx context.Context, r *raft.Raft) {
	now := time.Now()
	heard := r.LastContact()
	if heard.IsZero() {
		heard = n.began
	}
	if n.cfg.AskVoters == nil || now.Sub(heard) < n.patience() || now.Sub(n.gone.asked) < n.patience() ||
		r.State() == raft.Leader || !n.votes(r) {
		return
	}
	f := n.ledger.current()
	if f.Leader == n.cfg.Self || !slices.ContainsFunc(n.cfg.Peers(), func(p Peer) bool { return p.ID == f.Leader && p.mayBeOf(f.ClusterID) }) {
		return
	}
	n.gone.asked = now
	ctx, cancel := context.WithTimeout(ctx, n.cfg.exchange())
	defer cancel()
	b, err := n.cfg.AskVoters(ctx, f.Leader)
	var voters []state.RouterID
	if err == nil {
		voters, err = decodeVoters(b)
	}
	log := n.log.With().Str("peer", string(f.Leader)).Str("name", n.name(f.Leader)).Logger()
	switch {
	case err != nil:
		log.Debug().Err(err).Msg("the leader does not say who votes")
	case slices.Contains(voters, n.cfg.Self):
		log.Warn().Msg("this router has a vote, but the leader does not call it: can the leader reach its mesh port?")
	default:
		at := time.Now()
		n.gone.told.Store(&at)
		n.stream.cut() // and Raft opens no other
		log.Info().Int("voters", len(voters)).Msg("no longer a voter: its vote was given up while it was away; it serves as a learner, and is given a vote again when one is missing")
	}
}

// maxVoters bounds the voters of an answer.
const maxVoters = 64

// wireVoters is the routers with a vote, as their leader has it.
type wireVoters struct {
	Voters []state.RouterID `json:"voters"`
}

var errNotLeading = errors.New("it does not lead")

// SayVoters is the routers with a vote, for a peer's AskVoters. An error says that this
// router does not lead, or that the voters are just being changed.
func (n *Node) SayVoters(ctx context.Context) ([]byte, error) {
	v, err := n.wait(ctx, func(r *raft.Raft) (any, error) {
		if err := r.VerifyLeader().Error(); err != nil { // a majority still follows it
			return nil, errNotLeading
		}
		f := r.GetConfiguration()
		if err := f.Error(); err != nil {
			return nil, err
		}
		if f.Index() > r.CommitIndex() {
			return nil, errors.New("the voters are being changed")
		}
		w := wireVoters{}
		for _, s := range f.Configuration().Servers {
			if s.Suffrage == raft.Voter {
				w.Voters = append(w.Voters, state.RouterID(s.ID))
			}
		}
		return &w, nil
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// decodeVoters reads SayVoters' bytes. It never panics.
func decodeVoters(b []byte) ([]state.RouterID, error) {
	if len(b) > maxVoters*2*maxIDSize {
		return nil, errors.New("decode voters: too long")
	}
	var w wireVoters
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, fmt.Errorf("decode voters: %w", err)
	}
	if len(w.Voters) == 0 || len(w.Voters) > maxVoters || slices.Contains(w.Voters, "") {
		return nil, errors.New("decode voters: none, too many, or one without an id")
	}
	return w.Voters, nil
}
