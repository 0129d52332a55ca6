package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

var (
	chaosFor  = flag.Duration("chaos", 8*time.Second, "how long TestChaos breaks things")
	chaosSeed = flag.Uint64("chaos-seed", 1, "of the troubles and clients of TestChaos")
)

// Engines that reset, stall, hang, restart, are killed and answer 503, clients that
// vanish or do not read, three routers: every answer is whole or visibly broken, no
// request is answered by two engines, and afterwards nothing is left of it all.
func TestChaos(t *testing.T) {
	t.Parallel()
	p := cluster(t, harness.ProcsConfig{
		Routers: 3, Engines: 5, EngineArgs: []string{"--speed", "10"},
		PoolYAML: "    timeouts: {connect: 1s, first_byte: 8s, idle: 2s}\n    breaker: {open: 1s}\n",
	})
	joined(t, p.Routers)
	crowd := newCrowd(p.APIs(), *chaosSeed)
	crowd.run(t.Context(), 3*time.Second)
	idle(t, p.Routers, patience)
	before := rest(t, p.Routers)

	ctx, cancel := context.WithTimeout(t.Context(), *chaosFor)
	defer cancel()
	m := &mischief{engines: p.Engines, rng: rand.New(rand.NewPCG(*chaosSeed, 2)), answered: map[string]map[string]bool{}, counts: map[string]int{}}
	var wg sync.WaitGroup
	wg.Go(func() { m.run(ctx, p) })
	crowd.run(ctx, *chaosFor)
	wg.Wait()
	if m.err != nil {
		t.Fatal(m.err)
	}
	m.end(t, p)
	idle(t, p.Routers, patience)
	poll(t, patience, "nothing in flight at the engines", func() (bool, string) {
		for _, e := range p.Engines {
			if rec := record(t.Context(), e); rec == nil || rec.Active != 0 {
				return false, fmt.Sprintf("%s: %+v", e.Name, rec)
			}
		}
		return true, ""
	})
	m.collect(t.Context())

	t.Logf("answers: %v", crowd.counts)
	t.Logf("troubles: %v", m.counts)
	for _, bad := range crowd.wrong {
		t.Error(bad)
	}
	for id, by := range m.answered {
		if len(by) > 1 {
			t.Errorf("request %s was answered by %d executions: %v", id, len(by), slices.Sorted(maps.Keys(by)))
		}
	}
	if crowd.counts["whole"] == 0 || crowd.counts["vanished"] == 0 || len(m.counts) < 4 {
		t.Errorf("the chaos was none: answers %v, troubles %v", crowd.counts, m.counts)
	}
	crowd.client.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections()
	poll(t, patience, "goroutines and memory as before", func() (bool, string) {
		ok, seen := true, ""
		for i, now := range rest(t, p.Routers) {
			was := before[i]
			seen += fmt.Sprintf("%s: %.0f goroutines, before %.0f; heap %.1f MB, before %.1f. ", p.Routers[i].Name, now.goroutines, was.goroutines, now.heap/1e6, was.heap/1e6)
			ok = ok && now.goroutines <= was.goroutines+16 && now.heap <= 1.5*was.heap+16e6
		}
		if ok {
			t.Log(seen)
		}
		return ok, seen
	})
	if after := crowd.run(t.Context(), time.Second); after["broken"]+after["refused"] > 0 || after["whole"] == 0 {
		t.Errorf("when all is well again: %v", after)
	}
}

// resting is what a router that does nothing holds.
type resting struct{ goroutines, heap float64 }

func rest(t *testing.T, routers []*harness.Proc) (out []resting) {
	t.Helper()
	for _, r := range routers {
		for range 2 { // what a collection frees may have finalizers
			if status, _, _ := get(t, r.Admin+"/debug/pprof/heap?gc=1"); status != http.StatusOK {
				t.Fatalf("heap of %s: status %d", r.Name, status)
			}
		}
		m := scrape(t, r)
		out = append(out, resting{sum(m["go_goroutines"], "", ""), sum(m["go_memstats_heap_alloc_bytes"], "", "")})
	}
	return out
}

// mischief breaks engines. Its methods are for one goroutine.
type mischief struct {
	engines  []*harness.Proc
	rng      *rand.Rand
	counts   map[string]int
	answered map[string]map[string]bool // by request id: the executions that sent some of an answer
	err      error
}

// troubles are what befalls an engine; none lasts for long.
var troubles = []enginesim.Fault{
	{Kind: enginesim.FaultStatus, Status: 503, RetryAfter: 1, Count: 5},
	{Kind: enginesim.FaultStatus, Status: 500, Count: 5},
	{Kind: enginesim.FaultReset, Count: 3},
	{Kind: enginesim.FaultReset, AfterEvents: 3, Count: 3},
	{Kind: enginesim.FaultFin, AfterEvents: 5, Count: 3},
	{Kind: enginesim.FaultSilence, AfterEvents: 2, Count: 2},
	{Kind: enginesim.FaultSlow, Factor: 5, Duration: time.Second},
	{Kind: enginesim.FaultHangMetrics, Duration: 2 * time.Second},
	{Kind: enginesim.FaultRestart, Duration: 300 * time.Millisecond},
	{Kind: enginesim.FaultLoading, Duration: 500 * time.Millisecond},
	{Kind: enginesim.FaultWipe},
}

func (m *mischief) run(ctx context.Context, p *harness.Procs) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for i := 1; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		e := m.engines[m.rng.IntN(len(m.engines)-1)] // the last one stays as it is
		if i%12 == 0 {
			m.collect(ctx)
			m.counts["killed"]++
			e.Kill()
			if m.err = p.Start(e); m.err != nil {
				return
			}
			continue
		}
		if i%4 == 0 {
			m.collect(ctx)
		}
		f := troubles[m.rng.IntN(len(troubles))]
		if send(ctx, e, f) == nil { // it may be starting
			m.counts[string(f.Kind)]++
		}
	}
}

// end makes all engines well.
func (m *mischief) end(t *testing.T, p *harness.Procs) {
	t.Helper()
	for _, e := range p.Engines {
		if err := e.WaitReady(t.Context(), patience); err != nil {
			t.Fatal(err)
		}
		if err := send(t.Context(), e, enginesim.Fault{Kind: enginesim.FaultNone}); err != nil {
			t.Fatal(err)
		}
	}
}

// collect notes which executions have sent some of an answer.
func (m *mischief) collect(ctx context.Context) {
	for _, e := range m.engines {
		rec := record(ctx, e)
		if rec == nil {
			continue
		}
		for _, r := range rec.Requests {
			if r.XRequestID == "" || r.Events == 0 && (r.Stream || r.Outcome != enginesim.OutcomeFinished) {
				continue
			}
			if m.answered[r.XRequestID] == nil {
				m.answered[r.XRequestID] = map[string]bool{}
			}
			m.answered[r.XRequestID][e.Name+" "+r.ID] = true
		}
	}
}

// record is what an engine has recorded; nil if it does not say.
func record(ctx context.Context, e *harness.Proc) *enginesim.Record {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.API+"/sim/record", nil)
	if err != nil {
		return nil
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	var rec enginesim.Record
	if decode(resp.Body, &rec) != nil {
		return nil
	}
	return &rec
}

// send makes an engine misbehave.
func send(ctx context.Context, e *harness.Proc, f enginesim.Fault) error {
	b, err := f.MarshalJSON()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.API+"/sim/fault", strings.NewReader(string(b)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("fault %s at %s: status %d", f.Kind, e.Name, resp.StatusCode)
	}
	return nil
}
