package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/harness"
	"github.com/hearsay-llm/hearsay/test/replay"
	"github.com/hearsay-llm/hearsay/test/traces"
)

// cell is one run: a fresh cluster, warmed and measured.
type cell struct {
	Mode     string  `json:"mode"`
	Routers  int     `json:"routers"`
	Sharing  bool    `json:"sharing"`
	Policy   string  `json:"policy"`
	Seed     uint64  `json:"seed"`
	Hit      float64 `json:"hit_rate"`
	Ideal    float64 `json:"ideal_hit_rate"`
	TTFTMean float64 `json:"ttft_mean_s"`
	TTFTP99  float64 `json:"ttft_p99_s"`
	Error    float64 `json:"prediction_error_p50"` // |predicted - cached| / prompt tokens
	Bias     float64 `json:"prediction_bias"`
	Failed   int     `json:"failed"`
	Late     float64 `json:"client_late_p99_s"` // the client's own delay: above a few ms the machine was too busy
}

// cells measures K01. Without sharing one router is the same as with it.
func cells(ctx context.Context, o *options, res *result) error {
	begin := time.Now()
	for _, seed := range o.seeds {
		for _, mode := range o.modeList() {
			todo := []cell{{Routers: 1, Sharing: true, Policy: "round_robin"}}
			for _, n := range o.routers {
				todo = append(todo, cell{Routers: n, Sharing: true, Policy: o.policy})
				if n > 1 {
					todo = append(todo, cell{Routers: n, Policy: o.policy})
				}
			}
			for _, c := range todo {
				c.Mode, c.Seed = mode, seed
				if err := c.measure(ctx, o); err != nil {
					return err
				}
				progress(begin, "%-8s seed %d  %d routers  sharing %-5v  %-11s  hit %.3f of %.3f  TTFT %.0f ms  failed %d  late p99 %.0f ms",
					c.Mode, c.Seed, c.Routers, c.Sharing, c.Policy, c.Hit, c.Ideal, 1e3*c.TTFTMean, c.Failed, 1e3*c.Late)
				res.Cells = append(res.Cells, c)
				if err := res.save(o); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *cell) measure(ctx context.Context, o *options) error {
	p, err := start(ctx, o, c.Routers, c.Policy, c.Sharing)
	if err != nil {
		return err
	}
	defer p.Close()
	w := newWorkload(o, c.Mode, c.Seed)
	all := w.take(o.warm + o.rounds)
	r, err := send(ctx, o, p.APIs(), all, c.Seed, warmup(o, all), nil)
	if err != nil {
		return err
	}
	if r.HitRate != nil {
		c.Hit = *r.HitRate
	}
	c.Ideal = w.ideal()
	c.TTFTMean, c.TTFTP99, c.Failed, c.Late = r.TTFT.Mean, r.TTFT.P99, r.Errors, r.Lateness.P99
	if r.Prediction != nil {
		c.Error, c.Bias = r.Prediction.ErrorShare.P50, r.Prediction.Bias
	}
	return nil
}

// start starts a cluster.
func start(ctx context.Context, o *options, routers int, policy string, sharing bool) (*procs.Cluster, error) {
	return procs.Start(ctx, harness.ProcsConfig{
		Bin: o.bin, Routers: routers, Engines: o.replicas, Model: "sim-70b", Policy: policy, NoSharing: !sharing,
		EngineArgs: []string{"--speed", fmt.Sprint(o.speed), "--kv-tokens", fmt.Sprint(o.kvTokens())},
	})
}

// send replays requests, each to a target at random.
func send(ctx context.Context, o *options, targets []string, all []*traces.Request, seed uint64, warm time.Duration, observe func(replay.Snapshot)) (*replay.Report, error) {
	return procs.Replay(ctx, replay.Config{
		Targets: targets, Model: "sim-70b", Source: traces.Slice(all...), Seed: seed, Speed: o.speed, Debug: true, IgnoreEOS: true,
		Warmup: warm, Name: "k01", Observe: observe,
	})
}
