package node

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/hearsay-llm/hearsay/autoscale"
	"github.com/hearsay-llm/hearsay/autoscale/actuator"
	"github.com/hearsay-llm/hearsay/state"
)

// The methods here are what the autoscaler asks of the node.

// committer commits the autoscaler's edits and waits until the View has them.
type committer struct{ n *Node }

func (c committer) Commit(ctx context.Context, cmd state.Command) error {
	_, err := c.n.raft.Apply(ctx, cmd)
	return err
}

// Live lists the routers that membership takes for live, this one included.
func (n *Node) Live() []state.RouterID {
	out := []state.RouterID{n.id}
	for _, p := range n.peers() {
		out = append(out, p.ID)
	}
	return out
}

// queued counts the requests of a pool that wait at all routers.
func (n *Node) queued(pool string) int {
	v := n.store.View()
	if p := v.PoolNamed(pool); p != nil {
		return int(v.Backlog(p).Requests)
	}
	return 0
}

// newScale makes loop 3 and what it acts through.
func (n *Node) newScale() (err error) {
	acts := map[string]autoscale.Actuator{"dry_run": actuator.NewDryRun()}
	process := pooled{}
	for i := range n.cfg.Pools {
		p := &n.cfg.Pools[i]
		if p.Scale.Actuator != "process" {
			continue
		}
		dir := p.Scale.Dir
		if dir == "" {
			dir = filepath.Join(n.cfg.Node.DataDir, "process")
		}
		process[p.Name], err = actuator.NewProcess(actuator.ProcessConfig{
			Dir: filepath.Join(dir, p.Name), Command: p.Scale.Command, Log: n.log,
		})
		if err != nil {
			return fmt.Errorf("pools.%s.scale: %w", p.Name, err)
		}
	}
	acts["process"] = process
	n.scale, err = autoscale.New(autoscale.Config{
		Self: n.id, Cluster: n, Committer: committer{n}, Actuators: acts,
		Queued: n.queued, Unsettled: n.unsettled, Learned: n.learned,
		Warm: func(id state.ReplicaID) int { return int(n.index.Stats(id).Tokens) },
		Log:  n.log, Registerer: n.reg,
	})
	return err
}

// pooled gives each pool its own actuator of one kind.
type pooled map[string]autoscale.Actuator

func (p pooled) List(ctx context.Context, k state.TargetKey) (state.Actual, error) {
	a, ok := p[k.Pool]
	if !ok {
		return state.Actual{}, fmt.Errorf("pool %q has no such actuator on this router", k.Pool)
	}
	return a.List(ctx, k)
}

func (p pooled) Ensure(ctx context.Context, d state.Desired) (state.Actual, error) {
	a, ok := p[d.Target.Pool]
	if !ok {
		return state.Actual{}, fmt.Errorf("pool %q has no such actuator on this router", d.Target.Pool)
	}
	return a.Ensure(ctx, d)
}
