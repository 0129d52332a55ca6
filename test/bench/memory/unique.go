package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/table"
	"github.com/hearsay-llm/hearsay/test/harness"
)

const (
	sharedChars = 200            // all prompts begin alike
	leastBody   = 2000           // bytes of a body
	mostBody    = 8000           //
	hotEvery    = 50             // one of so many requests has the hot prefix
	hotTokens   = 2000 / 16 * 16 // of the hot prefix
	windows     = 25             // samples over the run
)

// words is where prompts are cut from.
var words = func() []byte {
	rng := rand.New(rand.NewPCG(1, 1))
	b := make([]byte, 1<<20)
	for i := range b {
		if b[i] = byte('a' + rng.IntN(26)); rng.IntN(6) == 0 {
			b[i] = ' '
		}
	}
	return b
}()

var (
	shared = string(words[:sharedChars])
	hot    = sayHot + string(words[1000:1000+hotTokens*bytesPerToken])
)

// uniquePrompt is a body of 2 to 8 kB that nobody has sent before.
func uniquePrompt(n int64, rng *rand.Rand) []byte {
	size := leastBody + rng.IntN(mostBody-leastBody) - sharedChars - 120
	at := rng.IntN(len(words) - size)
	return chatBody(fmt.Sprintf("%s #%d %s", shared, n, words[at:at+size]), false)
}

// driver sends prompts, as fast as they are answered, each to a router at random.
type driver struct {
	routers []string
	client  *http.Client
	next    atomic.Int64 // number of the next prompt

	mu        sync.Mutex
	took      []float64 // guarded by mu; seconds, of this window
	hotSent   int       // guarded by mu; tokens of hot prefixes
	hotCached int       // guarded by mu; of those, tokens found cached
	failed    int       // guarded by mu
	example   string    // guarded by mu; of a failure
}

func newDriver(p *harness.Procs, workers int) *driver {
	return &driver{routers: p.APIs(), client: &http.Client{
		Timeout:   time.Minute,
		Transport: &http.Transport{MaxIdleConnsPerHost: workers, MaxIdleConns: 0},
	}}
}

// send sends prompts until the number of the next one is to.
func (d *driver) send(ctx context.Context, workers int, to int64) {
	var all sync.WaitGroup
	for k := range workers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(k), uint64(to)))
			for ctx.Err() == nil {
				n := d.next.Add(1) - 1
				if n >= to {
					d.next.Add(-1)
					return
				}
				d.one(ctx, n, rng)
			}
		})
	}
	all.Wait()
}

func (d *driver) one(ctx context.Context, n int64, rng *rand.Rand) {
	isHot := n%hotEvery == 0
	body := uniquePrompt(n, rng)
	if isHot {
		body = chatBody(fmt.Sprintf("%s #%d", hot, n), false)
	}
	begin := time.Now()
	cached, err := d.post(ctx, d.routers[rng.IntN(len(d.routers))], body)
	took := time.Since(begin).Seconds()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			d.failed++
			d.example = err.Error()
		}
		return
	}
	d.took = append(d.took, took)
	if isHot {
		d.hotSent += hotTokens
		d.hotCached += min(cached, hotTokens)
	}
}

func (d *driver) post(ctx context.Context, router string, body []byte) (cached int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, router+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := d.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	var answer struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return 0, err
	}
	return answer.Usage.Details.Cached, nil
}

// sample is one instant of the run; usages are of each router.
type sample struct {
	Phase   string  `json:"phase"` // load, idle, removed
	At      float64 `json:"at_s"`
	Prompts int64   `json:"prompts"`
	Routers []usage `json:"routers"`
	P50     float64 `json:"p50_s"` // of the requests since the sample before
	P99     float64 `json:"p99_s"`
	Rate    float64 `json:"requests_per_s"`
	HotHit  float64 `json:"hot_hit_rate"`
}

// uniqueRun is the run with unique prompts.
type uniqueRun struct {
	Prompts  int      `json:"prompts"`
	Routers  int      `json:"routers"`
	Replicas int      `json:"replicas"`
	Failed   int      `json:"failed"`
	Example  string   `json:"failure,omitempty"`
	Start    []usage  `json:"start"`
	Samples  []sample `json:"samples"`
	Settled  []usage  `json:"settled_after_load"` // after a collection
	Removed  []usage  `json:"settled_after_removal"`
}

func measureUnique(ctx context.Context, o *options, res *result) error {
	p, up, done, err := cluster(ctx, o, o.routers, o.replicas)
	if err != nil {
		return err
	}
	defer done()
	run := &uniqueRun{Prompts: o.prompts, Routers: o.routers, Replicas: o.replicas}
	res.Unique = run
	if run.Start, err = all(ctx, p, settled); err != nil {
		return err
	}
	d := newDriver(p, o.workers)
	begin := time.Now()
	last := begin
	note := func(phase string) error {
		s := sample{Phase: phase, Prompts: d.next.Load(), At: time.Since(begin).Seconds()}
		if s.Routers, err = all(ctx, p, read); err != nil {
			return err
		}
		d.mu.Lock()
		slices.Sort(d.took)
		s.P50, s.P99 = table.Quantile(d.took, 0.5), table.Quantile(d.took, 0.99)
		s.Rate = float64(len(d.took)) / time.Since(last).Seconds()
		s.HotHit = float64(d.hotCached) / float64(max(1, d.hotSent))
		d.took, d.hotSent, d.hotCached = d.took[:0], 0, 0
		failed, example := d.failed, d.example
		d.mu.Unlock()
		last = time.Now()
		run.Failed, run.Example = failed, example
		run.Samples = append(run.Samples, s)
		fmt.Fprintf(o.progress, "%-7s %5.0f s  %8d prompts  %5.0f/s  RSS %s MB  entries %.0f  hot hit %.3f  failed %d\n",
			phase, s.At, s.Prompts, s.Rate, mb(s.Routers[0].RSS), s.Routers[0].Entries, s.HotHit, failed)
		return nil
	}
	for i := range windows {
		d.send(ctx, o.workers, int64(o.prompts)*int64(i+1)/windows)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := note("load"); err != nil {
			return err
		}
	}
	watch := func(phase string) error {
		for range 4 {
			if err := wait(ctx, o.idle/4); err != nil {
				return err
			}
			if err := note(phase); err != nil {
				return err
			}
		}
		return nil
	}
	if err := watch("idle"); err != nil {
		return err
	}
	if run.Settled, err = all(ctx, p, settled); err != nil {
		return err
	}
	if err := profile(ctx, o, p.Routers[0], "unique"); err != nil {
		return err
	}
	for _, r := range up.replicas {
		if err := admin(ctx, p, http.MethodDelete, "/admin/v1/replicas/"+url.PathEscape(r.url), ""); err != nil {
			return err
		}
	}
	if err := watch("removed"); err != nil {
		return err
	}
	if run.Removed, err = all(ctx, p, settled); err != nil {
		return err
	}
	return profile(ctx, o, p.Routers[0], "removed")
}

// all takes every router's usage.
func all(ctx context.Context, p *harness.Procs, take func(context.Context, *harness.Proc) (usage, error)) ([]usage, error) {
	var out []usage
	for _, r := range p.Routers {
		u, err := take(ctx, r)
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
}

func (res *result) showUnique(w io.Writer) {
	run := res.Unique
	most := func(list []usage, get func(usage) float64) float64 {
		m := 0.0
		for _, u := range list {
			m = max(m, get(u))
		}
		return m
	}
	sum := func(list []usage, get func(usage) float64) (s float64) {
		for _, u := range list {
			s += get(u)
		}
		return s
	}
	rss := func(u usage) float64 { return u.RSS }
	gossip := func(u usage) float64 { return u.Gossip }
	var rows [][]string
	var prompts int64
	before := sum(run.Start, gossip)
	for _, s := range run.Samples {
		per, g := "", sum(s.Routers, gossip)
		if s.Prompts > prompts {
			per = table.Num((g - before) / float64(s.Prompts-prompts))
		}
		before, prompts = g, s.Prompts
		hit, p50, p99 := "", "", ""
		if s.Phase == "load" {
			hit, p50, p99 = table.Num(s.HotHit), table.Num(1e3*s.P50), table.Num(1e3*s.P99)
		}
		rows = append(rows, []string{
			s.Phase, fmt.Sprintf("%.0f", s.At), fmt.Sprint(s.Prompts), mb(most(s.Routers, rss)), mb(most(s.Routers, func(u usage) float64 { return u.Heap })),
			fmt.Sprintf("%.0f", most(s.Routers, func(u usage) float64 { return u.Entries })), mb(most(s.Routers, func(u usage) float64 { return u.Sketch })), per, hit, p50, p99,
		})
	}
	table.Print(w, fmt.Sprintf("%d prompts of 2-8 kB that share their first %d characters, %d routers, %d replicas; of the router with most. %d requests failed.", run.Prompts, sharedChars, run.Routers, run.Replicas, run.Failed), 1,
		[]string{"phase", "s", "prompts", "RSS MB", "heap MB", "entries", "sketch MB, by its own account", "gossip B/request", "hot hit rate", "p50 ms", "p99 ms"}, rows)
	// One router may be writing its sketch to disk just then: the median is of the others.
	mid := func(list []usage, get func(usage) float64) float64 {
		var v []float64
		for _, u := range list {
			v = append(v, get(u))
		}
		return table.Median(v)
	}
	rows = nil
	for _, r := range []struct {
		name string
		list []usage
	}{{"before", run.Start}, {"after all prompts", run.Settled}, {"all replicas removed", run.Removed}} {
		rows = append(rows, []string{
			r.name, mb(mid(r.list, usage.live)), mb(mid(r.list, func(u usage) float64 { return u.Sketch })), mb(mid(r.list, rss)), mb(most(r.list, rss)),
			fmt.Sprintf("%.0f", mid(r.list, func(u usage) float64 { return u.Entries })),
		})
	}
	table.Print(w, "After a collection; the median of the routers", 1, []string{"when", "live MB", "sketch MB, by its own account", "RSS MB", "most RSS MB", "entries"}, rows)
	if run.Example != "" {
		fmt.Fprintf(w, "\nA failure: %s\n", strings.TrimSpace(run.Example))
	}
}
