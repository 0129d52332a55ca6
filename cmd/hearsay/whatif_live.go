package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/whatif"
)

// adopt makes the simulated cluster like the live one of the router whose admin address
// --target names, as far as that knows and no flag says otherwise. It says what it took.
func (f *whatIfFlags) adopt(ctx context.Context, server string, given func(flag string) bool, w io.Writer) error {
	a := &admin{server: server, token: os.Getenv("HEARSAY_TOKEN"), named: func() string { return "--target" }}
	var s console.Status
	if _, err := a.call(ctx, "GET", "status", nil, &s); err != nil {
		return asTarget(err)
	}
	pool, err := livePool(s.Pools, f.pool)
	if err != nil {
		return err
	}
	var list []console.Replica
	if _, err := a.call(ctx, "GET", "replicas?pool="+url.QueryEscape(pool.Name), nil, &list); err != nil {
		return asTarget(err)
	}
	if len(list) == 0 {
		return fmt.Errorf("pool %s of %s has no replica to be like", pool.Name, server)
	}
	c := &f.cfg
	if !given("routers") {
		c.Routers = max(1, s.Alive)
	}
	if !given("replicas") {
		c.Replicas = len(list)
	}
	kv := median(list, func(r *console.Replica) float64 { return r.Capacity })
	if kv >= blockTokens && !given("kv-tokens") {
		c.KVTokens = int(kv) / blockTokens * blockTokens
	}
	c.Policy = pool.Policy
	if d := time.Duration(s.Figures.DelayP50MS * float64(time.Millisecond)); d > 0 {
		c.Delay = d.Round(100 * time.Microsecond)
	}
	rate := median(list, func(r *console.Replica) float64 {
		if r.Speed.Samples == 0 {
			return 0
		}
		return r.Speed.PrefillRate
	})
	if of, err := prefillRate(c); err == nil && rate > 0 {
		c.Speed = rate / of
	}
	_, err = fmt.Fprintf(w, "as pool %s at %s: %s, %s of %d KV tokens, policy %s, %.2f times the speed of %s, delay %v\n",
		pool.Name, server, plural(c.Routers, "router"), plural(c.Replicas, "replica"), c.KVTokens, c.Policy, c.Speed, c.Profile, c.Delay)
	return err
}

// asTarget is an error of the admin client in a command that calls its server --target.
func asTarget(err error) error {
	text := errors.New(strings.ReplaceAll(err.Error(), "--server", "--target"))
	if errors.As(err, &usageError{}) {
		return usageError{text}
	}
	return text
}

// blockTokens is what KV caches of simulated engines are multiples of.
const blockTokens = 16

// livePool is the pool of that name, or the only one.
func livePool(list []console.Pool, name string) (*console.Pool, error) {
	var names []string
	for i := range list {
		if list[i].Name == name || name == "" && len(list) == 1 {
			return &list[i], nil
		}
		names = append(names, list[i].Name)
	}
	if name == "" {
		return nil, usageError{fmt.Errorf("--target: it has several pools: name one with --pool (%s)", strings.Join(names, ", "))}
	}
	return nil, fmt.Errorf("--pool: --target has no pool %s, but %s", name, strings.Join(names, ", "))
}

// median is that of the figures above 0, or 0.
func median(list []console.Replica, of func(*console.Replica) float64) float64 {
	var v []float64
	for i := range list {
		if x := of(&list[i]); x > 0 {
			v = append(v, x)
		}
	}
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// prefillRate is the prompt tokens per second of a simulated replica at speed 1.
func prefillRate(c *whatif.Config) (float64, error) {
	timing, err := enginesim.NewTiming(c.Profile)
	if err != nil {
		return 0, err
	}
	return float64(c.BatchTokens) / timing.StepTime(enginesim.StepLoad{PrefillTokens: c.BatchTokens}).Seconds(), nil
}
