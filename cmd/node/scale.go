package node

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

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

// unique is how many warm tokens a replica holds that no other one of its pool does,
// those in gone and those that drain not counted.
func (n *Node) unique(id state.ReplicaID, gone []state.ReplicaID) int {
	v := n.store.View()
	r := v.Replica(id)
	if r == nil {
		return 0
	}
	var others []state.Slot
	pool := v.PoolNamed(r.Pool)
	if pool == nil {
		return 0
	}
	for _, x := range pool.Replicas {
		if x.ID != id && !x.Draining && !slices.Contains(gone, x.ID) {
			others = append(others, x.Slot)
		}
	}
	return int(n.index.Unique(id, others))
}

// newScale makes loop 3 and what it acts through.
func (n *Node) newScale() (err error) {
	process, webhook, kubernetes := pooled{}, pooled{}, pooled{}
	acts := map[string]autoscale.Actuator{"dry_run": actuator.NewDryRun(), "process": process, "webhook": webhook, "kubernetes": kubernetes}
	for i := range n.cfg.Pools {
		p := &n.cfg.Pools[i]
		switch p.Scale.Actuator {
		case "process":
			process[p.Name], err = actuator.NewProcess(actuator.ProcessConfig{
				Dir: n.processDir(p), Command: p.Scale.Command, Log: n.log,
			})
		case "webhook":
			webhook[p.Name], err = n.newWebhook(p)
		case "kubernetes":
			var k *actuator.Kubernetes
			if k, err = n.newKubernetes(p); err == nil {
				n.closers = append(n.closers, k.Close)
				kubernetes[p.Name] = k
			}
		}
		if err != nil {
			return fmt.Errorf("pools.%s.scale: %w", p.Name, err)
		}
	}
	n.scale, err = autoscale.New(autoscale.Config{
		Self: n.id, Cluster: n, Committer: committer{n}, Actuators: acts,
		Queued: n.queued, Unsettled: n.unsettled, Learned: n.learned,
		Unique: n.unique, Log: n.log, Registerer: n.reg,
	})
	return err
}

// ownProcesses is where the process actuators of a router keep their records, in its data
// directory, unless a pool names another place.
const ownProcesses = "process"

// processDir is that of one pool.
func (n *Node) processDir(p *PoolConfig) string {
	return filepath.Join(cmp.Or(p.Scale.Dir, filepath.Join(n.cfg.Node.DataDir, ownProcesses)), p.Name)
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
