package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// join is one run of K03: a router with an empty disk joins a warm cluster and gets
// all traffic at once.
type join struct {
	Mode         string     `json:"mode"`
	Routers      int        `json:"routers"` // the new one included
	Seed         uint64     `json:"seed"`
	Ready        float64    `json:"ready_after_s"`
	EntriesReady float64    `json:"entries_when_ready"` // sketch entries of the new router, just after it was ready
	EntriesPeer  float64    `json:"entries_of_a_peer"`  // at the same time
	Before       procs.Part `json:"others_before"`      // the measured rounds before it came
	First        procs.Part `json:"first_100"`
	Rest         procs.Part `json:"rest"` // of its first round
}

func joins(ctx context.Context, o *options, res *result) error {
	begin := time.Now()
	for _, seed := range o.seeds {
		for _, mode := range o.modeList() {
			j := join{Mode: mode, Routers: o.cluster, Seed: seed}
			if err := j.measure(ctx, o); err != nil {
				return err
			}
			progress(begin, "%-8s seed %d  ready after %.2f s with %.0f of %.0f entries  hit %.3f before, %.3f in its first %d requests, %.3f later",
				j.Mode, j.Seed, j.Ready, j.EntriesReady, j.EntriesPeer, j.Before.Hit, j.First.Hit, j.First.Requests, j.Rest.Hit)
			res.Joins = append(res.Joins, j)
			if err := res.save(o); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure starts the whole cluster, then takes its last router out and wipes its
// disk, before any request: to the others the one that comes later is a new node.
func (j *join) measure(ctx context.Context, o *options) error {
	if j.Routers < 2 {
		return errors.New("joining needs -cluster 2 or more")
	}
	p, err := start(ctx, o, j.Routers, o.policy, true)
	if err != nil {
		return err
	}
	defer p.Close()
	novice := p.Routers[len(p.Routers)-1]
	if err := novice.Stop(10 * time.Second); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(p.Dir, novice.Name)); err != nil {
		return err
	}
	w := newWorkload(o, j.Mode, j.Seed)
	all := w.take(o.warm + o.rounds)
	report, err := send(ctx, o, p.APIs()[:j.Routers-1], all, j.Seed, warmup(o, all), nil)
	if err != nil {
		return err
	}
	list, err := procs.Samples(report)
	if err != nil {
		return err
	}
	j.Before = procs.Sum(list, func(procs.Sample) bool { return true })

	next := w.take(1)
	at := time.Now()
	if err := p.Start(novice); err != nil {
		return err
	}
	if err := novice.WaitReady(ctx, 30*time.Second); err != nil {
		return err
	}
	j.Ready = time.Since(at).Seconds()
	if j.EntriesReady, err = sketchEntries(ctx, novice); err != nil {
		return err
	}
	if j.EntriesPeer, err = sketchEntries(ctx, p.Routers[0]); err != nil {
		return err
	}
	if report, err = send(ctx, o, []string{novice.API}, next, j.Seed, 0, nil); err != nil {
		return err
	}
	if list, err = procs.Samples(report); err != nil {
		return err
	}
	const first = 100
	j.First = procs.Sum(list[:min(first, len(list))], func(procs.Sample) bool { return true })
	j.Rest = procs.Sum(list[min(first, len(list)):], func(procs.Sample) bool { return true })
	return nil
}

// sketchEntries is a router's count of prefix marks.
func sketchEntries(ctx context.Context, p *harness.Proc) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		if v, ok := strings.CutPrefix(s.Text(), "hearsay_sketch_entries "); ok {
			return strconv.ParseFloat(v, 64)
		}
	}
	return 0, fmt.Errorf("%s does not tell its sketch entries", p.Name)
}
