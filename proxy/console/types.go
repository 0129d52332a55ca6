package console

import "time"

// Info is what a router says of itself.
type Info struct {
	ID      string        `json:"id"`
	Name    string        `json:"name"`
	Boot    string        `json:"boot"`
	Version string        `json:"version"`
	Uptime  time.Duration `json:"-"`
	API     string        `json:"api"`
	Admin   string        `json:"admin"`
	Cluster string        `json:"cluster"`
	Sharing bool          `json:"sharing"`
	Raft    Raft          `json:"raft"`
	Config  ConfigMark    `json:"config"` // of the pools

	Secrets  []string `json:"secrets,omitempty"` // fingerprints of the shared secrets, the one used first
	Warnings []string `json:"-"`                 // for Status
}

// Raft is how agreement stands, as this router knows it. Routers are named by id;
// the console adds their names.
type Raft struct {
	ClusterID  string   `json:"cluster_id"`
	Leader     string   `json:"leader"` // empty: none known
	LeaderName string   `json:"leader_name"`
	Role       string   `json:"role"` // leader | follower | candidate | learner | returning (a voter by its own log, started a moment ago and not called by the leader yet) | stopped
	Term       uint64   `json:"term"` // 0 on a learner, which takes no part in terms
	Epoch      uint64   `json:"epoch"`
	Facts      uint64   `json:"facts_index"`
	Voters     []string `json:"voters"` // empty on a learner
	VoterNames []string `json:"voter_names"`
	Forming    bool     `json:"forming,omitempty"` // it was started alone a moment ago, and is making itself the leader
	Removed    bool     `json:"removed,omitempty"` // of a learner: it was a voter, and its vote was given up while it was away
}

// ConfigMark names a configuration of the pools. Routers with the same digest run the
// same. Revision is that of the committed one, 0 for any other.
type ConfigMark struct {
	Digest   string `json:"digest"`
	Revision uint64 `json:"revision"`
}

// Reloaded is what came of reading the configuration again.
type Reloaded struct {
	Changed []string   `json:"changed"` // keys that were taken
	Restart []string   `json:"restart"` // keys that stay as they were until a restart
	Config  ConfigMark `json:"config"`
}

// Keys are the shared secrets of one router, by their fingerprints.
type Keys struct {
	ID    string   `json:"id"`
	Name  string   `json:"name"`
	Keys  []string `json:"keys"`            // the one that it uses first
	Added string   `json:"added,omitempty"` // of Keys, what was added just now
	Away  bool     `json:"away,omitempty"`  // it was not asked
	Error string   `json:"error,omitempty"` // why it did not do what was asked
}

// KeyringRequest changes the shared secrets of all routers.
type KeyringRequest struct {
	Op  string `json:"op"`  // add | use | remove
	Key string `json:"key"` // a fingerprint; with add, empty for a new secret
	// Force changes those of the live routers although others are away.
	Force bool `json:"force"`
}

// Member is one router of the cluster, this one included.
type Member struct {
	ID       string      `json:"id"`
	Name     string      `json:"name"`
	State    string      `json:"state"` // alive | suspect | dead | left
	Self     bool        `json:"self"`
	Leader   bool        `json:"leader"`
	Voter    bool        `json:"voter"`
	Raft     string      `json:"raft"` // leader | voter | learner; empty: this router, a learner, can't know, or it is of another cluster
	API      string      `json:"api"`
	Admin    string      `json:"admin"` // of a loopback address: on its own host; empty: of a release that does not tell
	Cluster  string      `json:"cluster"`
	Boot     string      `json:"boot"`
	Mesh     string      `json:"mesh"` // up | down | - for this router
	HeardMS  float64     `json:"heard_ms"`
	DelayMS  float64     `json:"delay_ms"`           // of gossip to it and back, halved; negative unknown
	InFlight *int64      `json:"in_flight"`          // null: nothing is heard of it
	Facts    *uint64     `json:"facts_index"`        // null: nothing is heard of it
	Config   *ConfigMark `json:"config"`             // of the pools; null: it has not said
	Degraded string      `json:"degraded,omitempty"` // a code: no_stream | udp_blocked | not_member | silent
	Trouble  string      `json:"trouble,omitempty"`  // the same in words
}

// Sketch is what this router believes a replica's cache holds.
type Sketch struct {
	Entries    int     `json:"entries"`
	LiveTokens float64 `json:"live_tokens"`
	CEff       float64 `json:"c_eff_tokens"`
	HorizonS   float64 `json:"horizon_age_s"`
	Rho        float64 `json:"rho"`   // reported over predicted cached tokens
	Trust      float64 `json:"trust"` // share of answer tokens that is found again
	Samples    uint64  `json:"samples"`
	Bytes      int64   `json:"bytes"`
	Evicted    uint64  `json:"evicted_live"` // marks given up for want of room while taken to be alive
}

// Speed is what routers have learned of a replica's speed.
type Speed struct {
	PrefillRate  float64 `json:"prefill_tokens_per_s"`
	FixedMS      float64 `json:"fixed_ms"`
	ITLMS        float64 `json:"itl_ms"` // of a lone stream
	ITLPerStream float64 `json:"itl_per_stream_ms"`
	Samples      int     `json:"samples"` // 0: as its pool, or as the defaults
}

// Status is the one-page answer of `hearsay status`.
type Status struct {
	Router  Info     `json:"router"`
	UptimeS float64  `json:"uptime_s"`
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons,omitempty"`
	Members int      `json:"members"`
	Alive   int      `json:"alive"`
	Warn    []string `json:"warnings,omitempty"`
	Pools   []Pool   `json:"pools"`
	Figures Figures  `json:"figures"`
	// Requests that this router refused in the last minute before their pool was known,
	// by reason.
	Refused map[string]int64 `json:"refused_last_minute,omitempty"`
}

// Figures says how well this router's picture fits the world, and what it costs to
// keep. Sums and rates are of the last WindowS seconds; negative ones are unknown.
type Figures struct {
	WindowS        float64            `json:"window_s"`
	Predicted      float64            `json:"predicted_cached_tokens"` // of requests whose engine reported cached tokens
	Reported       float64            `json:"reported_cached_tokens"`
	Ratio          float64            `json:"reported_over_predicted"`
	TTFTErrorP50MS float64            `json:"ttft_error_p50_ms"` // distance between predicted and observed
	TTFTErrorP99MS float64            `json:"ttft_error_p99_ms"`
	ReadingAgeMS   float64            `json:"oldest_reading_ms"` // of any replica, now; negative: there is none
	RowsAgeMS      float64            `json:"oldest_rows_ms"`    // of any other router's load, now
	DelayP50MS     float64            `json:"gossip_delay_p50_ms"`
	DelayP99MS     float64            `json:"gossip_delay_p99_ms"`
	BytesInPerSec  float64            `json:"bytes_in_per_s"` // from and to other routers
	BytesOutPerSec float64            `json:"bytes_out_per_s"`
	Dropped        map[string]float64 `json:"dropped"` // messages and frames given up, by reason
	SketchEntries  float64            `json:"sketch_entries"`
	SketchBytes    float64            `json:"sketch_bytes"`
	Opinions       int                `json:"opinions"`              // picks that another router was asked about
	Alike          float64            `json:"opinions_alike"`        // share of them that it would make alike
	RegretP95MS    float64            `json:"opinion_regret_p95_ms"` // how much worse, by its scores; negative: none asked
}

// Readiness is whether this router should get traffic, and what is missing.
type Readiness struct {
	Ready   bool              `json:"ready"`
	Reasons map[string]string `json:"reasons"`
	Pools   []Pool            `json:"pools,omitempty"` // with ?verbose
}

// Pool is one pool as this router sees it.
type Pool struct {
	Name       string           `json:"name"`
	Model      string           `json:"model"`
	Aliases    []string         `json:"aliases,omitempty"`
	Policy     string           `json:"policy"`
	FilePolicy string           `json:"file_policy"`      // the configuration's, where operators gave the pool another one
	Effective  string           `json:"effective_policy"` // what picks now: auto is ttft or ttft_load
	Replicas   int              `json:"replicas"`
	Ready      int              `json:"ready"`
	InFlight   int64            `json:"in_flight"`
	Queued     int64            `json:"queued_tokens"`
	Waiting    int64            `json:"waiting"`                       // requests that wait for a replica with room, or a first one, at all routers
	Here       map[string]int64 `json:"waiting_here,omitempty"`        // of those that wait, the ones at this router, by priority
	WaitMS     float64          `json:"expected_wait_ms"`              // of a request that comes now, by estimate; negative: no replica can take one
	Refused    map[string]int64 `json:"refused_last_minute,omitempty"` // by this router, by reason as in hearsay_shed_total
	Skew       float64          `json:"skew"`
	Sharing    float64          `json:"sharing_ratio"` // share of prompt tokens that some replica held; negative: unknown
	HotShare   float64          `json:"hot_prefix_share"`
	Target     int              `json:"target"`
	TargetSet  bool             `json:"target_set"` // a target is committed, which may be 0; else Target is 0
	Held       bool             `json:"held"`       // an operator holds the target
	Min        int              `json:"min"`
	Max        int              `json:"max"`
	Actuator   string           `json:"actuator"`
	// Of a pool whose replicas serve legs: those that can take one now, and what is
	// missing for a whole answer: prefill, decode or both; empty if nothing is.
	Prefill *int   `json:"prefill,omitempty"`
	Decode  *int   `json:"decode,omitempty"`
	Missing string `json:"missing,omitempty"`
	// Of such a pool the targets; Target and Held are that of whole requests alone.
	Targets []RoleTarget `json:"targets,omitempty"`
}

// RoleTarget is the target of a pool's replicas of one role.
type RoleTarget struct {
	Role      string `json:"role"`
	Target    int    `json:"target"`
	TargetSet bool   `json:"target_set"` // it is committed; else Target is 0
	Held      bool   `json:"held"`       // an operator holds it
}

// Queue is what waits for a pool at this router, and what it refused, as Pool has them.
type Queue struct {
	Here    map[string]int64
	WaitMS  float64
	Refused map[string]int64
}

// Replica is one replica as this router sees it. Negative figures are unknown.
type Replica struct {
	ID         string   `json:"id"`
	Name       string   `json:"name,omitempty"` // of the Pod, or in the file, that it was discovered by
	Pool       string   `json:"pool"`
	URL        string   `json:"url"`
	Role       string   `json:"role"`
	Engine     string   `json:"engine"`
	Source     string   `json:"source"`
	State      string   `json:"state"`             // docs/metrics.md lists them
	Reason     string   `json:"reason,omitempty"`  // of an ejection a code: failures | failure_rate | others_failures | trial_failed | ejection_limit
	Trouble    string   `json:"trouble,omitempty"` // in words, why it is not ready
	InFlight   int64    `json:"in_flight"`
	Own        int64    `json:"own_in_flight"`
	Foreign    int64    `json:"foreign"`
	Queued     int64    `json:"queued_tokens"`
	Running    float64  `json:"running"`
	Waiting    float64  `json:"waiting"`
	KVUsage    float64  `json:"kv_usage"`
	Capacity   float64  `json:"capacity_tokens"`
	ReadingMS  float64  `json:"reading_age_ms"`
	Reader     string   `json:"reader"` // the router that took the reading
	ReaderName string   `json:"reader_name"`
	Sketch     Sketch   `json:"sketch"`
	Speed      Speed    `json:"speed"`
	Adapters   []string `json:"adapters,omitempty"`        // LoRA adapters that its engine lists
	Loaded     []string `json:"loaded_adapters,omitempty"` // those likely in its slots, the one seen last first
}

// Decision is one entry of `hearsay scale log`: a decision, or plans that were refused.
type Decision struct {
	ID       string             `json:"id"`
	At       time.Time          `json:"at"`
	Pool     string             `json:"pool"`
	Role     string             `json:"role"`
	From     int                `json:"from"`
	To       int                `json:"to"`
	Reason   string             `json:"reason"`
	By       string             `json:"by"` // a router's id, or operator
	ByName   string             `json:"by_name"`
	Outcome  string             `json:"outcome"`           // done | failed | superseded | refused; empty: under way
	DryRun   bool               `json:"dry_run,omitempty"` // done is: recorded, nothing was started or stopped
	Detail   string             `json:"detail,omitempty"`
	Victims  []string           `json:"victims,omitempty"`
	Evidence map[string]float64 `json:"evidence,omitempty"`
	Index    uint64             `json:"index"`
	Epoch    uint64             `json:"epoch"`
	DoneAt   *time.Time         `json:"done_at,omitempty"` // when the outcome was committed, by that leader's clock
	// Of a plan that was refused, which has no id: why as a code, how often in a row, since
	// when (At is the last time), and the decision before it. Detail is in words.
	Refused string     `json:"refused,omitempty"`
	Count   int        `json:"count,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	After   string     `json:"after,omitempty"`
}

// Model is one name clients may use.
type Model struct {
	Name   string `json:"name"`
	Pool   string `json:"pool"`
	Alias  bool   `json:"alias"`
	Parent string `json:"parent,omitempty"` // of an adapter: its pool's model
}

// Done answers a write that was committed: routers whose facts are at Index or later
// have it. Index is 0 when no facts were changed, but voters. What this router is asked
// afterwards shows the write, unless Behind says that it has not heard of the
// commit itself yet. A Message says what is to be known besides, or that nothing
// changed. Local says that no more was done than on this router; where that was not
// asked for, the Message says why.
type Done struct {
	Index   uint64 `json:"index"`
	Behind  bool   `json:"behind,omitempty"`
	Local   bool   `json:"local,omitempty"`
	Message string `json:"message,omitempty"`
}

// TargetRequest sets a pool's size.
type TargetRequest struct {
	To      *int   `json:"to"`      // wanted replicas; held until released
	Release bool   `json:"release"` // give the target back to the autoscaler
	Role    string `json:"role"`    // both, prefill or decode; must be given where replicas serve legs, else default both
}

// ReplicaRequest adds a replica.
type ReplicaRequest struct {
	Pool string `json:"pool"`
	URL  string `json:"url"`
}

// ReasonRequest says why, for the record.
type ReasonRequest struct {
	Reason string `json:"reason"`
	Local  bool   `json:"local"` // on this router alone, without a commit
}

// ExplainRequest asks where a request would go, or where a past one went.
type ExplainRequest struct {
	RequestID string `json:"request_id,omitempty"`
	Path      string `json:"path,omitempty"`   // default /v1/chat/completions
	Tenant    string `json:"tenant,omitempty"` // whose request it would be; default nobody's
	Body      any    `json:"body,omitempty"`   // the request as a client would send it
}

// LevelRequest sets the log level.
type LevelRequest struct {
	Level string `json:"level"`
}
