package node

import (
	"cmp"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Config says how one node runs. The zero value is not valid: start from
// Defaults. Keys are the yaml names; every key outside pools is also an
// environment variable HEARSAY_SECTION_KEY.
type Config struct {
	Node    NodeConfig    `yaml:"node"`
	Listen  ListenConfig  `yaml:"listen"`
	Cluster ClusterConfig `yaml:"cluster"`
	API     APIConfig     `yaml:"api"`
	Admin   AdminConfig   `yaml:"admin"`
	Log     LogConfig     `yaml:"log"`
	Gateway GatewayConfig `yaml:"gateway"`
	Pools   []PoolConfig  `yaml:"pools"`

	Diagnose DiagnoseConfig `yaml:"diagnose"`
}

// NodeConfig names this node and its place on disk.
type NodeConfig struct {
	Name    string `yaml:"name"`     // default: the host name
	DataDir string `yaml:"data_dir"` // node id, sketch, Raft log; default ./hearsay-data
}

// ListenConfig holds the addresses this node listens on.
type ListenConfig struct {
	API       string `yaml:"api"`       // clients
	Admin     string `yaml:"admin"`     // operators: admin API and metrics
	Cluster   string `yaml:"cluster"`   // memberlist; the mesh and Raft use the next port
	Advertise string `yaml:"advertise"` // host that other nodes reach this one by; default: the cluster address's host
}

// ClusterConfig says which cluster this node belongs to.
type ClusterConfig struct {
	Name            string           `yaml:"name"`             // nodes of other names are refused
	Join            []string         `yaml:"join"`             // host:port of other nodes' cluster address
	JoinFile        string           `yaml:"join_file"`        // further ones, one a line, read again and again
	BootstrapExpect int              `yaml:"bootstrap_expect"` // nodes that must see each other before the first start of a cluster
	Voters          int              `yaml:"voters"`           // Raft voters: 1, 3 or 5
	Raft            RaftConfig       `yaml:"raft"`             // how long voters wait for each other
	SecretFile      string           `yaml:"secret_file"`      // shared secret that encrypts and authenticates all cluster traffic
	TLS             ClusterTLSConfig `yaml:"tls"`              // certificates of routers, for the streams between them
	Insecure        bool             `yaml:"insecure"`         // allow a cluster address beyond loopback without a secret
	Sharing         bool             `yaml:"sharing"`          // tell other routers about load and prefixes; false only for comparisons
}

// RaftConfig says how long voters wait for each other.
type RaftConfig struct {
	HeartbeatTimeout time.Duration `yaml:"heartbeat_timeout"` // silence after which a leader is taken for dead
}

// APIConfig bounds the client API.
type APIConfig struct {
	MaxBody          Bytes         `yaml:"max_body"`
	MaxHeader        Bytes         `yaml:"max_header"`
	BodyBudget       Bytes         `yaml:"body_budget"` // of all requests held at a time
	MaxConnections   int           `yaml:"max_connections"`
	ConnectionMaxAge time.Duration `yaml:"connection_max_age"` // so that new routers behind L4 get traffic
	WriteStall       time.Duration `yaml:"write_stall"`        // for a client to take 64 KiB of an answer
	DrainDelay       time.Duration `yaml:"drain_delay"`        // from readiness off to no longer accepting: what a balancer needs to notice
	Debug            bool          `yaml:"debug"`              // answer x-hearsay-debug: 1 with pick headers
	TLS              TLSConfig     `yaml:"tls"`
}

// TLSConfig names a certificate, with its chain, and its key; both in PEM, or
// neither for plain TCP.
type TLSConfig struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// AdminConfig protects the admin API.
type AdminConfig struct {
	TokenFile string `yaml:"token_file"` // required when admin listens beyond loopback
}

// DiagnoseConfig says what diagnose may look at.
type DiagnoseConfig struct {
	Sample bool `yaml:"sample"` // keep a few recent request bodies of each pool in memory
}

// LogConfig is the logger's.
type LogConfig struct {
	Level  string `yaml:"level"`  // debug | info | warn | error
	Format string `yaml:"format"` // json | console
}

// PoolConfig is one pool as the file has it. See state.PoolSpec.
type PoolConfig struct {
	Name          string          `yaml:"name"`
	Model         string          `yaml:"model"`
	Aliases       []string        `yaml:"aliases"`
	UpstreamModel string          `yaml:"upstream_model"`
	Fallback      []string        `yaml:"fallback"` // names of the pools that are asked where this one can't serve
	Engine        string          `yaml:"engine"`
	Policy        string          `yaml:"policy"`
	Replicas      []ReplicaConfig `yaml:"replicas"`
	Discover      DiscoverConfig  `yaml:"discover"` // further replicas that are found
	APIKeyEnv     string          `yaml:"api_key_env"`
	Isolation     string          `yaml:"isolation"`    // none | tenant: tenants share nothing that is cached
	DPRanks       int             `yaml:"dp_ranks"`     // data-parallel ranks behind each URL
	KVConnector   string          `yaml:"kv_connector"` // nixl | mooncake: how vLLM engines with roles hand over KV
	SLO           SLOConfig       `yaml:"slo"`
	Breaker       BreakerConfig   `yaml:"breaker"`
	Drain         DrainConfig     `yaml:"drain"`
	Prewarm       PrewarmConfig   `yaml:"prewarm"`
	Timeouts      TimeoutConfig   `yaml:"timeouts"`
	Heartbeat     time.Duration   `yaml:"heartbeat"` // silence after which a stream's client gets a comment; 0: never
	Retry         RetryConfig     `yaml:"retry"`
	Queue         QueueConfig     `yaml:"queue"`
	Scale         ScaleConfig     `yaml:"scale"`
}

// ReplicaConfig is one static replica.
type ReplicaConfig struct {
	URL  string `yaml:"url"`
	Role string `yaml:"role"` // both | prefill | decode
	// BootstrapPort is where a prefill replica listens for those that decode.
	BootstrapPort int `yaml:"bootstrap_port"`
}

// SLOConfig holds what good latency means in a pool.
type SLOConfig struct {
	TTFT time.Duration `yaml:"ttft"`
	ITL  time.Duration `yaml:"itl"`
}

// BreakerConfig says when a failing replica is ejected.
type BreakerConfig struct {
	Failures   int           `yaml:"failures"`
	Open       time.Duration `yaml:"open"`
	MaxEjected Percent       `yaml:"max_ejected"`
}

// DrainConfig bounds how long a draining replica's streams may run on.
type DrainConfig struct {
	Deadline time.Duration `yaml:"deadline"`
}

// PrewarmConfig says what replicas with an empty cache are warmed with.
type PrewarmConfig struct {
	Prefixes int  `yaml:"prefixes"` // hottest prefixes whose prompts are kept in memory for it; 0: none
	Paid     bool `yaml:"paid"`     // so are replicas of engine openai, whose tokens may cost
}

// TimeoutConfig bounds one request's phases.
type TimeoutConfig struct {
	Connect   time.Duration `yaml:"connect"`
	FirstByte time.Duration `yaml:"first_byte"`
	Idle      time.Duration `yaml:"idle"`
	Total     time.Duration `yaml:"total"`
}

// RetryConfig bounds the tries of one request.
type RetryConfig struct {
	Attempts int `yaml:"attempts"`
}

// QueueConfig bounds what waits for a replica that has room, and for a first one.
type QueueConfig struct {
	MaxWait     time.Duration  `yaml:"max_wait"`
	MaxRequests int            `yaml:"max_requests"` // that wait at a router
	MaxBytes    Bytes          `yaml:"max_bytes"`    // of their bodies
	Hold        *time.Duration `yaml:"hold"`         // for a first replica; 0: not at all
	MaxInflight *int           `yaml:"max_inflight"` // requests of all routers at one replica; 0: any number
}

// ScaleConfig bounds the size of a pool and names who changes it.
type ScaleConfig struct {
	Min        int           `yaml:"min"`
	Max        int           `yaml:"max"`
	Actuator   string        `yaml:"actuator"` // dry_run | process | kubernetes | webhook
	Cooldown   time.Duration `yaml:"cooldown"`
	DownWindow time.Duration `yaml:"down_window"`
	Budget     int           `yaml:"budget"`  // most replicas of all roles together; 0: each role has max for itself
	Daily      bool          `yaml:"daily"`   // forecast the day from the days before
	Command    []string      `yaml:"command"` // process: argv; {port} is the port to listen on
	Dir        string        `yaml:"dir"`     // process: state and logs; default data_dir/process
	Webhook    WebhookConfig `yaml:"webhook"` // webhook

	Kubernetes ScaleKubernetesConfig `yaml:"kubernetes"` // kubernetes: what is sized
}

// Defaults returns the configuration of a node that was told nothing.
func Defaults() Config {
	return Config{
		Node:   NodeConfig{DataDir: "./hearsay-data"},
		Listen: ListenConfig{API: ":8080", Admin: "127.0.0.1:8081", Cluster: "127.0.0.1:7946"},
		Cluster: ClusterConfig{
			Name: "default", BootstrapExpect: 1, Voters: 3, Sharing: true, Raft: RaftConfig{HeartbeatTimeout: 500 * time.Millisecond},
		},
		API: APIConfig{
			MaxBody: 64 << 20, MaxHeader: 16 << 10, BodyBudget: 1 << 30, MaxConnections: 20000, ConnectionMaxAge: 10 * time.Minute, WriteStall: 30 * time.Second, DrainDelay: 2 * time.Second,
		},
		Log: LogConfig{Level: "info", Format: "json"}, Diagnose: DiagnoseConfig{Sample: true},
	}
}

// setDefaults fills what a pool left out.
func (p *PoolConfig) setDefaults() {
	def := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	num := func(v *int, n int) {
		if *v == 0 {
			*v = n
		}
	}
	str := func(v *string, s string) {
		if *v == "" {
			*v = s
		}
	}
	p.Discover.setDefaults()
	str(&p.Engine, string(state.EngineAuto))
	str(&p.Policy, "ttft")
	str(&p.Isolation, isolations[0])
	num(&p.DPRanks, 1)
	str(&p.KVConnector, state.ConnectorNixl)
	def(&p.SLO.TTFT, 2*time.Second)
	def(&p.SLO.ITL, 100*time.Millisecond)
	num(&p.Breaker.Failures, 5)
	def(&p.Breaker.Open, 10*time.Second)
	if p.Breaker.MaxEjected == 0 {
		p.Breaker.MaxEjected = 0.5
	}
	def(&p.Drain.Deadline, 5*time.Minute)
	def(&p.Timeouts.Connect, 2*time.Second)
	def(&p.Timeouts.FirstByte, 10*time.Minute)
	def(&p.Timeouts.Idle, 30*time.Second)
	def(&p.Timeouts.Total, time.Hour)
	num(&p.Retry.Attempts, 2)
	if p.Scale.Max == 0 {
		p.Scale.Min, p.Scale.Max = cmp.Or(p.Scale.Min, 1), 8
	}
	str(&p.Scale.Actuator, "dry_run")
	p.Scale.Kubernetes.setDefaults(&p.Discover.Kubernetes)
	def(&p.Queue.MaxWait, state.DefaultQueueWait)
	num(&p.Queue.MaxRequests, state.DefaultQueueRequests)
	if p.Queue.MaxBytes == 0 {
		p.Queue.MaxBytes = state.DefaultQueueBytes
	}
	if p.Queue.Hold == nil {
		hold := time.Duration(0) // where nobody starts a replica, none is worth waiting for
		if p.Scale.Actuator != "dry_run" || p.Scale.Min == 0 {
			hold = state.DefaultQueueHold
		}
		p.Queue.Hold = &hold
	}
	def(&p.Scale.Cooldown, time.Minute)
	def(&p.Scale.DownWindow, 5*time.Minute)
	def(&p.Scale.Webhook.Timeout, defaultWebhookTimeout)
	for i := range p.Replicas {
		r := &p.Replicas[i]
		if str(&r.Role, string(state.RoleBoth)); r.Role == string(state.RolePrefill) {
			num(&r.BootstrapPort, state.DefaultBootstrapPort)
		}
	}
}

// Spec is the pool as the rest of the node knows it.
func (p *PoolConfig) Spec() state.PoolSpec {
	return state.PoolSpec{
		Name: p.Name, Model: p.Model, Aliases: p.Aliases, UpstreamModel: p.UpstreamModel, Fallback: p.Fallback,
		Engine: state.EngineKind(p.Engine), Policy: p.Policy, Isolation: p.Isolation, APIKeyEnv: p.APIKeyEnv, DPRanks: p.DPRanks, KVConnector: p.KVConnector,
		SLOTTFT: p.SLO.TTFT, SLOITL: p.SLO.ITL,
		ConnectTimeout: p.Timeouts.Connect, FirstByteTimeout: p.Timeouts.FirstByte,
		IdleTimeout: p.Timeouts.Idle, TotalTimeout: p.Timeouts.Total, Heartbeat: p.Heartbeat, RetryAttempts: p.Retry.Attempts,
		BreakerFailures: p.Breaker.Failures, BreakerOpen: p.Breaker.Open, BreakerMaxEjected: float64(p.Breaker.MaxEjected),
		DrainDeadline: p.Drain.Deadline, Prewarm: p.Prewarm.Prefixes, PrewarmPaid: p.Prewarm.Paid,
		ScaleMin: p.Scale.Min, ScaleMax: p.Scale.Max, ScaleActuator: p.Scale.Actuator,
		ScaleCooldown: p.Scale.Cooldown, ScaleDownWindow: p.Scale.DownWindow,
		ScaleBudget: p.Scale.Budget, ScaleDaily: p.Scale.Daily,
		QueueWait: p.Queue.MaxWait, QueueRequests: p.Queue.MaxRequests, QueueBytes: int64(p.Queue.MaxBytes), QueueHold: *p.Queue.Hold,
		MaxInFlight: p.Queue.maxInFlight(),
	}
}

// maxInFlight is MaxInflight as PoolSpec has it.
func (q *QueueConfig) maxInFlight() int {
	switch {
	case q.MaxInflight == nil:
		return 0
	case *q.MaxInflight == 0:
		return -1
	}
	return *q.MaxInflight
}
