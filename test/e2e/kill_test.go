package e2e

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/harness"
	"github.com/hearsay-llm/hearsay/test/replay"
	"github.com/hearsay-llm/hearsay/test/traces"
)

// mostMoved bounds how far the hit rate of the routers that stay may fall when
// another dies, as a share. The load's own rate rises and falls by several points,
// since conversations begin and end; MEASURES has the exact comparison.
const mostMoved = 0.15

// kill -9 of a router in the middle of a load fails what goes to that router and
// nothing else; the others lose nothing of what they know, and it comes back warm.
func TestRouterKilledUnderLoad(t *testing.T) {
	t.Parallel()
	p := cluster(t, harness.ProcsConfig{Routers: 3, Engines: 4, EngineArgs: []string{"--speed", "10"}})
	joined(t, p.Routers)
	victim, others := p.Routers[2], p.Routers[:2]

	known := long("what the victim learns itself", 300)
	resp, _ := whole(t, victim.API+"/v1/chat/completions", chat(known, 2, true, ""), "x-hearsay-debug", "1")
	holder := resp.Header.Get("X-Hearsay-Replica")

	src, err := traces.Agents(traces.AgentsConfig{Seed: 7, Sessions: 40, Rate: 0.5, Turns: traces.Range{Min: 4, Max: 8}, OutputTokens: traces.Range{Min: 20, Max: 60}, RealAnswers: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	half := make(chan struct{})
	var reached atomic.Bool
	type result struct {
		report *replay.Report
		err    error
	}
	done := make(chan result, 1)
	began := time.Now()
	go func() {
		r, err := replay.Run(ctx, replay.Config{
			Targets: p.APIs(), RoundRobin: true, Model: model, Source: src, Seed: 7, Speed: 10, Debug: true, IgnoreEOS: true,
			Timeout: time.Minute,
			Observe: func(s replay.Snapshot) {
				if s.Sent >= 110 && !reached.Swap(true) {
					close(half)
				}
			},
		})
		done <- result{r, err}
	}()
	var res result
	select {
	case <-half:
	case res = <-done:
		t.Fatalf("the load ended before its middle: %v", res.err)
	}
	victim.Kill()
	killed := time.Since(began)
	res = <-done
	if res.err != nil {
		t.Fatal(res.err)
	}
	for _, row := range res.report.TargetRows {
		t.Logf("%s: %d requests, %d errors", row.Name, row.Requests, row.Errors)
		if row.Name != victim.API && (row.Errors != 0 || row.Requests == 0) {
			t.Errorf("%s: %d of %d requests failed: %v", row.Name, row.Errors, row.Requests, res.report.ErrorExamples)
		}
		if row.Name == victim.API && row.Errors == 0 {
			t.Errorf("no request to the killed router failed: the load did not reach it")
		}
	}
	before, after := hitRates(t, res.report, victim.API, killed)
	t.Logf("hit rate of the others: %.1f %% before the kill, %.1f %% after", 100*before, 100*after)
	if after < before-mostMoved {
		t.Errorf("hit rate of the others fell from %.3f to %.3f", before, after)
	}
	idle(t, others, 3*time.Second)

	// What is learned while it is away, and what it had told before its end.
	news := long("what happens meanwhile", 300)
	resp, _ = whole(t, others[0].API+"/v1/chat/completions", chat(news, 2, true, ""), "x-hearsay-debug", "1")
	newsHolder := resp.Header.Get("X-Hearsay-Replica")
	start(t, p, victim)
	for _, x := range []struct{ prompt, holder string }{{known, holder}, {news, newsHolder}} {
		body := chat(x.prompt+" And then?", 2, true, "")
		e := explain(t, victim, body)
		if !slices.ContainsFunc(e.Candidates, func(c candidate) bool { return c.Replica == x.holder && c.MatchedTokens > e.PromptTokens/2 }) {
			t.Errorf("just ready, the restarted router does not know that %s holds %.30q: %+v", x.holder, x.prompt, e)
		}
	}
}

// hitRates splits the load at a wall-clock time and gives the share of cached
// prompt tokens before and after it, of requests that did not go to without.
func hitRates(t *testing.T, r *replay.Report, without string, at time.Duration) (before, after float64) {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteSamples(&b); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) < 2 {
		t.Fatalf("samples: %d rows, %v", len(rows), err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	var prompt, cached [2]float64
	for _, row := range rows[1:] {
		num := func(name string) float64 {
			i, ok := column[name]
			if !ok {
				t.Fatalf("no column %s in %v", name, rows[0])
			}
			f, _ := strconv.ParseFloat(row[i], 64)
			return f
		}
		if row[column["target"]] == without || row[column["kind"]] != string(replay.OK) {
			continue
		}
		i := 0
		if num("sent_s") > at.Seconds() {
			i = 1
		}
		prompt[i] += num("prompt_tokens")
		cached[i] += num("cached_tokens")
	}
	if prompt[0] == 0 || prompt[1] == 0 {
		t.Fatal(fmt.Errorf("nothing was sent before or after the kill: %v", prompt))
	}
	return cached[0] / prompt[0], cached[1] / prompt[1]
}
