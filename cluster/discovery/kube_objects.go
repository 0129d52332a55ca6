package discovery

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"

	"github.com/hearsay-llm/hearsay/state"
)

// Annotations of a Pod, or labels where it has no such annotation.
const (
	keyPort      = "hearsay/port"           // number or name
	keyRole      = "hearsay/role"           // both | prefill | decode
	keyScheme    = "hearsay/scheme"         // http | https
	keyBootstrap = "hearsay/bootstrap-port" // of a Pod that prefills
	keyRanks     = "hearsay/dp-ranks"       // data-parallel ranks behind each port
	keyDrain     = "hearsay/drain"          // true: no new requests
	keyRoleLLMD  = "llm-d.ai/role"          // as llm-d labels them
)

// Why replicas of Kubernetes drain.
const (
	terminates = "its Pod terminates"
	notReady   = "its Pod is not ready"
	toldDrain  = "its Pod is annotated to drain"
)

// candidate is a replica that may be listed.
type candidate struct {
	found              Found
	uid                string // what readiness is remembered by
	ready, terminating bool
}

// listed turns candidates into a snapshot. One that was never ready is not listed; one
// that was and is not drains, unless none is ready: then it is more likely the probes
// that fail, since busy engines answer late, and readings tell.
func (k *Kube) listed(all []candidate, refused []Refused) Snapshot {
	none := !slices.ContainsFunc(all, func(c candidate) bool { return c.ready && !c.terminating })
	ready := map[string]bool{}
	x := Snapshot{Replicas: []Found{}, Refused: refused}
	for _, c := range all {
		if !c.ready && !k.ready[c.uid] {
			continue
		}
		ready[c.uid] = true
		switch {
		case c.terminating:
			c.found.Leaving = terminates
		case !c.ready && !none:
			c.found.Leaving = notReady
		}
		x.Replicas = append(x.Replicas, c.found)
	}
	k.ready = ready
	return x
}

// fromPods reads Pods; ports, if any, are an InferencePool's, each a replica.
func (k *Kube) fromPods(objects map[string]kubeObject, ports []int) Snapshot {
	var all []candidate
	var refused []Refused
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		o := objects[name]
		if o.Status.IP == "" || o.Status.Phase == "Succeeded" || o.Status.Phase == "Failed" || o.Metadata.UID == "" {
			continue
		}
		c := candidate{uid: o.Metadata.UID, terminating: o.Metadata.Deletion != nil}
		for _, x := range o.Status.Conditions {
			c.ready = c.ready || x.Type == "Ready" && x.Status == "True"
		}
		on := ports
		if len(on) == 0 {
			p, err := k.podPort(&o)
			if err != nil {
				refused = append(refused, Refused{"pod " + clip(name), err.Error()})
				continue
			}
			on = []int{p}
		}
		found, err := k.described(&o)
		if err != nil {
			refused = append(refused, Refused{"pod " + clip(name), err.Error()})
			continue
		}
		scheme := cmp.Or(o.told(keyScheme), k.cfg.Scheme)
		for _, p := range on {
			c.found = found
			if len(on) > 1 {
				c.found.ID = state.ReplicaID(o.Metadata.UID + ":" + strconv.Itoa(p))
			}
			c.found.URL = scheme + "://" + net.JoinHostPort(o.Status.IP, strconv.Itoa(p))
			all = append(all, c)
		}
	}
	return k.listed(all, refused)
}

// told is what a Pod's annotation says, or its label.
func (o *kubeObject) told(key string) string {
	return cmp.Or(o.Metadata.Annotations[key], o.Metadata.Labels[key])
}

// described is what a Pod says of itself, but for its URL.
func (k *Kube) described(o *kubeObject) (f Found, err error) {
	f = Found{ID: state.ReplicaID(o.Metadata.UID), Name: o.Metadata.Name}
	role := cmp.Or(o.told(keyRole), o.told(keyRoleLLMD))
	switch role {
	case "", "both", "prefill-decode":
		f.Role = state.RoleBoth
	case "prefill", "decode":
		f.Role = state.Role(role)
	default:
		return f, fmt.Errorf("its role %q is none of both, prefill, decode", clip(role))
	}
	if s := o.told(keyBootstrap); s != "" && f.Role == state.RolePrefill {
		if f.BootstrapPort = number(s); f.BootstrapPort == 0 {
			return f, fmt.Errorf("its %s %q is not 1 to 65535", keyBootstrap, clip(s))
		}
	}
	if s := o.told(keyRanks); s != "" {
		if f.Ranks = number(s); f.Ranks == 0 || f.Ranks > maxRanks {
			return f, fmt.Errorf("its %s %q is not 1 to %d", keyRanks, clip(s), maxRanks)
		}
	}
	if o.told(keyDrain) == "true" {
		f.Leaving = toldDrain
	}
	return f, nil
}

// podPort is the port of a Pod's replica.
func (k *Kube) podPort(o *kubeObject) (int, error) {
	want := cmp.Or(o.told(keyPort), k.cfg.Port)
	if n := number(want); n > 0 {
		return n, nil
	}
	var ports []int
	for _, c := range o.Spec.Containers {
		for _, p := range c.Ports {
			if (want == "" || p.Name == want) && (p.Protocol == "" || p.Protocol == "TCP") {
				ports = append(ports, p.Container)
			}
		}
	}
	return only(ports, want)
}

// only is the one port there is.
func only(ports []int, want string) (int, error) {
	switch {
	case len(ports) == 1:
		return ports[0], nil
	case want != "":
		return 0, fmt.Errorf("it has no port named %q", clip(want))
	}
	return 0, fmt.Errorf("it has %d ports: say which", len(ports))
}

// number is a port, or 0 if s is none.
func number(s string) int {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0
	}
	return int(n)
}

// fromSlices reads EndpointSlices. While a Service is moved from slice to slice, and
// where it has addresses of two families, an endpoint stands in several: it is one.
func (k *Kube) fromSlices(objects map[string]kubeObject) Snapshot {
	best := map[string]candidate{}
	var refused []Refused
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		o := objects[name]
		port, err := k.slicePort(&o)
		if err != nil {
			refused = append(refused, Refused{"endpointslice " + clip(name), err.Error()})
			continue
		}
		for _, e := range o.Endpoints {
			if len(e.Addresses) == 0 || e.Addresses[0] == "" {
				continue
			}
			c := k.endpoint(&e, port)
			if other, twice := best[c.uid]; !twice || c.before(&other) {
				best[c.uid] = c
			}
		}
	}
	var all []candidate
	for _, key := range slices.Sorted(maps.Keys(best)) {
		all = append(all, best[key])
	}
	return k.listed(all, refused)
}

// endpoint reads one endpoint. It counts as ready while it serves: a terminating one
// does, and drains for the other reason.
func (k *Kube) endpoint(e *kubeEndpoint, port int) candidate {
	is := func(b *bool, unknown bool) bool {
		if b == nil {
			return unknown
		}
		return *b
	}
	c := candidate{ready: is(e.Conditions.Ready, true), terminating: is(e.Conditions.Terminating, false)}
	c.ready = is(e.Conditions.Serving, c.ready) || c.ready
	c.found = Found{URL: k.cfg.Scheme + "://" + net.JoinHostPort(e.Addresses[0], strconv.Itoa(port)), Name: e.Target.Name}
	if c.uid = c.found.URL; e.Target.Kind == "Pod" && e.Target.UID != "" {
		c.uid, c.found.ID = e.Target.UID, state.ReplicaID(e.Target.UID)
	}
	return c
}

// before reports whether c is what to believe of an endpoint that other tells of too.
func (c *candidate) before(other *candidate) bool {
	if c.terminating != other.terminating {
		return other.terminating
	}
	if c.ready != other.ready {
		return c.ready
	}
	six := func(c *candidate) int {
		if len(c.found.URL) > 0 && slices.Contains([]byte(c.found.URL), '[') {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(six(c), six(other)), cmp.Compare(c.found.URL, other.found.URL)) < 0
}

// slicePort is the port of a slice's endpoints.
func (k *Kube) slicePort(o *kubeObject) (int, error) {
	if n := number(k.cfg.Port); n > 0 {
		return n, nil
	}
	var ports []int
	for _, p := range o.Ports {
		if (k.cfg.Port == "" || p.Name == k.cfg.Port) && (p.Protocol == "" || p.Protocol == "TCP") {
			ports = append(ports, p.Port)
		}
	}
	return only(ports, k.cfg.Port)
}
