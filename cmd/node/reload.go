package node

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/state"
)

// now is the configuration that runs: that of the start, with what reloads changed.
func (n *Node) now() *Config { return n.live.Load() }

// Reload reads the configuration again and takes of it what can change while the
// router runs, all at once: pools, clients' keys, the log level. What can't is named
// in the answer and stays as it was. A configuration with a fault changes nothing.
func (n *Node) Reload(context.Context) (console.Reloaded, error) {
	n.reloading.Lock()
	defer n.reloading.Unlock()
	if n.deps.Load == nil {
		return console.Reloaded{}, &state.Refusal{Code: state.RefusedInvalid, Reason: "this router was not started from a configuration that can be read again"}
	}
	was := n.now()
	next, err := n.deps.Load()
	var (
		eff  Config
		plan []foundBy
	)
	if err == nil && len(next.Pools) == 0 {
		err = errors.New("pools: is missing: a router needs at least one")
	}
	if err == nil {
		eff = taken(&n.cfg, was, &next)
		err = eff.Validate() // what stays may not go with what is new
	}
	if err == nil {
		plan, err = n.planDiscovery(&eff)
	}
	if err != nil {
		why := err.Error()
		n.reloadFault.Store(&why)
		n.reloads.WithLabelValues("refused").Inc()
		n.log.Error().Err(err).Msg("configuration not reloaded")
		return console.Reloaded{}, &state.Refusal{Code: state.RefusedInvalid, Reason: "nothing was changed: " + why}
	}
	old := was.keyed()
	r := console.Reloaded{Changed: newOrGone(differing(old, eff.keyed()), was, &eff), Restart: differing(eff.keyed(), next.keyed())}
	n.take(was, &eff)
	n.discoverBy(plan)
	n.tellOrphans(was)
	n.reloadFault.Store(nil)
	n.reloads.WithLabelValues("done").Inc()
	r.Config = n.mark(n.digests())
	n.log.Info().Strs("changed", r.Changed).Strs("restart", r.Restart).Str("digest", r.Config.Digest).Msg("configuration reloaded")
	if len(r.Restart) > 0 {
		n.log.Warn().Strs("keys", r.Restart).Msg("these keys are taken at a restart")
	}
	n.askAgain()
	return r, nil
}

// askAgain has the other routers asked at once which pools they run.
func (n *Node) askAgain() {
	select {
	case n.reasked <- struct{}{}:
	default:
	}
}

// taken is the next configuration as far as a running router can take it. Actuators are
// made at the start, and stay with their pools: also with one that was taken out and is
// put back.
func taken(start, was, next *Config) Config {
	eff := *was
	eff.Log.Level, eff.Gateway = next.Log.Level, next.Gateway
	eff.Pools = slices.Clone(next.Pools)
	for i := range eff.Pools {
		p := &eff.Pools[i]
		if q := was.pool(p.Name); q != nil {
			p.Engine, p.DPRanks = q.Engine, q.DPRanks // what is known of its replicas rests on them
		}
		s := &p.Scale
		if q := start.pool(p.Name); q != nil {
			s.Actuator, s.Command, s.Dir, s.Webhook, s.Kubernetes = q.Scale.Actuator, q.Scale.Command, q.Scale.Dir, q.Scale.Webhook, q.Scale.Kubernetes
		} else if s.Actuator != state.DryRun { // its actuator is made at the start
			s.Actuator, s.Command, s.Dir = state.DryRun, nil, ""
			s.Webhook, s.Kubernetes = WebhookConfig{Timeout: defaultWebhookTimeout}, ScaleKubernetesConfig{}
		}
	}
	return eff
}

// pool is one by its name; nil: there is none.
func (c *Config) pool(name string) *PoolConfig {
	if i := slices.IndexFunc(c.Pools, func(p PoolConfig) bool { return p.Name == name }); i >= 0 {
		return &c.Pools[i]
	}
	return nil
}

// take makes a configuration the one that runs. Requests see all of its pools or none.
// A replica that goes from one pool to another is listed by both for a moment, since
// what is known of one that no pool lists is forgotten.
func (n *Node) take(was, eff *Config) {
	n.live.Store(eff)
	n.store.Batch(func() {
		n.store.SetPools(eff.specs())
		old, gone := map[string][]state.Replica{}, map[string]bool{}
		for i := range was.Pools {
			p := &was.Pools[i]
			old[p.Name], gone[p.Name] = p.static(), true
		}
		for i := range eff.Pools {
			p := &eff.Pools[i]
			delete(gone, p.Name)
			n.store.SetReplicas(state.SourceStatic, p.Name, slices.Concat(old[p.Name], p.static()))
		}
		for i := range eff.Pools {
			n.store.SetReplicas(state.SourceStatic, eff.Pools[i].Name, eff.Pools[i].static())
		}
		for name := range gone {
			n.store.SetReplicas(state.SourceStatic, name, nil)
		}
	})
	n.gate.Set(eff.Gateway.keys())
	if was.Log.Level != eff.Log.Level { // what was set at run time stays otherwise
		if l, err := zerolog.ParseLevel(eff.Log.Level); err == nil {
			zerolog.SetGlobalLevel(l)
		}
	}
}

// specs are the pools as the rest of the node knows them.
func (c *Config) specs() (specs []state.PoolSpec) {
	for i := range c.Pools {
		specs = append(specs, c.Pools[i].Spec())
	}
	return specs
}

// static are a pool's replicas that the file lists.
func (p *PoolConfig) static() (list []state.Replica) {
	for _, r := range p.Replicas {
		rep, err := replica(p.Name, r.URL, state.Role(r.Role), state.EngineKind(p.Engine))
		if rep.BootstrapPort = r.BootstrapPort; err == nil { // Validate has checked it
			list = append(list, rep)
		}
	}
	return list
}

// reloadOnHangup reloads whenever the process is told so by a signal.
func (n *Node) reloadOnHangup(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.deps.Hangup:
			_, err := n.Reload(ctx)
			var refused *state.Refusal
			if errors.As(err, &refused) && strings.HasPrefix(refused.Reason, "this router") {
				n.log.Warn().Err(err).Msg("configuration not reloaded") // the others are logged
			}
		}
	}
}
