package state

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Role says which part of a request a replica serves.
type Role string

// Roles of a replica.
const (
	RoleBoth    Role = "both"
	RolePrefill Role = "prefill"
	RoleDecode  Role = "decode"
)

// Names of vLLM's ways to hand KV from engine to engine.
const (
	ConnectorNixl     = "nixl"
	ConnectorMooncake = "mooncake"
)

// DryRun is the actuator that starts and stops nothing.
const DryRun = "dry_run"

// DefaultBootstrapPort is where SGLang's and Mooncake's prefill engines listen for
// those that decode, unless they are told otherwise.
const DefaultBootstrapPort = 8998

// EngineKind is the kind of server a replica is.
type EngineKind string

// Engine kinds. EngineAuto is only a configuration value: it asks for detection.
const (
	EngineAuto      EngineKind = "auto"
	EngineVLLM      EngineKind = "vllm"
	EngineSGLang    EngineKind = "sglang"
	EngineLlamaCpp  EngineKind = "llamacpp"
	EngineOpenAI    EngineKind = "openai"
	EngineAnthropic EngineKind = "anthropic"
)

// PoolSpec is what operators say of one pool: the replicas that serve one model.
// The zero value of every duration and count means its default (see the
// configuration reference); a Store holds specs with defaults filled in.
type PoolSpec struct {
	Name          string
	Model         string   // as clients name it
	Aliases       []string // further names clients may use
	UpstreamModel string   // as the engine names it; empty = Model
	Fallback      []string // names of the pools that are asked in its place, in order
	Engine        EngineKind
	Policy        string // routing policy name
	Isolation     string // none | tenant
	APIKeyEnv     string // environment variable with the credential sent to engines
	SharedKV      bool
	// DPRanks is how many data-parallel ranks are behind each URL of the pool. From 2
	// on a Store makes that many replicas of one that is listed: each has a cache of
	// its own and is asked for by its rank.
	DPRanks int
	// KVConnector is how vLLM engines of a pool with roles hand over a prompt's KV:
	// ConnectorNixl (the default) or ConnectorMooncake. SGLang has one way.
	KVConnector string

	SLOTTFT time.Duration
	SLOITL  time.Duration

	ConnectTimeout   time.Duration
	FirstByteTimeout time.Duration
	IdleTimeout      time.Duration
	TotalTimeout     time.Duration
	Heartbeat        time.Duration // silence after which a stream's client gets a comment; 0: none
	RetryAttempts    int           // tries in all, the first included

	BreakerFailures   int
	BreakerOpen       time.Duration
	BreakerMaxEjected float64 // share of the pool, 0..1
	DrainDeadline     time.Duration

	// QueueWait bounds the wait for a replica that is not saturated, and is the queue,
	// in estimated time, past which one is; 0: no replica is saturated by its queue, and
	// a request waits for DefaultQueueWait. QueueRequests and QueueBytes (of bodies)
	// bound what waits at a router.
	QueueWait     time.Duration
	QueueRequests int
	QueueBytes    int64
	QueueHold     time.Duration // for a first replica; 0: a pool without one refuses at once
	// MaxInFlight is how many requests all routers send to one replica at a time. 0: a
	// replica of llama.cpp gets as many as it has slots, others any number; negative:
	// any number everywhere.
	MaxInFlight int

	Prewarm     int  // hottest prefixes that a replica with an empty cache is warmed with; 0: it is not
	PrewarmPaid bool // so are replicas of commercial APIs, and of servers that may be one

	ScaleMin, ScaleMax int
	ScaleActuator      string // dry_run | process
	ScaleCooldown      time.Duration
	ScaleDownWindow    time.Duration
	ScaleBudget        int  // most replicas of all roles together; 0: each role has ScaleMax for itself
	ScaleDaily         bool // what a day is like is forecast from the days before
}

// Defaults of a pool's queue.
const (
	DefaultQueueWait     = 5 * time.Second
	DefaultQueueRequests = 1000
	DefaultQueueBytes    = 256 << 20
	DefaultQueueHold     = 5 * time.Minute
)

// MaxAt is how many requests all routers together may have at one replica of the
// pool; 0: any number.
func (p *PoolSpec) MaxAt(r *ReplicaView) int64 {
	switch {
	case p.MaxInFlight != 0:
		return int64(max(0, p.MaxInFlight))
	case r.Reading.Slots > 0 && (r.Reading.Kind == EngineLlamaCpp || r.Engine == EngineLlamaCpp):
		return int64(r.Reading.Slots) // more would only wait inside it
	}
	return 0
}

// Kind is what a replica of the pool is, as far as it is known.
func (p *PoolSpec) Kind(r *ReplicaView) EngineKind {
	for _, kind := range []EngineKind{r.Engine, p.Engine, r.Reading.Kind} {
		if kind != EngineAuto && kind != "" {
			return kind
		}
	}
	return EngineAuto
}

// Prewarms reports whether a replica may be sent prompts for its cache's sake alone.
func (p *PoolSpec) Prewarms(r *ReplicaView) bool {
	if p.Prewarm <= 0 || r.Role != "" && r.Role != RoleBoth {
		return false
	}
	switch p.Kind(r) {
	case EngineOpenAI, EngineAnthropic:
		return p.PrewarmPaid
	}
	return true
}

// RanksOf is how many data-parallel ranks the process has that a replica is, or is a
// rank of.
func (p *PoolSpec) RanksOf(r *Replica) int {
	n := p.DPRanks
	if r.Ranks > 0 {
		n = r.Ranks
	}
	return max(1, min(n, maxRanks))
}

// UpstreamName is the model name to send to engines.
func (p *PoolSpec) UpstreamName() string {
	if p.UpstreamModel != "" {
		return p.UpstreamModel
	}
	return p.Model
}

// WrongModel says, for people, that a reading's engine does not serve the pool's
// model under the name that it will be asked for; empty if it does, or may.
func (p *PoolSpec) WrongModel(r *Reading) string {
	name := p.UpstreamName()
	switch {
	case slices.Contains(r.Models, name), len(r.Models) == 0 && r.WrongModel != name:
		return ""
	case len(r.Models) == 0:
		return fmt.Sprintf("does not serve %q", name)
	}
	some, more := r.Models, ""
	if len(some) > maxToldModels {
		some, more = some[:maxToldModels], ", ..."
	}
	return fmt.Sprintf("does not serve %q, it serves %s%s", name, strings.Join(some, ", "), more)
}

// maxToldModels bounds the models that are named to people.
const maxToldModels = 8

// Source says who told us that a replica exists.
type Source string

// Sources of replicas. A committed replica was added by an operator or started by
// an actuator, and is known to every router through the committed facts.
const (
	SourceStatic    Source = "static"
	SourceDiscovery Source = "discovery"
	SourceCommitted Source = "committed"
)

// Replica is one engine process (or one data-parallel rank of it) that serves a
// pool's model. It is a value: changing a replica means publishing a new one.
type Replica struct {
	ID     ReplicaID
	Pool   string
	URL    string // scheme://host:port, normalised, without a path
	Role   Role
	Engine EngineKind // as configured; readings carry the detected kind
	Rank   int        // data-parallel rank, 0 when there is only one
	Source Source
	// BootstrapPort is where a prefill replica listens for those that decode; 0 means
	// DefaultBootstrapPort.
	BootstrapPort int
	// Name is what people call it, where its id does not say it: a Pod's name.
	Name string
	// Leaving says why discovery has it draining: it is about to stop, or is listed no
	// more. Empty: it is not.
	Leaving string
	// Ranks is how many data-parallel ranks its process has; 0: as its pool says.
	Ranks int
}

// ListedNoMore is Leaving of a replica that discovery lists no more and keeps for a
// while. Any other list that has it wins over that one.
const ListedNoMore = "discovery lists it no more"

// Process is the id of the process that a replica is, or is a rank of: what
// discovery, the facts and operators name.
func (r *Replica) Process() ReplicaID {
	if id, ok := strings.CutSuffix(string(r.ID), "#"+strconv.Itoa(r.Rank)); ok {
		return ReplicaID(id)
	}
	return r.ID
}

// maxRanks bounds the data-parallel ranks behind one URL.
const maxRanks = 1024

// expandRanks replaces processes by their ranks where their pool has several.
func expandRanks(pools []PoolSpec, list map[ReplicaID]Replica) map[ReplicaID]Replica {
	specs := map[string]*PoolSpec{}
	for i := range pools {
		specs[pools[i].Name] = &pools[i]
	}
	out := make(map[ReplicaID]Replica, len(list))
	for id, r := range list {
		spec := specs[r.Pool]
		if spec == nil {
			spec = &PoolSpec{}
		}
		n := spec.RanksOf(&r)
		if n == 1 {
			out[id] = r
			continue
		}
		for i := range n {
			r.ID, r.Rank = id.OfRank(i), i
			out[r.ID] = r
		}
	}
	return out
}
