package node

import (
	"cmp"
	"fmt"

	"github.com/hearsay-llm/hearsay/autoscale/actuator"
	"github.com/hearsay-llm/hearsay/state"
)

// ScaleKubernetesConfig names the objects whose Pods are a pool's replicas, by role.
type ScaleKubernetesConfig struct {
	Resource   string `yaml:"resource"`   // deployments.apps, statefulsets.apps, or group/version/plural
	Namespace  string `yaml:"namespace"`  // empty: that of discover.kubernetes, or the account's own
	Name       string `yaml:"name"`       // of the object whose Pods serve whole requests
	Prefill    string `yaml:"prefill"`    // of the one whose Pods prefill
	Decode     string `yaml:"decode"`     // of the one whose Pods decode
	Kubeconfig string `yaml:"kubeconfig"` // file; empty: that of discover.kubernetes, or the Pod's service account
	Context    string `yaml:"context"`    // of the kubeconfig
}

// names are the objects by the role of their Pods.
func (k *ScaleKubernetesConfig) names() map[state.Role]string {
	out := map[state.Role]string{}
	for r, n := range map[state.Role]string{state.RoleBoth: k.Name, state.RolePrefill: k.Prefill, state.RoleDecode: k.Decode} {
		if n != "" {
			out[r] = n
		}
	}
	return out
}

// setDefaults takes what discovery says, since both are about the same Pods.
func (k *ScaleKubernetesConfig) setDefaults(d *KubernetesConfig) {
	if len(k.names()) == 0 {
		return
	}
	if k.Kubeconfig == "" && k.Context == "" {
		k.Kubeconfig, k.Context = d.Kubeconfig, d.Context
	}
	k.Resource = cmp.Or(k.Resource, "deployments.apps")
	k.Namespace = cmp.Or(k.Namespace, d.Namespace)
}

// validateKubernetes judges what a pool says of the objects that size it.
func (p *PoolConfig) validateKubernetes(v *faults, at string) {
	k := &p.Scale.Kubernetes
	if p.Scale.Actuator != "kubernetes" {
		return
	}
	names := k.names()
	switch {
	case len(names) == 0:
		v.add(at+".name", "is missing: the object whose Pods are the replicas, or prefill and decode where they have roles")
		return
	case k.Prefill == "" && k.Decode != "", k.Prefill != "" && k.Decode == "":
		v.add(at, "has one of prefill and decode: name both, or only name")
	}
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] {
			v.add(at, "names %s for two roles: each has an object of its own", n)
		}
		seen[n] = true
	}
	if _, err := actuator.ParseResource(k.Resource); err != nil {
		v.add(at+".resource", "%v", err)
	}
	if k.Context != "" && k.Kubeconfig == "" {
		v.add(at+".context", "is %q, of no kubeconfig: name the file", k.Context)
	}
	if !p.Discover.Kubernetes.any() {
		v.add(at, "needs discover.kubernetes, which finds the Pods that this makes")
	}
}

// uniqueScales reports objects that two pools size.
func (c *Config) uniqueScales(v *faults) {
	of := map[string]string{}
	for i := range c.Pools {
		k := &c.Pools[i].Scale.Kubernetes
		for _, n := range k.names() {
			key := fmt.Sprint(k.Kubeconfig, " ", k.Context, " ", k.Resource, " ", k.Namespace, " ", n)
			if other, twice := of[key]; twice && other != c.Pools[i].Name {
				v.add(fmt.Sprintf("pools[%d].scale.kubernetes", i), "names %s %s, which pool %q sizes already", k.Resource, n, other)
			}
			of[key] = c.Pools[i].Name
		}
	}
}

// newKubernetes makes the actuator of a pool that is sized in Kubernetes.
func (n *Node) newKubernetes(p *PoolConfig) (*actuator.Kubernetes, error) {
	k := &p.Scale.Kubernetes
	return actuator.NewKubernetes(actuator.KubernetesConfig{
		Resource: k.Resource, Namespace: k.Namespace, Names: k.names(), Kubeconfig: k.Kubeconfig, Context: k.Context,
		Getenv: n.deps.Getenv, Dial: n.deps.Dial, Log: n.log,
	})
}
