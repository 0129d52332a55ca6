package scenario

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// atOnce is the most requests that an engine had at a time.
func atOnce(e *harness.Engine) (most int) {
	type edge struct {
		at time.Time
		by int
	}
	var edges []edge
	for _, r := range e.Record().Requests {
		edges = append(edges, edge{r.Arrival, 1}, edge{r.End, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.by - b.by // ends first
	})
	n := 0
	for _, x := range edges {
		n += x.by
		most = max(most, n)
	}
	return most
}

// K04: a cap holds over routers that decide alone, whoever gets the burst, and
// everybody is served.
func TestCapOverRouters(t *testing.T) {
	t.Parallel()
	const limit, burst = 8, 200
	f := func(name string, engines int, router func(i int) int) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			cfg := harness.BubbleConfig{Routers: 4, Engines: engines, Delay: time.Millisecond, Engine: enginesim.DefaultConfig(), PoolFile: func(p *node.PoolConfig) {
				n := limit
				p.Queue = node.QueueConfig{MaxWait: time.Minute, MaxInflight: &n}
			}}
			harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
				var wg sync.WaitGroup
				waited := make([]time.Duration, burst)
				for i := range burst {
					wg.Go(func() {
						r := b.Do(router(i), streamed(chat("Be brief.", words(fmt.Sprint("cap", i), 50), 16)).Body())
						if !r.OK() {
							t.Errorf("request %d: %v", i, r)
						}
						waited[i] = r.TTFT()
					})
				}
				wg.Wait()
				for _, e := range b.Engines() {
					if n := atOnce(e); n > limit*5/4 || n < limit {
						t.Errorf("%s had %d requests at once, with a cap of %d", e.ID, n, limit)
					}
				}
				// What the caps allow, and some for the change of hands.
				rounds := (burst + limit*engines - 1) / (limit * engines)
				if longest := slices.Max(waited); longest > time.Duration(rounds)*1500*time.Millisecond {
					t.Errorf("somebody waited for %v, with %d rounds", longest, rounds)
				}
				b.Idle(time.Second)
				for _, r := range b.Routers() {
					v := r.Node().View()
					if x := v.Backlog(v.Pools[0]); x.Requests != 0 || x.Tokens != 0 {
						t.Errorf("%s: %+v is left in the queues", r.Name, x)
					}
				}
			})
		})
	}
	f("even", 2, func(i int) int { return i % 4 })
	f("one router alone", 2, func(int) int { return 2 })
	f("one router has most", 1, func(i int) int { return max(0, i%40-36) })
}

// K10: without replicas a request is held and never 404 or 429.
func TestHeldForAFirstReplica(t *testing.T) {
	t.Parallel()
	hold := 20 * time.Second
	cfg := harness.BubbleConfig{Routers: 2, Engines: 1, Delay: time.Millisecond, PoolFile: func(p *node.PoolConfig) {
		p.Queue.Hold = &hold
	}}
	harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
		body := chat("Be brief.", words("held", 20), 4).Body()
		drain := func(on bool) {
			act := map[bool]string{true: "/drain", false: "/undrain"}[on]
			if status, err := b.Router(0).Admin("POST", "/admin/v1/replicas/"+string(b.Engine(0).ID)+act, nil, nil); err != nil || status >= 300 {
				t.Fatalf("%s: %d %v", act, status, err)
			}
			time.Sleep(time.Second)
		}
		drain(true)
		began := time.Now()
		r := b.Do(0, body)
		if took := time.Since(began); r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" || took < hold || took > hold+time.Second ||
			!strings.Contains(string(r.Body), "draining") {
			t.Errorf("after %v: %v", took, r)
		}
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				if r := b.Do(i%2, body); !r.OK() {
					t.Errorf("held: %v", r)
				}
			})
		}
		time.Sleep(10 * time.Second)
		b.Within(time.Second, "all wait", func() error {
			v := b.Router(0).Node().View()
			if x := v.Backlog(v.Pools[0]); x.Requests != 10 {
				return errors.New(fmt.Sprint(x))
			}
			return nil
		})
		drain(false)
		began = time.Now()
		wg.Wait()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("served %v after a replica was there", took)
		}
	})
}
