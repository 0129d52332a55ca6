package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/consensus"
	"github.com/hearsay-llm/hearsay/cluster/gossip"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/state"
)

const (
	// agreeEvery is how often the others are asked which pools they run. In a large
	// cluster they are asked less often, in proportion to what askedAtOnce is exceeded.
	agreeEvery  = 5 * time.Second
	agreeWait   = time.Second // for one answer
	askedAtOnce = 32
	// formingFor bounds how long a router that founds alone may take to lead and to agree
	// with itself, formingEvery is how often it tries meanwhile.
	formingFor   = 10 * time.Second
	formingEvery = 250 * time.Millisecond
)

// agreement is what this router knows of the configurations that others run.
type agreement struct {
	mu    sync.Mutex
	pools map[state.RouterID]map[string]string // guarded by mu; digests by pool, of live routers that said so
	heard bool                                 // guarded by mu; every live router was asked and has answered, or can't
}

func (a *agreement) of(id state.RouterID) (map[string]string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := a.pools[id]
	return p, ok
}

// alike reports whether all live routers are known to run the given pools.
func (a *agreement) alike(own map[string]string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.pools {
		if !maps.Equal(p, own) {
			return false
		}
	}
	return a.heard
}

// others are the routers that run other pools than the given ones.
func (a *agreement) others(own map[string]string) (ids []state.RouterID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, p := range a.pools {
		if !maps.Equal(p, own) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// watchConfigs asks the others which pools they run. The leader commits what all live
// routers run: none of them wins over another one silently.
func (n *Node) watchConfigs(ctx context.Context) error {
	for {
		n.askConfigs(ctx)
		if own := n.digests(); n.agreed.alike(own) {
			n.commitConfig(ctx, own)
		}
		wait := agreeEvery * time.Duration(1+len(n.peers())/askedAtOnce)
		if s := n.raft.Status(); n.forming(&s) {
			wait = formingEvery // nobody is asked, and it leads soon
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		case <-n.reasked:
			t.Stop()
		}
	}
}

// askConfigs asks every live router, one after another. One that does not know the
// question is of an earlier release, and is left out.
func (n *Node) askConfigs(ctx context.Context) {
	said, heard := map[state.RouterID]map[string]string{}, true
	for _, p := range n.peers() {
		pools, err := n.askConfig(ctx, p.ID)
		switch {
		case err == nil:
			said[p.ID] = pools
		case !strings.Contains(err.Error(), "unknown method"):
			heard = false
			if old, ok := n.agreed.of(p.ID); ok {
				said[p.ID] = old
			}
		}
	}
	n.agreed.mu.Lock()
	n.agreed.pools, n.agreed.heard = said, heard
	n.agreed.mu.Unlock()
}

func (n *Node) askConfig(ctx context.Context, id state.RouterID) (pools map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, agreeWait)
	defer cancel()
	b, err := n.mesh.Call(ctx, id, callConfig, nil)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &pools); err != nil {
		return nil, fmt.Errorf("answer of %s: %w", id, err)
	}
	return pools, nil
}

// sayConfig answers askConfig.
func (n *Node) sayConfig() ([]byte, error) { return json.Marshal(n.digests()) }

// commitConfig makes what all routers run the committed configuration, on the leader.
func (n *Node) commitConfig(ctx context.Context, own map[string]string) {
	f := n.raft.Facts()
	if f.Epoch == 0 || f.Config.Is(own) || n.raft.Status().State != "leader" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, agreeEvery)
	defer cancel()
	c := state.Command{Kind: state.CommandSetConfig, Epoch: f.Epoch, Pools: own}
	if _, err := n.raft.Apply(ctx, c); err != nil {
		n.log.Debug().Err(err).Msg("configuration not committed")
		return
	}
	n.log.Info().Uint64("revision", n.raft.Facts().Config.Revision).Str("digest", digestOf(own)).Msg("all routers run the same pools")
}

// unsettled reports whether routers differ in what they run for a pool, or this one
// from what is committed: such a pool is not scaled.
func (n *Node) unsettled(pool string) bool {
	own := n.digests()
	if f := n.raft.Facts(); f.Config.Revision > 0 && f.Config.Differs(own)[pool] {
		return true
	}
	for _, id := range n.agreed.others(own) {
		if theirs, ok := n.agreed.of(id); ok && theirs[pool] != own[pool] {
			return true
		}
	}
	return false
}

// forming reports whether this router was started a moment ago as the only one, and has
// not agreed with itself yet on what it runs: nothing is wrong then.
func (n *Node) forming(s *consensus.Status) bool {
	c := &n.cfg.Cluster
	return time.Since(n.started) < formingFor && !c.joins() && c.BootstrapExpect == 1 && len(s.Voters) < 2 && len(n.peers()) == 0 &&
		(s.Leader == "" || n.raft.Facts().Config.Revision == 0)
}

// mark is what a configuration is called.
func (n *Node) mark(pools map[string]string) console.ConfigMark {
	m := console.ConfigMark{Digest: digestOf(pools)}
	if c := n.raft.Facts().Config; c.Is(pools) {
		m.Revision = c.Revision
	}
	return m
}

// markOf is what another router's is called; nil: it has not said.
func (n *Node) markOf(id state.RouterID) *console.ConfigMark {
	pools, ok := n.agreed.of(id)
	if !ok {
		return nil
	}
	m := n.mark(pools)
	return &m
}

// configWarnings say where the pools differ.
func (n *Node) configWarnings() (list []string) {
	if why := n.reloadFault.Load(); why != nil {
		list = append(list, "the configuration was not reloaded, what ran before goes on: "+*why)
	}
	own := n.digests()
	names := map[state.RouterID]string{}
	for _, m := range n.gossip.Members() {
		if m.State == gossip.Alive {
			names[m.ID] = m.Name
		}
	}
	others := n.agreed.others(own)
	for _, id := range others {
		theirs, _ := n.agreed.of(id)
		at := state.ConfigMark{Pools: theirs}
		list = append(list, fmt.Sprintf("router %s runs other pools than this one (%s): give both the same, and 'hearsay reload' where it changes; "+
			"until all agree these are not scaled", names[id], strings.Join(slices.Sorted(maps.Keys(at.Differs(own))), ", ")))
	}
	if c := n.raft.Facts().Config; len(others) == 0 && c.Revision > 0 && !c.Is(own) && !n.agreed.alike(own) {
		list = append(list, fmt.Sprintf("this router runs other pools (%s) than the routers had agreed on (revision %d)",
			strings.Join(slices.Sorted(maps.Keys(c.Differs(own))), ", "), c.Revision))
	}
	return list
}
