package consensus

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/hearsay-llm/hearsay/state"
)

// ErrNoLeader says that there is no leader that could be reached. Nothing was
// changed, and nothing will be.
var ErrNoLeader = errors.New("no leader")

// ErrOutcomeUnknown says that the command may have been, or may yet be, applied.
// Repeating it under the same ID is safe and tells.
var ErrOutcomeUnknown = errors.New("outcome unknown")

// retryEvery is the pause between attempts at a command.
const retryEvery = 50 * time.Millisecond

type verdict int

const (
	verdictDone    verdict = iota
	verdictNone            // surely not applied
	verdictUnknown         // perhaps applied
)

// Apply commits a command, here or by forwarding it to the leader, and returns
// when it is applied. It waits at most LeaderWait for a leader and at most
// ApplyTimeout in all. Attempts are repeated under the same ID, which is safe.
//
// The error is a *state.Refusal when the facts speak against the command, or wraps
// ErrNoLeader or ErrOutcomeUnknown.
func (n *Node) Apply(ctx context.Context, c state.Command) (Result, error) {
	switch c.Kind {
	case state.CommandBeginTerm, state.CommandSetClusterID:
		return Result{}, refuse(state.RefusedInvalid, "%s is the leader's own", c.Kind)
	}
	return n.apply(ctx, c)
}

func (n *Node) apply(ctx context.Context, c state.Command) (Result, error) {
	if c.ID == "" {
		c.ID = rand.Text()
	}
	payload, err := encodeCommand(&c)
	if err != nil {
		return Result{}, refuse(state.RefusedInvalid, "%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.ApplyTimeout)
	defer cancel()
	patience := time.Now().Add(n.cfg.LeaderWait)
	unknown := false
	for {
		r, v := n.attempt(ctx, &c, payload)
		switch v {
		case verdictDone:
			if unknown && c.Kind == state.CommandRemoveMember && r.Code == state.RefusedUnknown {
				return Result{}, nil // an attempt before has removed it
			}
			if r.Code != "" {
				return r, &state.Refusal{Code: r.Code, Reason: r.Reason}
			}
			return r, nil
		case verdictUnknown:
			unknown = true
		case verdictNone:
			if !unknown && !time.Now().Before(patience) {
				return Result{}, ErrNoLeader
			}
		}
		t := time.NewTimer(retryEvery)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			if unknown {
				return Result{}, fmt.Errorf("%w: %w", ErrOutcomeUnknown, ctx.Err())
			}
			return Result{}, fmt.Errorf("%w: %w", ErrNoLeader, ctx.Err())
		}
	}
}

func (n *Node) attempt(ctx context.Context, c *state.Command, payload []byte) (Result, verdict) {
	r := n.raft.Load()
	if r == nil {
		return Result{}, verdictNone
	}
	if r.State() == raft.Leader && !n.superseded() {
		return n.commit(ctx, c, payload)
	}
	leader := n.leader(r)
	if leader == "" || leader == n.cfg.Self || n.cfg.Forward == nil {
		return Result{}, verdictNone
	}
	b, err := n.cfg.Forward(ctx, leader, payload)
	if err != nil {
		n.log.Debug().Err(err).Str("peer", string(leader)).Str("name", n.name(leader)).Msg("command not forwarded")
		return Result{}, verdictUnknown
	}
	var rep reply
	if err := json.Unmarshal(b, &rep); err != nil {
		return Result{}, verdictUnknown
	}
	switch rep.Status {
	case statusDone:
		return rep.Result, verdictDone
	case statusNone:
		return Result{}, verdictNone
	default:
		return Result{}, verdictUnknown
	}
}

// commit applies on this router as the leader.
func (n *Node) commit(ctx context.Context, c *state.Command, payload []byte) (Result, verdict) {
	switch c.Kind {
	case state.CommandLeave:
		return n.letGo(ctx, c.Router)
	case state.CommandRead:
		return n.read(ctx)
	}
	v, err := n.wait(ctx, func(r *raft.Raft) (any, error) {
		if c.Kind == state.CommandRemoveMember {
			return n.remove(r, c.Router)
		}
		f := r.Apply(payload, minApplyTimeout)
		if err := f.Error(); err != nil {
			return nil, err
		}
		return f.Response(), nil
	})
	switch {
	case err == nil:
		r, ok := v.(Result)
		if !ok {
			return Result{}, verdictUnknown
		}
		return r, verdictDone
	case errors.Is(err, errNotStarted), errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout),
		errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return Result{}, verdictNone
	default:
		return Result{}, verdictUnknown
	}
}

// reply is what HandleForward answers.
type reply struct {
	Status string `json:"status"`
	Result Result `json:"result"`
}

const (
	statusDone    = "done"
	statusNone    = "no_leader" // surely not applied
	statusUnknown = "unknown"
)

// HandleForward takes a command that another router's Apply forwarded. It never
// forwards again. The payload is foreign: an error means that it is no command.
func (n *Node) HandleForward(ctx context.Context, payload []byte) ([]byte, error) {
	c, err := decodeCommand(payload)
	if err != nil {
		return nil, err
	}
	rep := reply{Status: statusNone}
	switch r := n.raft.Load(); {
	case c.ID == "" || c.Kind == state.CommandBeginTerm || c.Kind == state.CommandSetClusterID:
		rep.Status = statusDone
		rep.Result = Result{Code: state.RefusedInvalid, Reason: "not a command for others to forward"}
	case r != nil && r.State() == raft.Leader && !n.superseded():
		ctx, cancel := context.WithTimeout(ctx, n.cfg.ApplyTimeout)
		defer cancel()
		res, v := n.commit(ctx, c, payload)
		switch v {
		case verdictDone:
			rep = reply{Status: statusDone, Result: res}
		case verdictUnknown:
			rep.Status = statusUnknown
		case verdictNone:
		}
	}
	return json.Marshal(&rep)
}

// leader is who leads as far as this router knows: by Raft's heartbeats if it is
// a voter, else by the facts, which may be of a term that is over.
func (n *Node) leader(r *raft.Raft) state.RouterID {
	if _, id := r.LeaderWithID(); id != "" {
		return state.RouterID(id)
	}
	if n.votes(r) && !n.leftBehind(r) {
		return ""
	}
	id := n.ledger.current().Leader
	for _, p := range n.cfg.Peers() {
		if p.ID == id {
			return id
		}
	}
	return ""
}

// leftBehind reports that the newest facts did not come through this router's own
// log: it is no voter, whatever its log says of the voters of its time.
func (n *Node) leftBehind(r *raft.Raft) bool {
	return n.ledger.current().Index > r.AppliedIndex()
}
