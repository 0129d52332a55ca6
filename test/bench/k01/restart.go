package main

import (
	"context"
	"errors"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/replay"
)

// restart is one run of K02: kill -9 of one router in mid-run and its start with the
// same data directory at once.
type restart struct {
	Mode    string     `json:"mode"`
	Routers int        `json:"routers"`
	Seed    uint64     `json:"seed"`
	Killed  float64    `json:"killed_at_s"`
	Ready   float64    `json:"ready_after_s"` // from the start to ready
	Before  procs.Part `json:"router_before"` // the last 15 s before the kill, requests to the router killed
	Second  procs.Part `json:"router_first_second"`
	After   procs.Part `json:"router_later"` // from a second after it was ready, 15 s
	Others  procs.Part `json:"others_after"` // requests to the others from the kill to the end
	OthersB procs.Part `json:"others_before"`
	Next    procs.Part `json:"next_round"` // the 750 requests after it was ready, all routers
}

// window is the time before the kill and after the return that is compared.
const window = 15 * time.Second

// restarts measures K02 in a cluster and with one router alone. The state of a
// router alone is on its disk, saved every half minute: it is killed half a minute
// and more after it was warm.
func restarts(ctx context.Context, o *options, res *result) error {
	begin := time.Now()
	for _, seed := range o.seeds {
		for _, mode := range o.modeList() {
			for _, n := range []int{o.cluster, 1} {
				r := restart{Mode: mode, Routers: n, Seed: seed}
				if err := r.measure(ctx, o); err != nil {
					return err
				}
				progress(begin, "%-8s seed %d  %d routers  killed after %.0f s, ready after %.2f s  hit %.3f before, %.3f in the first second, %.3f later",
					r.Mode, r.Seed, r.Routers, r.Killed, r.Ready, r.Before.Hit, r.Second.Hit, r.After.Hit)
				res.Restarts = append(res.Restarts, r)
				if err := res.save(o); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r *restart) measure(ctx context.Context, o *options) error {
	p, err := start(ctx, o, r.Routers, o.policy, true)
	if err != nil {
		return err
	}
	defer p.Close()
	victim := p.Routers[len(p.Routers)-1]
	w := newWorkload(o, r.Mode, r.Seed)
	// 90 s: half of them to be saved in before the kill, half to measure after it.
	measured := o.rounds + 1
	if !o.quick {
		measured = max(measured, int(90*o.rate)/(o.groups*promptsPer)+1)
	}
	all := w.take(o.warm + measured)
	killAt := warmup(o, all) + (all[len(all)-1].At-warmup(o, all))/2
	var killed, back time.Duration // since the run's start
	var failed error
	began := time.Now()
	report, err := send(ctx, o, p.APIs(), all, r.Seed, 0, func(s replay.Snapshot) {
		if killed != 0 || s.Elapsed < time.Duration(float64(killAt)/o.speed) {
			return
		}
		killed = time.Since(began)
		victim.Kill()
		at := time.Now()
		if failed = p.Start(victim); failed == nil {
			failed = victim.WaitReady(ctx, 30*time.Second)
		}
		r.Ready = time.Since(at).Seconds()
		back = time.Since(began)
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if killed == 0 {
		return errors.New("the run ended before the kill")
	}
	list, err := procs.Samples(report)
	if err != nil {
		return err
	}
	r.Killed = killed.Seconds()
	own := func(s procs.Sample) bool { return s.Target == victim.API }
	r.Before = procs.Sum(list, func(s procs.Sample) bool { return own(s) && s.Sent >= killed-window && s.Sent < killed })
	r.Second = procs.Sum(list, func(s procs.Sample) bool { return own(s) && s.Sent >= back && s.Sent < back+time.Second })
	r.After = procs.Sum(list, func(s procs.Sample) bool {
		return own(s) && s.Sent >= back+time.Second && s.Sent < back+time.Second+window
	})
	r.OthersB = procs.Sum(list, func(s procs.Sample) bool { return !own(s) && s.Sent >= killed-window && s.Sent < killed })
	r.Others = procs.Sum(list, func(s procs.Sample) bool { return !own(s) && s.Sent >= killed })
	left := o.groups * promptsPer
	r.Next = procs.Sum(list, func(s procs.Sample) bool {
		if s.Sent < back || left == 0 {
			return false
		}
		left--
		return true
	})
	return nil
}
