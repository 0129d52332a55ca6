package whatif

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/test/enginesim"
)

// Config is the cluster that a workload is run on. Start from DefaultConfig.
type Config struct {
	Routers, Replicas int
	KVTokens          int           // of each engine's cache, a multiple of 16
	BatchTokens       int           // token budget of an engine's step
	Profile           string        // timing of the engines, see enginesim.ProfileNames
	Speed             float64       // of the engines: 2 is twice as fast
	Delay             time.Duration // until another router knows what one did
	ReadEvery         time.Duration // of the engines' metrics
	Seed              uint64        // draws the routers of requests and the ties of picks
	SLO               SLO

	Policy  string         // of the pool
	Routing routing.Config // its parameters; Rand is set here
}

// SLO is what a good request meets.
type SLO struct{ TTFT, TPOT time.Duration }

// DefaultConfig is a small cluster on one site.
func DefaultConfig() Config {
	return Config{
		Routers: 3, Replicas: 8, KVTokens: 400_000, BatchTokens: 2048, Profile: "h100-70b-tp4", Speed: 1,
		Delay: 10 * time.Millisecond, ReadEvery: 250 * time.Millisecond, Seed: 1,
		SLO: SLO{TTFT: 2 * time.Second, TPOT: 100 * time.Millisecond}, Policy: routing.TTFT,
	}
}

const (
	maxRouters  = 256
	maxReplicas = 4096
	blockTokens = 16 // of an engine's KV block
)

// Validate joins all that makes no sense.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Routers >= 1 && c.Routers <= maxRouters, "routers: %d is not 1 to %d", c.Routers, maxRouters)
	check(c.Replicas >= 1 && c.Replicas <= maxReplicas, "replicas: %d is not 1 to %d", c.Replicas, maxReplicas)
	check(c.KVTokens >= blockTokens && c.KVTokens <= 1<<26 && c.KVTokens%blockTokens == 0, "kv_tokens: %d is not a multiple of %d from %d to %d", c.KVTokens, blockTokens, blockTokens, 1<<26)
	check(c.BatchTokens >= blockTokens && c.BatchTokens <= 1<<20, "batch_tokens: %d is not %d to %d", c.BatchTokens, blockTokens, 1<<20)
	check(c.Speed >= 1e-3 && c.Speed <= 1e6, "speed: %v is not 0.001 to 1000000", c.Speed)
	check(c.Delay >= 0 && c.Delay <= time.Minute, "delay: %v is not 0 to 1m", c.Delay)
	check(c.ReadEvery >= 10*time.Millisecond, "read_every: %v is below 10ms", c.ReadEvery)
	check(slices.Contains(routing.Policies(), c.Policy), "policy: unknown %q: use one of %v", c.Policy, routing.Policies())
	check(slices.Contains(enginesim.ProfileNames(), c.Profile), "profile: unknown %q: use one of %v", c.Profile, enginesim.ProfileNames())
	if err := c.Routing.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
