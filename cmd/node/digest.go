package node

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// digestSize is how many bytes of a hash name a configuration: routers compare a
// handful.
const digestSize = 6

// digests name the configuration of each pool: routers that agree on them run the same
// pools. What a pool leaves to its defaults is not part of it, so that a release with
// more keys agrees with the one before; nor is where the process actuator works, nor the
// webhook's files, which differ between hosts.
func (c *Config) digests() map[string]string {
	out := make(map[string]string, len(c.Pools))
	for i := range c.Pools {
		out[c.Pools[i].Name] = digestOf(c.Pools[i].chosen())
	}
	return out
}

// digested are the digests of a configuration.
type digested struct {
	of    *Config
	pools map[string]string // never changed
}

// digests are those of the configuration that runs. They are worked out once for each:
// every look at a router asks for them.
func (n *Node) digests() map[string]string {
	c := n.now()
	if d := n.digested.Load(); d != nil && d.of == c {
		return d.pools
	}
	d := &digested{of: c, pools: c.digests()}
	n.digested.Store(d)
	return d.pools
}

// digestOf names a set of texts.
func digestOf(set map[string]string) string {
	h := sha256.New()
	for _, k := range slices.Sorted(maps.Keys(set)) {
		fmt.Fprintf(h, "%q=%q\n", k, set[k])
	}
	return hex.EncodeToString(h.Sum(nil)[:digestSize])
}

// chosen are the keys of a pool that are not as a pool's that was told nothing.
func (p *PoolConfig) chosen() map[string]string {
	plain := PoolConfig{Scale: ScaleConfig{Actuator: p.Scale.Actuator, Min: p.Scale.Min, Max: p.Scale.Max}}
	plain.setDefaults()
	plain.Scale = ScaleConfig{Cooldown: plain.Scale.Cooldown, DownWindow: plain.Scale.DownWindow}
	q := *p
	q.Scale.Command, q.Scale.Dir, q.Scale.Webhook = nil, "", WebhookConfig{URL: p.Scale.Webhook.URL}
	q.Replicas = slices.Clone(p.Replicas)
	slices.SortFunc(q.Replicas, func(a, b ReplicaConfig) int { return strings.Compare(a.URL, b.URL) })
	usual, out := flat(&plain), map[string]string{}
	for k, v := range flat(&q) {
		if u, ok := usual[k]; v != u && (ok || v != "" && v != "0") {
			out[k] = v
		}
	}
	return out
}

// flat are the keys and values of a part of the configuration, as texts.
func flat(part any) map[string]string {
	out := map[string]string{}
	walk(reflect.ValueOf(part).Elem(), "", func(key string, v reflect.Value) {
		for v.Kind() == reflect.Pointer {
			if v.IsNil() {
				out[key] = ""
				return
			}
			v = v.Elem()
		}
		out[key] = fmt.Sprint(v.Interface())
	})
	return out
}

// keyed are the keys and values of a whole configuration. Pools, their replicas and
// clients' keys are named, not counted, so that one more in between is one more.
func (c *Config) keyed() map[string]string {
	bare := *c
	bare.Pools, bare.Gateway.Keys = nil, nil
	out := flat(&bare)
	add := func(at string, part any) {
		for k, v := range flat(part) {
			out[at+k] = v
		}
	}
	for i := range c.Pools {
		p := c.Pools[i]
		p.Replicas = nil
		add("pools."+p.Name+".", &p)
		for j := range c.Pools[i].Replicas {
			r := &c.Pools[i].Replicas[j]
			add(keyOf(p.Name, r)+".", r)
		}
	}
	for i := range c.Gateway.Keys {
		add("gateway.keys."+c.Gateway.Keys[i].Name+".", &c.Gateway.Keys[i])
	}
	return out
}

// keyOf is what a replica of a pool is called among the keys.
func keyOf(pool string, r *ReplicaConfig) string { return "pools." + pool + ".replicas[" + r.URL + "]" }

// newOrGone puts one name in the place of all keys of a pool, of a replica, or of a
// client's key, that only one of two configurations has: the pool's before its replicas'.
func newOrGone(keys []string, a, b *Config) (out []string) {
	ones, others := a.parts(), b.parts()
	var single []string
	for _, part := range slices.Sorted(maps.Keys(ones)) {
		if !others[part] {
			single = append(single, part)
		}
	}
	for _, part := range slices.Sorted(maps.Keys(others)) {
		if !ones[part] {
			single = append(single, part)
		}
	}
	for _, k := range keys {
		for _, part := range single { // a pool stands before its replicas
			if strings.HasPrefix(k, part+".") || strings.HasPrefix(k, part+"[") {
				k = part
				break
			}
		}
		if !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// parts are the pools, their replicas and clients' keys, as keyed names them.
func (c *Config) parts() map[string]bool {
	out := map[string]bool{}
	for i := range c.Pools {
		out["pools."+c.Pools[i].Name] = true
		for j := range c.Pools[i].Replicas {
			out[keyOf(c.Pools[i].Name, &c.Pools[i].Replicas[j])] = true
		}
	}
	for i := range c.Gateway.Keys {
		out["gateway.keys."+c.Gateway.Keys[i].Name] = true
	}
	return out
}

// differing are the keys whose values differ, in order.
func differing(a, b map[string]string) (keys []string) {
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			keys = append(keys, k)
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}
