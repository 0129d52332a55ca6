package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// policies, engines and actuators are the names a file may use.
var (
	engines    = []string{"auto", "vllm", "sglang", "llamacpp", "openai", "anthropic"}
	actuators  = []string{"dry_run", "process", "kubernetes", "webhook"}
	roles      = []string{string(state.RoleBoth), string(state.RolePrefill), string(state.RoleDecode)}
	isolations = []string{"none", "tenant"}
	connectors = []string{state.ConnectorNixl, state.ConnectorMooncake}
)

// Validate reports every fault of the configuration at once, each with its key
// and what to do.
func (c *Config) Validate() error {
	v := &faults{}
	c.validate(v)
	return v.err()
}

func (c *Config) validate(v *faults) {
	if c.Node.DataDir == "" {
		v.add("node.data_dir", "is empty: name a directory this node may write to")
	}
	v.addr("listen.api", c.Listen.API)
	v.addr("listen.admin", c.Listen.Admin)
	v.addr("listen.cluster", c.Listen.Cluster)
	if _, port, err := net.SplitHostPort(c.Listen.Cluster); err == nil && port == "65535" {
		v.add("listen.cluster", "port 65535 leaves no next port for the mesh")
	}
	v.ports(c)
	if c.Cluster.Name == "" {
		v.add("cluster.name", "is empty")
	}
	if c.Cluster.BootstrapExpect < 1 {
		v.add("cluster.bootstrap_expect", "is %d: the number of nodes that start a cluster is at least 1", c.Cluster.BootstrapExpect)
	}
	if n := c.Cluster.Voters; n != 1 && n != 3 && n != 5 {
		v.add("cluster.voters", "is %d: use 1, 3 or 5", n)
	} else if e := c.Cluster.BootstrapExpect; e > max(n, 2) {
		v.between("cluster.bootstrap_expect", "cluster.voters", "is %d, with %d voters: %d found the cluster, further routers only join it", e, n, n)
	}
	if d := c.Cluster.Raft.HeartbeatTimeout; d < minRaftHeartbeat || d > maxRaftHeartbeat {
		v.add("cluster.raft.heartbeat_timeout", "is %v: %v to %v, three to four times the round trip between the routers that are farthest apart", d, minRaftHeartbeat, maxRaftHeartbeat)
	}
	for i, j := range c.Cluster.Join {
		v.addr(fmt.Sprintf("cluster.join[%d]", i), j)
	}
	c.Cluster.TLS.validate(v)
	if beyond(c.Listen.Cluster) && c.Cluster.SecretFile == "" && !c.Cluster.Insecure {
		v.add("listen.cluster", "%s is beyond loopback and cluster.secret_file is not set: set it (or HEARSAY_CLUSTER_SECRET_FILE), or cluster.insecure: true to run open", c.Listen.Cluster)
	}
	if beyond(c.Listen.Admin) && c.Admin.TokenFile == "" {
		v.add("listen.admin", "%s is beyond loopback and admin.token_file is not set: set it (or HEARSAY_ADMIN_TOKEN_FILE), or listen on 127.0.0.1", c.Listen.Admin)
	}
	if c.API.MaxBody < 1<<10 {
		v.add("api.max_body", "is %d bytes: at least 1KiB", c.API.MaxBody)
	}
	if c.API.BodyBudget < c.API.MaxBody {
		v.between("api.body_budget", "api.max_body", "is %d bytes: no less than api.max_body", c.API.BodyBudget)
	}
	if c.API.MaxHeader < 1<<10 {
		v.add("api.max_header", "is %d bytes: at least 1KiB", c.API.MaxHeader)
	}
	if c.API.WriteStall < 100*time.Millisecond {
		v.add("api.write_stall", "is %v: at least 100ms", c.API.WriteStall)
	}
	if c.API.MaxConnections < 1 {
		v.add("api.max_connections", "is %d: at least 1", c.API.MaxConnections)
	}
	if t := c.API.TLS; t.Cert == "" && t.Key != "" {
		v.add("api.tls.cert", "is missing: api.tls.key is set, and one needs the other")
	} else if t.Key == "" && t.Cert != "" {
		v.add("api.tls.key", "is missing: api.tls.cert is set, and one needs the other")
	}
	v.oneOf("log.level", c.Log.Level, LogLevels())
	v.oneOf("log.format", c.Log.Format, []string{"json", "console"})
	for i := range c.Pools {
		c.Pools[i].validate(v, fmt.Sprintf("pools[%d]", i))
	}
	c.unique(v)
	c.uniqueScales(v)
	c.fallbacks(v)
	c.Gateway.validate(v)
	walk(reflect.ValueOf(c).Elem(), "", func(key string, x reflect.Value) {
		if d, ok := x.Interface().(time.Duration); ok && d < 0 {
			v.add(key, "is %v: a time is not negative", d)
		}
	})
}

// here reports what the configuration names and this machine lacks: files, and
// variables of the environment.
func (c *Config) here(v *faults, environ []string) {
	for _, f := range []struct {
		key, path string
		most      int
		mend      string
	}{
		{"cluster.secret_file", c.Cluster.SecretFile, maxSecrets, "all routers share it: make it once and copy it to each"},
		{"admin.token_file", c.Admin.TokenFile, 1, "make it"},
	} {
		if _, err := readSecrets(f.path, f.most); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				v.add(f.key, "%s does not exist: %s: (umask 077; openssl rand -hex 32 > %s)", f.path, f.mend, f.path)
				continue
			}
			v.add(f.key, "%v", err)
		}
	}
	if t := c.API.TLS; t.Cert != "" && t.Key != "" {
		if _, _, err := t.read(); err != nil {
			v.add("api.tls", "can't be used: %v", err)
		}
	}
	for i := range c.Pools {
		if s := &c.Pools[i].Scale; s.Actuator == "webhook" && s.Webhook.SecretFile != "" {
			s.Webhook.here(v, fmt.Sprintf("pools[%d].scale.webhook", i))
		}
		name := c.Pools[i].APIKeyEnv
		if name != "" && !slices.ContainsFunc(environ, func(s string) bool { return strings.HasPrefix(s, name+"=") }) {
			v.add(fmt.Sprintf("pools[%d].api_key_env", i), "%s is not set in the environment: it holds the engines' API key", name)
		}
	}
}

// validate judges one pool by itself.
func (p *PoolConfig) validate(v *faults, at string) {
	if p.Name == "" {
		v.add(at+".name", "is missing")
	}
	if p.Model == "" {
		v.add(at+".model", "is missing: the model's name as clients give it")
	}
	v.oneOf(at+".engine", p.Engine, engines)
	v.oneOf(at+".policy", p.Policy, Policies())
	p.validateIsolation(v, at)
	v.oneOf(at+".scale.actuator", p.Scale.Actuator, actuators)
	if p.Scale.Min < 0 || p.Scale.Max < p.Scale.Min {
		v.add(at+".scale", "min %d, max %d: needs 0 <= min <= max", p.Scale.Min, p.Scale.Max)
	}
	p.validateBudget(v, at)
	p.validateActuator(v, at+".scale")
	p.validateRanks(v, at)
	if p.Retry.Attempts < 1 {
		v.add(at+".retry.attempts", "is %d: the first try counts, so at least 1", p.Retry.Attempts)
	}
	if p.Heartbeat > 0 && p.Heartbeat < minHeartbeat {
		v.add(at+".heartbeat", "is %v: at least %v, or 0 for none", p.Heartbeat, minHeartbeat)
	}
	if p.Queue.MaxRequests < 1 {
		v.add(at+".queue.max_requests", "is %d: at least 1", p.Queue.MaxRequests)
	}
	if n := p.Queue.MaxInflight; n != nil && *n < 0 {
		v.add(at+".queue.max_inflight", "is %d: 1 or more, or 0 for any number", *n)
	}
	if d := p.Queue.Hold; d != nil && *d < 0 {
		v.add(at+".queue.hold", "is %v: a time is not negative", *d)
	}
	if n := p.Prewarm.Prefixes; n < 0 || n > maxPrewarm {
		v.add(at+".prewarm.prefixes", "is %d: 0 for none, up to %d", n, maxPrewarm)
	}
	if p.Breaker.Failures < 1 {
		v.add(at+".breaker.failures", "is %d: at least 1", p.Breaker.Failures)
	}
	first := map[string]int{}
	for j, r := range p.Replicas {
		key := fmt.Sprintf("%s.replicas[%d]", at, j)
		u, err := NormalURL(r.URL)
		if err != nil {
			v.add(key+".url", "%v", err)
		} else if other, twice := first[u]; twice {
			v.add(key+".url", "%s stands twice in this pool: it is replicas[%d] too", u, other)
		} else {
			first[u] = j
		}
		v.oneOf(key+".role", r.Role, roles)
	}
	p.validateRoles(v, at)
	p.Discover.validate(v, at+".discover")
}

// validateBudget judges the bound of all roles together: each may have its minimum.
func (p *PoolConfig) validateBudget(v *faults, at string) {
	roles := map[string]bool{}
	for _, r := range p.Replicas {
		roles[r.Role] = true
	}
	least := p.Scale.Min * max(1, len(roles))
	switch b := p.Scale.Budget; {
	case b < 0:
		v.add(at+".scale.budget", "is %d: 1 or more, or 0 for none", b)
	case b > 0 && b < least:
		v.add(at+".scale.budget", "is %d, and scale.min of its roles is %d together", b, least)
	case b > 0 && !p.mayHaveRoles(roles):
		v.add(at+".scale.budget", "is %d, and has no effect: it is for pools whose replicas prefill and decode apart; others have scale.max", b)
	}
}

// mayHaveRoles reports whether replicas of a pool may come to prefill and decode apart:
// listed ones do, or other ones may be found or added.
func (p *PoolConfig) mayHaveRoles(listed map[string]bool) bool {
	if len(listed) > 1 || len(listed) == 1 && !listed[string(state.RoleBoth)] || p.Discover.any() {
		return true
	}
	return len(listed) == 0 && (p.Scale.Actuator == "dry_run" || p.Scale.Actuator == "kubernetes")
}

// validateIsolation judges whether tenants can be kept apart: it takes an engine that
// knows a salt.
func (p *PoolConfig) validateIsolation(v *faults, at string) {
	v.oneOf(at+".isolation", p.Isolation, isolations)
	switch state.EngineKind(p.Engine) {
	case state.EngineLlamaCpp, state.EngineOpenAI, state.EngineAnthropic:
		if p.Isolation == "tenant" {
			v.add(at+".isolation", "is tenant, and engine %s can't keep tenants apart in its cache: use vllm, sglang or auto", p.Engine)
		}
	}
}

// validateRoles judges the legs that a pool's replicas serve: both have to be there,
// and engines that know how to hand over a prompt's KV.
func (p *PoolConfig) validateRoles(v *faults, at string) {
	v.oneOf(at+".kv_connector", p.KVConnector, connectors)
	n := map[string]int{}
	for j, r := range p.Replicas {
		n[r.Role]++
		key := fmt.Sprintf("%s.replicas[%d].bootstrap_port", at, j)
		switch {
		case r.BootstrapPort < 0 || r.BootstrapPort > 65535:
			v.add(key, "is %d: a port is 1 to 65535", r.BootstrapPort)
		case r.BootstrapPort > 0 && r.Role != string(state.RolePrefill):
			v.add(key, "is for replicas of role prefill alone: those that decode call there")
		}
	}
	prefill, decode := n[string(state.RolePrefill)], n[string(state.RoleDecode)]
	switch {
	case p.Discover.any(): // the other ones may be found
	case prefill > 0 && decode == 0:
		v.add(at+".replicas", "has %d of role prefill and none of role decode: nobody would answer for them", prefill)
	case decode > 0 && prefill == 0:
		v.add(at+".replicas", "has %d of role decode and none of role prefill: use role both, or add one that prefills", decode)
	case prefill == 0:
		return
	}
	switch state.EngineKind(p.Engine) {
	case state.EngineLlamaCpp, state.EngineOpenAI, state.EngineAnthropic:
		v.add(at+".engine", "is %s, which can't serve a request in two legs: with roles prefill and decode use vllm, sglang or auto", p.Engine)
	case state.EngineVLLM:
	default:
		if p.DPRanks > 1 {
			v.add(at+".dp_ranks", "is %d: with roles prefill and decode only engine vllm can have several", p.DPRanks)
		}
	}
	if p.KVConnector == state.ConnectorMooncake && p.Engine != string(state.EngineVLLM) {
		v.add(at+".kv_connector", "is mooncake, which is vLLM's: set engine to vllm")
	}
	if a := p.Scale.Actuator; !p.Discover.any() && (a == "process" || a == "webhook") {
		v.add(at+".scale.actuator", "is %s: pools with roles prefill and decode can only be scaled by dry_run and kubernetes", a)
	}
}

// Bounds of cluster.raft.heartbeat_timeout: below, a busy machine costs leaders; above,
// a dead one is missed for most of a minute.
const (
	minRaftHeartbeat = 200 * time.Millisecond
	maxRaftHeartbeat = 10 * time.Second
)

// maxPrewarm bounds the prefixes that replicas are warmed with: as many are told apart.
const maxPrewarm = 64

// minHeartbeat is the least time between two comments in a waiting stream.
const minHeartbeat = 100 * time.Millisecond

// maxRanks bounds dp_ranks.
const maxRanks = 1024

// validateRanks judges dp_ranks: only some engines have ranks that can be asked for,
// and sizes are counted in replicas, of which a process would be several.
func (p *PoolConfig) validateRanks(v *faults, at string) {
	switch {
	case p.DPRanks < 1 || p.DPRanks > maxRanks:
		v.add(at+".dp_ranks", "is %d: 1 to %d", p.DPRanks, maxRanks)
	case p.DPRanks == 1:
	case p.Engine == string(state.EngineLlamaCpp) || p.Engine == string(state.EngineOpenAI) || p.Engine == string(state.EngineAnthropic):
		v.add(at+".dp_ranks", "is %d: engine %s has no data-parallel ranks, use 1", p.DPRanks, p.Engine)
	case p.Scale.Actuator != "dry_run":
		v.add(at+".dp_ranks", "is %d: pools with several ranks behind a URL can't be scaled by the %s actuator, use dry_run", p.DPRanks, p.Scale.Actuator)
	}
}

// unique reports pools that share a name, models that name two pools, and replicas
// that stand in two: an address is one replica of one pool.
func (c *Config) unique(v *faults) {
	models := map[string]string{}    // model name or alias -> pool
	addresses := map[string]string{} // of a replica -> pool's key
	seen := map[string]bool{}
	for i := range c.Pools {
		p := &c.Pools[i]
		at := fmt.Sprintf("pools[%d]", i)
		if seen[p.Name] && p.Name != "" {
			v.add(at+".name", "%q stands twice: a pool's name is unique", p.Name)
		}
		seen[p.Name] = true
		for j, n := range append([]string{p.Model}, p.Aliases...) {
			if other, ok := models[n]; ok && n != "" {
				key := at + ".model"
				if j > 0 {
					key = fmt.Sprintf("%s.aliases[%d]", at, j-1)
				}
				v.add(key, "%q already names pool %q", n, other)
			}
			models[n] = p.Name
		}
		for j, r := range p.Replicas {
			u, err := NormalURL(r.URL)
			if err != nil {
				continue
			}
			_, address, _ := strings.Cut(u, "://")
			if other, ok := addresses[address]; ok && other != at {
				v.add(fmt.Sprintf("%s.replicas[%d].url", at, j), "%s is a replica of %s already: an address is one replica of one pool. "+
					"Where it serves several models, give it a host name for each", address, other)
				continue
			}
			addresses[address] = at
		}
	}
}

func (f *faults) oneOf(key, s string, names []string) {
	if !slices.Contains(names, s) {
		f.add(key, "%q is unknown: use %s", s, strings.Join(names, ", "))
	}
}
