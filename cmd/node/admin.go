package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/cluster/consensus"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/state"
)

// The methods here are what the admin API asks of the node (console.Node,
// console.Writer, console.Explainer, console.Operator).

// Name is the node's name, for people.
func (n *Node) Name() string { return n.cfg.Node.Name }

// View is the present picture of the cluster.
func (n *Node) View() *state.View { return n.store.View() }

// Info is what the node says of itself.
func (n *Node) Info() console.Info {
	s := n.raft.Status()
	raft := console.Raft{ClusterID: s.ClusterID, Leader: string(s.Leader), Role: s.State, Term: s.Term, Epoch: s.Epoch, Facts: s.FactsIndex, Removed: s.Removed}
	for _, v := range s.Voters {
		raft.Voters = append(raft.Voters, string(v.ID))
	}
	raft.Forming = n.forming(&s)
	return console.Info{
		ID: string(n.id), Name: n.cfg.Node.Name, Boot: n.clock.Boot().String(), Version: Version(),
		Uptime: time.Since(n.started), API: n.apiListener.Addr().String(), Admin: n.adminListener.Addr().String(),
		Cluster: n.clusterAddr, Sharing: n.cfg.Cluster.Sharing, Raft: raft, Config: n.mark(n.digests()),
		Secrets: n.secretPrints(), Warnings: n.warnings(),
	}
}

// Sketch is what the node believes a replica's cache holds.
func (n *Node) Sketch(id state.ReplicaID) console.Sketch {
	s := n.index.Stats(id)
	return console.Sketch{
		Entries: s.Entries, LiveTokens: min(float64(s.Tokens), s.CEff), CEff: s.CEff,
		HorizonS: s.HorizonAge.Seconds(), Rho: s.Rho, Trust: s.Trust, Samples: s.Samples, Bytes: s.Bytes, Evicted: s.Drops.Live,
	}
}

// Speed is what is known of how fast a replica is.
func (n *Node) Speed(id state.ReplicaID) console.Speed {
	r := n.store.View().Replica(id)
	if r == nil {
		return console.Speed{}
	}
	p := n.cal.Params(r.Slot, r.Pool)
	return console.Speed{PrefillRate: p.Rate, FixedMS: p.Fixed, ITLMS: p.ITL, ITLPerStream: p.ITLPerStream, Samples: p.Samples}
}

// Queue is what waits for a pool here, and what was refused.
func (n *Node) Queue(v *state.View, pool *state.PoolView) console.Queue {
	p := n.proxy.Core().Pressure(v, pool)
	q := console.Queue{Refused: p.Refused, WaitMS: -1}
	if p.Wait >= 0 {
		q.WaitMS = float64(p.Wait) / float64(time.Millisecond)
	}
	for b, waits := range p.Bands {
		if waits > 0 {
			if q.Here == nil {
				q.Here = map[string]int64{}
			}
			q.Here[state.Band(b).String()] = waits
		}
	}
	return q
}

// Refused is what was refused before its pool was known.
func (n *Node) Refused() map[string]int64 { return n.proxy.Core().Refused() }

// Config is the node's configuration; it holds no secrets, only where they are.
func (n *Node) Config() any { return asMap(*n.now()) }

// Figures says how well this router's picture fits the world.
func (n *Node) Figures() console.Figures { return n.meter.Figures(time.Now()) }

// Hindrance is what the autoscaler last had to say of a target that is not reached.
func (n *Node) Hindrance(k state.TargetKey) string {
	for _, r := range n.scale.Reports() {
		if r.Key == k {
			return r.Problem
		}
	}
	return ""
}

// Refusals are the plans to scale that this router refused as the leader.
func (n *Node) Refusals() (list []console.Refusal) {
	for _, r := range n.scale.Refused() {
		list = append(list, console.Refusal{
			Key: r.Key, First: r.First, Last: r.Last, Count: r.Count, From: r.From, To: r.To, Reason: r.Reason, Text: r.Text, After: r.After,
		})
	}
	return list
}

// ownWrite is how long a write's answer waits until this router has the write too,
// so that whoever asks it next sees what was done.
const ownWrite = 2 * time.Second

// Commit takes an edit of the facts to the leader, and waits until this router has
// it as well; behind says that it has not, in time. The index is that of the facts; 0
// when it was voters that changed, who are none of them.
func (n *Node) Commit(ctx context.Context, c state.Command) (index uint64, behind bool, err error) {
	r, err := n.raft.Apply(ctx, c)
	if err = committed(err); err != nil {
		return r.Index, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, ownWrite)
	defer cancel()
	if c.Kind == state.CommandRemoveMember {
		return 0, !n.votesNoMore(ctx, c.Router), nil
	}
	if !n.raft.Await(ctx, r.Index) {
		return r.Index, true, nil
	}
	n.othersHave(ctx, r.Index)
	return r.Index, false, nil
}

// othersWait is how long a write's answer waits for the other live routers: they
// have it in milliseconds, unless one has just died or is a learner between two
// looks.
const othersWait = time.Second

// othersHave waits until every live router has said that it has the facts of that
// index, so that a question to another router shows what was done, too.
func (n *Node) othersHave(ctx context.Context, index uint64) {
	ctx, cancel := context.WithTimeout(ctx, othersWait)
	defer cancel()
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for {
		have := map[state.RouterID]bool{n.id: true}
		v := n.store.View()
		for i := range v.Routers {
			have[v.Routers[i].ID] = v.Routers[i].FactsIndex >= index
		}
		if !slices.ContainsFunc(n.Live(), func(id state.RouterID) bool { return !have[id] }) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// votesNoMore waits until this router knows that another votes no more: voters are
// Raft's own configuration, not facts with an index.
func (n *Node) votesNoMore(ctx context.Context, id state.RouterID) bool {
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for slices.ContainsFunc(n.raft.Status().Voters, func(v consensus.Voter) bool { return v.ID == id }) {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
		}
	}
	return true
}

// Explain says where a request of a tenant, "" for none, would go.
func (n *Node) Explain(ctx context.Context, tenant, path string, body []byte) (any, error) {
	if tenant != "" && !n.gate.HasTenant(tenant) {
		return nil, fmt.Errorf("no key of this router is of a tenant %q: see gateway.keys in 'hearsay config show'", tenant)
	}
	return n.proxy.Core().ExplainFor(ctx, tenant, path, body)
}

// Past says where a recent request went.
func (n *Node) Past(id string) (any, bool) {
	picks := n.proxy.Picks().Of(id)
	return picks, len(picks) > 0
}

// Drain marks a replica as draining on this router alone.
func (n *Node) Drain(id state.ReplicaID, on bool, reason string) { n.store.SetDrain(id, on, reason) }

// Flush forgets what a replica holds, on all routers.
func (n *Node) Flush(id state.ReplicaID) { n.index.Clear(id, n.clock.Stamp(time.Now())) }

// LogLevel sets the process's log level.
func (n *Node) LogLevel(level string) error {
	if !slices.Contains(LogLevels(), level) {
		return fmt.Errorf("%q is no level: use %s", level, strings.Join(LogLevels(), ", "))
	}
	l, err := zerolog.ParseLevel(level)
	if err != nil {
		return err
	}
	zerolog.SetGlobalLevel(l)
	return nil
}

// Replica makes the replica that a URL is in a pool.
func (n *Node) Replica(pool, url string) (state.Replica, error) {
	known := false
	for _, p := range n.store.View().Pools {
		known = known || p.Spec.Name == pool
	}
	if !known {
		return state.Replica{}, fmt.Errorf("no pool %q: see hearsay status", pool)
	}
	r, err := replica(pool, url, state.RoleBoth, n.engineOf(pool))
	if err == nil {
		err = n.allowed(pool, r.URL)
	}
	return r, err
}

// replica names a replica by its normalised authority.
func replica(pool, url string, role state.Role, engine state.EngineKind) (state.Replica, error) {
	u, err := NormalURL(url)
	if err != nil {
		return state.Replica{}, err
	}
	_, id, _ := strings.Cut(u, "://")
	return state.Replica{ID: state.ReplicaID(id), Pool: pool, URL: u, Role: role, Engine: engine}, nil
}

func (n *Node) engineOf(pool string) state.EngineKind {
	for _, p := range n.now().Pools {
		if p.Name == pool {
			return state.EngineKind(p.Engine)
		}
	}
	return state.EngineAuto
}
