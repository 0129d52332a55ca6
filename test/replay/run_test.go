package replay

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/test/traces"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6*math.Max(1, math.Abs(want)) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func TestTimesAndTokensAreTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{ttft: 200 * time.Millisecond, itl: 20 * time.Millisecond, cached: 40}
		r := run(t, t.Context(), serve(t, e.ServeHTTP), Config{Source: every(time.Second, 5, 11), SLO: SLO{TTFT: time.Second, TPOT: 20 * time.Millisecond}})
		if r.Sent != 5 || r.OK != 5 || r.Errors != 0 || r.Unfinished != 0 || r.Interrupted {
			t.Fatalf("counts are off: %+v", r)
		}
		near(t, "TTFT", r.TTFT.P50, 0.2)
		near(t, "TTFT max", r.TTFT.Max, 0.2)
		near(t, "TPOT", r.TPOT.Mean, 0.02)
		near(t, "E2E", r.E2E.P99, 0.4)
		near(t, "duration", r.Duration, 4.4)
		near(t, "lateness", r.Lateness.Max, 0)
		near(t, "hit rate", *r.HitRate, 0.4)
		near(t, "throughput", r.Throughput.OutputTokens, 55/4.4)
		near(t, "goodput", r.Goodput.PerSecond, 5/4.4)
		near(t, "goodput share", r.Goodput.Share, 1)
		if r.PromptTokens != 500 || r.CachedTokens != 200 || r.OutputTokens != 55 || r.CachedReports != 5 {
			t.Errorf("tokens are off: %+v", r)
		}
	})
}

func TestTheLoopIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{ttft: time.Minute} // longer than the whole trace
		n := serve(t, e.ServeHTTP)
		begin := time.Now()
		r := run(t, t.Context(), n, Config{Source: every(100*time.Millisecond, 30, 1)})
		if r.OK != 30 || r.Lateness.Max != 0 || r.Blocked != 0 {
			t.Errorf("ok %d, late %v, blocked %d", r.OK, r.Lateness.Max, r.Blocked)
		}
		for i, at := range e.at {
			if want := time.Duration(i) * 100 * time.Millisecond; at.Sub(begin) != want {
				t.Errorf("request %d came after %v, want %v", i, at.Sub(begin), want)
			}
		}
		if got := n.dials.Load(); got != 30 {
			t.Errorf("%d connections for 30 concurrent requests", got)
		}
	})
}

func TestConnectionsAreReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{ttft: 10 * time.Millisecond}
		n := serve(t, e.ServeHTTP)
		run(t, t.Context(), n, Config{Source: every(100*time.Millisecond, 30, 1)})
		if got := n.dials.Load(); got != 1 {
			t.Errorf("%d connections for requests one after the other", got)
		}
	})
}

type countedConn struct {
	net.Conn
	closed *atomic.Int64
}

func (c countedConn) Close() error {
	c.closed.Add(1)
	return c.Conn.Close()
}

func TestNoConnectionOutlivesTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := serve(t, (&engine{ttft: time.Second}).ServeHTTP)
		var opened, closed atomic.Int64
		_, err := Run(t.Context(), Config{
			Targets: []string{"http://a"}, Model: "m", Source: every(0, 5, 1),
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := n.dial(ctx, network, address)
				opened.Add(1)
				return countedConn{Conn: c, closed: &closed}, err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if opened.Load() != 5 || closed.Load() < 5 {
			t.Errorf("%d connections opened, %d closed", opened.Load(), closed.Load())
		}
	})
}

func TestTheBoundOnRequestsInFlightIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{ttft: time.Second}
		r := run(t, t.Context(), serve(t, e.ServeHTTP), Config{Source: every(0, 6, 1), Concurrency: 2})
		// Both slots come free at one instant, so the second send after it may find its slot free already.
		if r.OK != 6 || r.Blocked < 2 || r.Blocked > 4 {
			t.Errorf("ok %d, blocked %d, want 6 and 2 to 4", r.OK, r.Blocked)
		}
		near(t, "lateness", r.Lateness.Max, 2)
		near(t, "TTFT", r.TTFT.Max, 1) // from the send, not from the due time
	})
}

func TestSpeedReadsInEngineSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{ttft: 20 * time.Millisecond, itl: 2 * time.Millisecond}
		begin := time.Now()
		r := run(t, t.Context(), serve(t, e.ServeHTTP), Config{
			Source: every(time.Second, 11, 11), Speed: 10, SLO: SLO{TTFT: 200 * time.Millisecond, TPOT: 20 * time.Millisecond},
		})
		if got := time.Since(begin); got != 1040*time.Millisecond {
			t.Errorf("run took %v", got)
		}
		near(t, "TTFT", r.TTFT.P50, 0.2)
		near(t, "raw TTFT", r.Raw.TTFT.P50, 0.02)
		near(t, "TPOT", r.TPOT.P50, 0.02)
		near(t, "duration", r.Duration, 10.4)
		near(t, "wall duration", r.WallDuration, 1.04)
		near(t, "goodput share", r.Goodput.Share, 1)
	})
}

func TestGoodputCountsWhatMeetsBothBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := 0
		e := &engine{ttft: 100 * time.Millisecond, itl: 10 * time.Millisecond}
		n := serve(t, func(w http.ResponseWriter, r *http.Request) {
			slow++ // requests come one after the other
			switch slow {
			case 1:
				http.Error(w, "no", http.StatusServiceUnavailable)
			case 2:
				pause(r.Context(), 200*time.Millisecond)
				e.ServeHTTP(w, r)
			default:
				e.ServeHTTP(w, r)
			}
		})
		cfg := Config{Source: every(time.Second, 10, 5), SLO: SLO{TTFT: 200 * time.Millisecond}}
		r := run(t, t.Context(), n, cfg)
		if r.Goodput.Met != 8 {
			t.Errorf("%d met the SLO, want 8", r.Goodput.Met)
		}
		near(t, "share", r.Goodput.Share, 0.8)
		slow, cfg.Source, cfg.SLO = 10, every(time.Second, 10, 5), SLO{TPOT: 9 * time.Millisecond}
		if r := run(t, t.Context(), n, cfg); r.OK != 10 || r.Goodput.Met != 0 {
			t.Errorf("%d met a TPOT below the engine's", r.Goodput.Met)
		}
	})
}

func TestStoppingReportsWhatWasMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
		defer cancel()
		e := &engine{ttft: 800 * time.Millisecond, itl: 0}
		begin := time.Now()
		var last Snapshot
		r := run(t, ctx, serve(t, e.ServeHTTP), Config{Source: every(time.Second, 1000, 1), Observe: func(s Snapshot) { last = s }})
		if last.Errors != 0 || last.Done != 6 || last.InFlight != 0 {
			t.Errorf("last snapshot is %+v", last)
		}
		if got := time.Since(begin); got != 5500*time.Millisecond {
			t.Errorf("run ended after %v", got)
		}
		if !r.Interrupted || r.Sent != 6 || r.OK != 5 || r.Unfinished != 1 || r.Errors != 0 {
			t.Errorf("interrupted %v, sent %d, ok %d, unfinished %d, errors %d", r.Interrupted, r.Sent, r.OK, r.Unfinished, r.Errors)
		}
		near(t, "TTFT", r.TTFT.P50, 0.8)
		near(t, "goodput share", r.Goodput.Share, 1)
	})
}

func TestWarmupIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		e := &engine{ttft: 100 * time.Millisecond}
		n := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if first {
				first = false
				http.Error(w, "cold", http.StatusServiceUnavailable)
				return
			}
			e.ServeHTTP(w, r)
		})
		r := run(t, t.Context(), n, Config{Source: every(time.Second, 5, 1), Warmup: 2 * time.Second})
		if r.Sent != 5 || r.Warmup != 2 || r.OK != 3 || r.Errors != 0 || len(r.ErrorExamples) != 0 {
			t.Errorf("sent %d, warm-up %d, ok %d, errors %d %v", r.Sent, r.Warmup, r.OK, r.Errors, r.ErrorExamples)
		}
		near(t, "duration", r.Duration, 2.1)
	})
}

func TestTargetsAreSprayedBySeedOrInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{}
		n := serve(t, e.ServeHTTP)
		count := func(seed uint64, roundRobin bool) []int {
			r := run(t, t.Context(), n, Config{
				Targets: []string{"http://a", "b:80/v1", "http://c/"}, RoundRobin: roundRobin, Seed: seed,
				Source: every(time.Millisecond, 90, 1),
			})
			var counts []int
			for _, row := range r.TargetRows {
				counts = append(counts, row.Requests)
			}
			if r.OK != 90 {
				t.Errorf("ok %d: %v", r.OK, r.ErrorExamples)
			}
			return counts
		}
		if got := count(1, true); !reflect.DeepEqual(got, []int{30, 30, 30}) {
			t.Errorf("in turn: %v", got)
		}
		a, b, c := count(1, false), count(1, false), count(2, false)
		if !reflect.DeepEqual(a, b) || reflect.DeepEqual(a, c) {
			t.Errorf("seed 1: %v and %v, seed 2: %v", a, b, c)
		}
		for _, n := range a {
			if n < 15 || n > 45 {
				t.Errorf("uneven: %v", a)
			}
		}
	})
}

func TestRoutersPickHeadersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{cached: 40}
		i := 0
		n := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("x-hearsay-debug") == "1" {
				w.Header().Set("x-hearsay-replica", []string{"r1", "r2"}[i%2])
				w.Header().Set("x-hearsay-matched-tokens", []string{"40", "50"}[i%2])
			}
			i++
			e.ServeHTTP(w, r)
		})
		r := run(t, t.Context(), n, Config{Source: every(time.Second, 5, 1), Debug: true})
		if len(r.Replicas) != 2 || r.Replicas[0].Name != "r1" || r.Replicas[0].Requests != 3 || r.Replicas[1].Requests != 2 {
			t.Fatalf("replicas are %+v", r.Replicas)
		}
		near(t, "hit rate of r1", *r.Replicas[0].HitRate, 0.4)
		p := r.Prediction
		if p == nil || p.Requests != 5 || p.PredictedTokens != 220 || p.CachedTokens != 200 {
			t.Fatalf("prediction is %+v", p)
		}
		near(t, "median error", p.ErrorShare.P50, 0)
		near(t, "largest error", p.ErrorShare.Max, 0.1)
		near(t, "bias", p.Bias, 0.1)
		if r := run(t, t.Context(), n, Config{Source: every(time.Second, 2, 1)}); len(r.Replicas) != 0 || r.Prediction != nil {
			t.Errorf("headers that were not asked for: %+v", r.Replicas)
		}
	})
}

type brokenSource struct{ left int }

func (s *brokenSource) Next() (*traces.Request, error) {
	if s.left--; s.left < 0 {
		return nil, errors.New("line 3: bad row")
	}
	return &traces.Request{OutputTokens: 1, Messages: []traces.Message{{Role: "user"}}}, nil
}

func TestABrokenTraceEndsInItsErrorAndAReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := serve(t, (&engine{ttft: time.Second}).ServeHTTP)
		r, err := Run(t.Context(), Config{Targets: []string{"http://a"}, Model: "m", Source: &brokenSource{left: 2}, DialContext: n.dial})
		if err == nil || !strings.Contains(err.Error(), "after 2 requests: line 3: bad row") {
			t.Errorf("error is %v", err)
		}
		if r == nil || r.OK != 2 {
			t.Errorf("report is %+v", r)
		}
	})
}

func TestBadConfigsNameEveryFault(t *testing.T) {
	_, err := Run(t.Context(), Config{Targets: []string{"router", "router:808o", "ftp://x", "http://"}, Endpoint: "embeddings", Speed: -1, Concurrency: -1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`"router"`, "router:808o", "ftp://x", `"http://"`, "model: empty", "no source", "embeddings", "speed: -1", "concurrency: -1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}
