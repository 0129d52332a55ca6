package node

import (
	"fmt"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/discovery"
	"github.com/hearsay-llm/hearsay/state"
)

// sources are where a pool looks, the one that is most often right last.
func (n *Node) sources(d *DiscoverConfig) (list []discovery.Source, err error) {
	if d.DNS.Name != "" {
		list = append(list, discovery.NewDNS(discovery.DNSConfig{
			Name: d.DNS.Name, SRV: d.DNS.Type == "srv", Port: d.DNS.Port, Scheme: d.DNS.Scheme, Role: state.Role(d.DNS.Role),
			Every: d.DNS.Every, Resolver: discovery.NewResolver(d.DNS.Server, n.deps.Dial),
		}))
	}
	if d.File != "" {
		list = append(list, discovery.NewFile(d.File))
	}
	if k := &d.Kubernetes; k.any() {
		source, err := discovery.NewKube(discovery.KubeConfig{
			Namespace: k.Namespace, Selector: k.Selector, Service: k.Service, InferencePool: k.InferencePool, Port: k.Port, Scheme: k.Scheme,
			Kubeconfig: k.Kubeconfig, Context: k.Context, Getenv: n.deps.Getenv, Dial: n.deps.Dial,
		})
		if err != nil {
			return nil, fmt.Errorf("kubernetes: %w", err)
		}
		list = append(list, source)
	}
	return list, nil
}

// busy reports whether any router is known to have requests at a process.
func (n *Node) busy(id state.ReplicaID) bool {
	for _, p := range n.store.View().Pools {
		for _, r := range p.Replicas {
			if r.Process() == id && r.Load().InFlight > 0 {
				return true
			}
		}
	}
	return false
}

// allowed says why an operator may not add a replica to a pool: the pool's allow list
// holds for what is found and what is added at run time alike.
func (n *Node) allowed(pool, url string) error {
	p := n.now().pool(pool)
	if p == nil || len(p.Discover.Allow) == 0 {
		return nil
	}
	allow, err := discovery.ParseAllow(p.Discover.Allow)
	if err == nil {
		err = allow.Check(url)
	}
	if err != nil {
		return fmt.Errorf("%s: %w (discover.allow of pool %s)", url, err, pool)
	}
	return nil
}

// discoveryGrace is how long a router waits, before it is ready, for the first answers
// of what discovers its pools.
const discoveryGrace = 5 * time.Second

// undiscovered are the pools of which that is still waited for.
func (n *Node) undiscovered() (pools []string) {
	if time.Since(n.started) > discoveryGrace {
		return nil
	}
	for _, d := range n.discover.list() {
		if !d.Answered() {
			pools = append(pools, d.Name())
		}
	}
	return pools
}

// discoveryWarnings say what is wrong with discovery, for people.
func (n *Node) discoveryWarnings(now time.Time) (list []string) {
	for _, d := range n.discover.list() {
		for _, s := range d.Status() {
			at := fmt.Sprintf("pool %s, %s %s", d.Name(), s.Kind, s.Where)
			switch {
			case s.Problem == "":
			case s.At.IsZero():
				list = append(list, fmt.Sprintf("%s: %s", at, s.Problem))
			default:
				list = append(list, fmt.Sprintf("%s: %s; last good answer %v ago, replicas kept: %d", at, s.Problem, now.Sub(s.At).Round(time.Second), s.Replicas))
			}
			for i, r := range s.Refused {
				if i == maxToldRefused {
					list = append(list, fmt.Sprintf("%s: %d more replicas are refused", at, len(s.Refused)-i))
					break
				}
				list = append(list, fmt.Sprintf("%s: replica %s is refused: %s", at, r.URL, r.Why))
			}
		}
	}
	return list
}

// maxToldRefused bounds the refused replicas that are named.
const maxToldRefused = 5
