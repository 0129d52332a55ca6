package consensus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/hearsay-llm/hearsay/state"
)

// voterState is what the plan for the voters looks at.
type voterState struct {
	self    state.RouterID
	want    int                     // voters wanted
	voters  []raft.Server           // at present
	staged  []raft.Server           // in the configuration without a vote yet
	live    map[state.RouterID]Peer // as gossip has it, self not included
	stable  map[state.RouterID]bool // live for long enough to become a voter
	dead    map[state.RouterID]bool // servers away for long enough to be replaced
	current map[state.RouterID]bool // staged servers whose log has caught up
	leaving map[state.RouterID]bool // live, and about to stop for good
}

type voterOp string

const (
	opStage   voterOp = "stage"   // replicate to it, without a vote
	opPromote voterOp = "promote" // give it a vote
	opRemove  voterOp = "remove"
)

type voterStep struct {
	op     voterOp
	server raft.Server
	why    string // of a removal, for logs
}

// Why a server is removed.
const (
	whyByHand  = "by hand"
	whyDead    = "it is dead"
	whyLeaves  = "it leaves"
	whyPlenty  = "there are enough voters"
	whyEven    = "an even number of voters is never kept"
	whyTooMany = "more voters than wanted"
)

// votersAfter is how many of so many servers with a vote remain with one.
func (s voterStep) votersAfter(n int) int {
	switch {
	case s.op == opPromote:
		return n + 1
	case s.op == opRemove && s.server.Suffrage == raft.Voter:
		return n - 1
	}
	return n
}

// changed logs a step that was made with so many voters.
func (n *Node) changed(s voterStep, voters int) {
	e := n.log.Info().Str("op", string(s.op)).Str("peer", string(s.server.ID)).Str("name", n.name(state.RouterID(s.server.ID)))
	if s.why != "" {
		e.Str("why", s.why)
	}
	e.Int("voters", s.votersAfter(voters)).Msg("voters changed")
}

// minVoters is what the number of voters never falls below once it was reached: a
// smaller set could leave the only copy of the log on a router that then dies.
const minVoters = 3

func odd(n int) int { return n - 1 + n%2 }

func quorum(n int) int { return n/2 + 1 }

// planVoters names the next single step towards the wanted voters, if any. It
// never proposes one after which fewer than a quorum of the voters would be live.
func planVoters(s *voterState) (voterStep, bool) {
	isLive := func(id raft.ServerID) bool {
		_, ok := s.live[state.RouterID(id)]
		return ok || state.RouterID(id) == s.self
	}
	var alive, dead int // voters; those that leave are alive, and dead for all plans
	for _, v := range s.voters {
		id := state.RouterID(v.ID)
		if isLive(v.ID) {
			alive++
		}
		if s.dead[id] || s.leaving[id] {
			dead++
		}
	}
	n := len(s.voters)
	candidates := s.candidates()
	desired := max(1, odd(min(s.want, n-dead+len(s.staged)+len(candidates))))
	missing := n-dead < desired

	for _, v := range s.staged {
		id := state.RouterID(v.ID)
		switch {
		case s.dead[id]:
			return voterStep{opRemove, v, whyDead}, true
		case s.leaving[id]:
			return voterStep{opRemove, v, whyLeaves}, true
		case !missing:
			return voterStep{opRemove, v, whyPlenty}, true
		case isLive(v.ID) && s.stable[id] && s.current[id] && alive+1 >= quorum(n+1):
			return voterStep{op: opPromote, server: v}, true
		}
	}
	if missing && len(s.staged) == 0 && len(candidates) > 0 {
		return voterStep{op: opStage, server: candidates[0]}, true
	}
	if missing && len(s.staged) > 0 {
		return voterStep{}, false // wait for it
	}
	// One that leaves goes when those that could take its place have it, whatever the
	// number. A leader hands over first.
	settled := n-dead >= odd(min(s.want, n-dead+len(s.outside(false))))
	for _, v := range s.voters {
		if id := state.RouterID(v.ID); settled && s.leaving[id] && id != s.self && alive-1 >= quorum(n-1) {
			return voterStep{opRemove, v, whyLeaves}, true
		}
	}
	// A dead voter goes when what remains is a sound set: not below the minimum,
	// and an odd number unless more are to go.
	if dead > 0 && n-1 >= minVoters && alive >= quorum(n-1) && ((n-1)%2 == 1 || dead > 1) {
		for _, v := range s.voters {
			if s.dead[state.RouterID(v.ID)] {
				return voterStep{opRemove, v, whyDead}, true
			}
		}
	}
	// More than wanted, or a pair where there is no third: the highest goes.
	if dead == 0 && (n > s.want || (n == 2 && desired == 1)) && alive == n && n > 1 && alive-1 >= quorum(n-1) {
		last := raft.Server{}
		for _, v := range s.voters {
			if state.RouterID(v.ID) != s.self && v.ID > last.ID {
				last = v
			}
		}
		why := whyTooMany
		if n <= s.want {
			why = whyEven
		}
		return voterStep{opRemove, last, why}, true
	}
	return voterStep{}, false
}

// candidates are the stable live routers outside the configuration, in id order.
func (s *voterState) candidates() []raft.Server { return s.outside(true) }

// outside are the live routers outside the configuration that do not leave, in id
// order; if so asked only the stable ones.
func (s *voterState) outside(stable bool) []raft.Server {
	in := map[state.RouterID]bool{s.self: true}
	for _, v := range slices.Concat(s.voters, s.staged) {
		in[state.RouterID(v.ID)] = true
	}
	var list []raft.Server
	for id, p := range s.live {
		if !in[id] && (s.stable[id] || !stable) && !s.leaving[id] && p.Addr != "" {
			list = append(list, raft.Server{ID: raft.ServerID(id), Address: serverAddress(id, p.Addr)})
		}
	}
	slices.SortFunc(list, func(a, b raft.Server) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// watch remembers since when routers are there or away. A new leader starts anew:
// that only delays.
type watch struct {
	since map[state.RouterID]time.Time // live since
	away  map[state.RouterID]time.Time // servers of the configuration, away since
}

func (w *watch) look(n *Node, servers []raft.Server, now time.Time) *voterState {
	own := n.ledger.current().ClusterID
	s := &voterState{
		self: n.cfg.Self, want: n.cfg.Voters,
		live: map[state.RouterID]Peer{}, stable: map[state.RouterID]bool{},
		dead: map[state.RouterID]bool{}, current: map[state.RouterID]bool{},
	}
	for _, p := range n.cfg.Peers() {
		if p.ID != n.cfg.Self && p.mayBeOf(own) {
			s.live[p.ID] = p
		}
	}
	for id := range w.since {
		if _, ok := s.live[id]; !ok {
			delete(w.since, id)
		}
	}
	for id := range s.live {
		if _, ok := w.since[id]; !ok {
			w.since[id] = now
		}
		s.stable[id] = now.Sub(w.since[id]) >= n.cfg.StableAfter
	}
	s.leaving = n.leaving.among(func(id state.RouterID) bool { _, ok := s.live[id]; return ok || id == n.cfg.Self }, now)
	away := map[state.RouterID]time.Time{}
	for _, v := range servers {
		id := state.RouterID(v.ID)
		if v.Suffrage == raft.Voter {
			s.voters = append(s.voters, v)
		} else {
			s.staged = append(s.staged, v)
		}
		if _, ok := s.live[id]; ok || id == n.cfg.Self {
			continue
		}
		away[id] = now
		if t, ok := w.away[id]; ok {
			away[id] = t
		}
		s.dead[id] = now.Sub(away[id]) >= n.cfg.DeadAfter
	}
	w.away = away
	return s
}

// keepVoters brings the voters to the wanted number, one step at a time, for the
// length of a term.
func (n *Node) keepVoters(ctx context.Context) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	w := watch{since: map[state.RouterID]time.Time{}}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		r := n.raft.Load()
		if r == nil {
			return
		}
		s := w.look(n, n.servers(r), time.Now())
		for _, v := range s.staged {
			s.current[state.RouterID(v.ID)] = n.caughtUp(ctx, v)
		}
		step, ok := planVoters(s)
		if !ok {
			continue
		}
		_, live := s.live[state.RouterID(step.server.ID)]
		if err := n.step(ctx, step, live); err != nil {
			if ctx.Err() == nil {
				id := state.RouterID(step.server.ID)
				n.log.Warn().Err(err).Str("peer", string(id)).Str("name", n.name(id)).Msg("voters not changed")
			}
			continue
		}
		n.changed(step, len(s.voters))
		if step.op == opRemove {
			n.outrun(ctx)
		}
	}
}

// outrun gives the facts, as they are, a new index. A voter that is removed while it is
// dead never hears of it from Raft. Newer facts than its log can have show it, once it
// is back, that it has no vote.
func (n *Node) outrun(ctx context.Context) {
	c := state.Command{Kind: state.CommandSetClusterID, Cluster: n.ledger.current().ClusterID}
	if _, err := n.apply(ctx, c); err != nil && ctx.Err() == nil {
		n.log.Debug().Err(err).Msg("facts not renewed")
	}
}

func (n *Node) step(ctx context.Context, s voterStep, live bool) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.ApplyTimeout)
	defer cancel()
	if s.op == opRemove && s.server.Suffrage == raft.Voter && live {
		if err := n.demote(ctx, s.server); err != nil {
			return fmt.Errorf("%s voter: %w", s.op, err)
		}
	}
	_, err := n.wait(ctx, func(r *raft.Raft) (any, error) {
		v := s.server
		switch s.op {
		case opRemove:
			return nil, r.RemoveServer(v.ID, 0, minApplyTimeout).Error()
		case opStage:
			return nil, r.AddNonvoter(v.ID, v.Address, 0, minApplyTimeout).Error()
		default:
			return nil, r.AddVoter(v.ID, v.Address, 0, minApplyTimeout).Error()
		}
	})
	if err != nil {
		return fmt.Errorf("%s voter: %w", s.op, err)
	}
	return nil
}

// demote takes a live voter's vote and gives it a while to hear of it. Raft stops
// sending entries to a server at the moment that it is removed, so that it often does not
// get the one that says so, and would look for a leader for ever when this one dies; one
// that only has no vote gets them.
func (n *Node) demote(ctx context.Context, v raft.Server) error {
	i, err := n.wait(ctx, func(r *raft.Raft) (any, error) {
		f := r.DemoteVoter(v.ID, 0, minApplyTimeout)
		if err := f.Error(); err != nil {
			return nil, err
		}
		return f.Index(), nil // known from then on
	})
	index, ok := i.(uint64)
	if err != nil || !ok {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.exchange())
	defer cancel()
	t := time.NewTicker(lookEvery / 10)
	defer t.Stop()
	for {
		if last, err := n.lastLog(ctx, v); err == nil && last >= index {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil // it hears of it by the facts, if it lives
		case <-t.C:
		}
	}
}

// lagAllowed is how many log entries a router may be behind and still get a vote.
const lagAllowed = 64

// caughtUp asks a staged server for the end of its log.
func (n *Node) caughtUp(ctx context.Context, v raft.Server) bool {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.exchange())
	defer cancel()
	i, err := n.lastLog(ctx, v)
	r := n.raft.Load()
	return err == nil && r != nil && i+lagAllowed >= r.CommitIndex()
}

// lastLog asks a server for the index of its last entry. An append request of term
// zero is below any term that a server in the configuration has, so it is answered
// and changes nothing.
func (n *Node) lastLog(ctx context.Context, v raft.Server) (uint64, error) {
	last, err := n.wait(ctx, func(*raft.Raft) (any, error) {
		addr := raft.ServerAddress(n.cfg.Addr)
		req := raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{
			ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(n.cfg.Self), Addr: n.trans.EncodePeer(raft.ServerID(n.cfg.Self), addr),
		}}
		var resp raft.AppendEntriesResponse
		if err := n.trans.AppendEntries(v.ID, v.Address, &req, &resp); err != nil {
			return nil, err
		}
		if resp.Term == 0 {
			return nil, errors.New("not reached by this term yet")
		}
		return resp.LastLog, nil
	})
	i, _ := last.(uint64)
	return i, err
}
