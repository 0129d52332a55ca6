package autoscale

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

// Cluster is what the loop sees.
type Cluster interface {
	View() *state.View
	// Live lists the routers that membership takes for live, this one included.
	Live() []state.RouterID
}

// Committer commits edits of the facts. When Commit has returned without an error,
// View().Facts holds the edit. A *state.Refusal is final; other errors may mean
// that the edit happens yet.
type Committer interface {
	Commit(ctx context.Context, c state.Command) error
}

// Actuator has replicas of its own, and makes them what is desired. Its methods
// return soon: what takes long is found finished by a later call.
type Actuator interface {
	List(ctx context.Context, k state.TargetKey) (state.Actual, error)
	// Ensure takes a step towards d and says what there is now. It returns an error
	// that wraps state.ErrFenced if a later term or decision was seen.
	Ensure(ctx context.Context, d state.Desired) (state.Actual, error)
}

// Config is what a Loop needs.
type Config struct {
	Self      state.RouterID
	Cluster   Cluster
	Committer Committer
	Actuators map[string]Actuator // by the name that PoolSpec.ScaleActuator gives

	// Default is the capacity of a replica of which nothing is learned. Default 32
	// requests (a usual decode batch at interactive speed) and 16384 prefill tokens
	// (about 2 s of prefill of an 8B model on one accelerator). The other figures count
	// only once they are known.
	Default Capacity
	// Learned is what calibration knows of a replica, zero in what it does not; nil:
	// nothing. KV tokens are taken from readings.
	Learned func(state.ReplicaID) (Capacity, bool)
	// Queued counts requests of a pool held for want of a replica; nil: none.
	Queued func(pool string) int
	// Unique is how many warm prefix tokens a replica holds that no other one of its
	// pool does, those in gone not counted: the victim is the one that loses least.
	// Nil: equal.
	Unique func(id state.ReplicaID, gone []state.ReplicaID) int

	// Unsettled reports that routers differ in how a pool is configured; nil: never.
	Unsettled func(pool string) bool

	Utilisation float64       // aimed-at share of capacity in a small pool. Default 0.75
	Busiest     float64       // in the largest one, if that is more. Default 0.9
	Headroom    float64       // room beside the load, in roots of the requests that it is. Default 4; see Limits.aim
	Fade        time.Duration // in which the room for growth falls by half, unless growth is seen again. Default 2 h; see growth
	Rush        float64       // replicas asked for beyond each that is short while the objective for the first token is out of reach. Default 2; see hasten
	Rated       int           // points, one every Interval, that a replica's rates are the median of. Default 240
	Regrow      float64       // share by which what comes must have grown to add replicas while others are coming. Default 0.1
	DownMargin  float64       // share below it that a step down needs. Default 0.15: noise of 7 % undoes none
	DownShare   float64       // most of the replicas that go by one decision, but one always may. Default 0.2
	Attainment  float64       // share of requests that are to meet the pool's objectives. Default 0.9
	StartUp     time.Duration // of replicas, while none was seen to start. Default 1 m
	StepUp      int           // most replicas added by one decision, or twice as many as there are if that is more. Default 2
	Interval    time.Duration // between plans. Default 15 s
	Reconcile   time.Duration // between rounds of reconciling. Default 1 s
	MinCoverage float64       // least share of live routers with recent rows. Default 0.75
	MinReadings float64       // least share of replicas with a recent reading. Default 0.5
	RowsAge     time.Duration // rows older than this count as missing. Default 5 s
	ReadingAge  time.Duration // so do readings. Default 10 s
	SkewLimit   float64       // above it a pool is uneven: loop 2's. Default 3
	// PendingDeadline is how long a new replica may take to become ready before its
	// decision has failed and is not waited for. Default 10 m.
	PendingDeadline time.Duration
	// Quiet is how long a drained replica must have had nothing running. Default
	// 1 s: a request picked just before the drain may be on its way.
	Quiet time.Duration
	// StopGrace is how long a stopping replica may take before it is killed.
	// Default 30 s.
	StopGrace time.Duration

	Log        zerolog.Logger
	Registerer prometheus.Registerer // nil: metrics are kept but not registered
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	share := func(d *float64, v float64) {
		if *d == 0 {
			*d = v
		}
	}
	share(&c.Default.Requests, 32)
	share(&c.Default.PrefillTokens, 16384)
	share(&c.Utilisation, 0.75)
	share(&c.Busiest, 0.9)
	share(&c.Headroom, 4)
	share(&c.Rush, 2)
	if c.Rated == 0 {
		c.Rated = 240
	}
	def(&c.Fade, 2*time.Hour)
	share(&c.DownMargin, 0.15)
	share(&c.DownShare, 0.2)
	share(&c.Regrow, 0.1)
	share(&c.Attainment, 0.9)
	share(&c.MinCoverage, 0.75)
	share(&c.MinReadings, 0.5)
	share(&c.SkewLimit, 3)
	if c.StepUp == 0 {
		c.StepUp = 2
	}
	def(&c.StartUp, time.Minute)
	def(&c.Interval, 15*time.Second)
	def(&c.Reconcile, time.Second)
	def(&c.RowsAge, 5*time.Second)
	def(&c.ReadingAge, 10*time.Second)
	def(&c.PendingDeadline, 10*time.Minute)
	def(&c.Quiet, time.Second)
	def(&c.StopGrace, 30*time.Second)
	return c
}

// Validate joins everything that is wrong with the configuration.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	for _, x := range []struct {
		wrong bool
		text  string
	}{
		{c.Cluster == nil, "cluster is missing"},
		{c.Committer == nil, "committer is missing"},
		{c.Self == "", "self is empty"},
		{c.Utilisation <= 0 || c.Utilisation > 1, "utilisation is not above 0 and at most 1"},
		{c.Busiest < 0 || c.Busiest > 1, "busiest is not a share"},
		{c.Headroom < 0, "headroom is negative"},
		{c.DownShare < 0 || c.DownShare > 1, "down share is not a share"},
		{c.Regrow < 0, "regrow is negative"},
		{c.DownMargin < 0 || c.DownMargin >= 1, "down margin is not a share below 1"},
		{c.Attainment < 0 || c.Attainment > 1, "attainment is not a share"},
		{c.StepUp < 1, "step up is less than 1"},
		{c.Default.Requests <= 0 || c.Default.PrefillTokens <= 0, "default capacity is not positive"},
	} {
		if x.wrong {
			errs = append(errs, errors.New(x.text))
		}
	}
	return errors.Join(errs...)
}
