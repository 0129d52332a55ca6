package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/gateway"
	"github.com/hearsay-llm/hearsay/state"
)

// capped is a pool whose replicas take so many requests at a time, picked by the real
// picker. Three keys are known, one of which may claim the highest priority; none is needed.
func capped(limit int, change func(s *poolSpec)) option {
	return func(cfg *Config, s *poolSpec) {
		cfg.Core.Picker = nil
		gated(gateway.Key{Name: "a", Tenant: "a"}, gateway.Key{Name: "b", Tenant: "b"}, gateway.Key{Name: "urgent", Cap: state.BandHigh})(cfg, s)
		s.MaxInFlight, s.QueueWait = limit, 5*time.Second
		s.FirstByteTimeout, s.IdleTimeout = 10*time.Minute, time.Minute
		if change != nil {
			change(s)
		}
	}
}

// urgent is the header of who may claim the highest priority.
const urgent = "Authorization: Bearer urgent"

// idle checks that nothing is left anywhere.
func (g *rig) idle() {
	g.t.Helper()
	until(g.t, "nothing in flight", func() bool { return g.inFlight() == 0 })
	v := g.store.View()
	for _, p := range v.Pools {
		if b := p.OwnBacklog(); b.Requests != 0 || b.Tokens != 0 {
			g.t.Errorf("left in the queue: %+v", b)
		}
		if n := g.srv.core.queues.of(p.Spec.Name, g.srv.metrics).Len(); n != 0 {
			g.t.Errorf("%d entries left in the queue", n)
		}
	}
	if n := g.metric("hearsay_queue_requests"); n != 0 {
		g.t.Errorf("hearsay_queue_requests is %v", n)
	}
}

// waiting waits until so many requests are in the queue.
func (g *rig) waiting(n int64) {
	g.t.Helper()
	until(g.t, fmt.Sprint(n, " in the queue"), func() bool { return g.store.View().Pool("llama").OwnBacklog().Requests == n })
}

// An answer of a second's work.
func slow(d time.Duration) func(*engine, *incoming) bool {
	return after(d, says(jsonAnswer(200, good)))
}

func TestQueueExpires(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(slow(20*time.Second)), capped(1, nil))
		var wg sync.WaitGroup
		wg.Go(func() {
			if r := g.chat(ask); r.StatusCode != 200 {
				t.Errorf("the first: %d %q", r.StatusCode, r.body)
			}
		})
		until(t, "it runs", func() bool { return g.inFlight() == 1 })
		f := func(name, path string, wait time.Duration, shape string, fields ...string) {
			wg.Go(func() {
				began := time.Now()
				r := g.do(post(path, strings.Replace(ask, `"model"`, `"max_tokens":5,"model"`, 1), fields...))
				after, _ := strconv.Atoi(r.Header.Get("Retry-After"))
				if took := time.Since(began); r.StatusCode != 429 || took < wait || took > wait+100*time.Millisecond || after < 1 || after > 60 || !strings.Contains(r.body, shape) {
					t.Errorf("%s: %d after %v, Retry-After %d, %q", name, r.StatusCode, took, after, r.body)
				}
			})
		}
		f("as the pool has it", "/v1/chat/completions", 5*time.Second, `"code":"overloaded"`)
		f("messages", "/v1/messages", 5*time.Second, `"type":"rate_limit_error"`)
		f("shorter", "/v1/chat/completions", 1500*time.Millisecond, `"code":"overloaded"`, "X-Hearsay-Max-Wait: 1.5")
		f("shorter by its unit", "/v1/chat/completions", 300*time.Millisecond, `"code":"overloaded"`, "X-Hearsay-Max-Wait: 300ms")
		f("not at all", "/v1/chat/completions", 0, `"code":"overloaded"`, "X-Hearsay-Max-Wait: 0")
		f("longer", "/v1/chat/completions", 5*time.Second, `"code":"overloaded"`, "X-Hearsay-Max-Wait: 10m")
		wg.Wait()
		if n := g.metric("hearsay_shed_total", "reason", "queue_timeout"); n != 6 {
			t.Errorf("%v shed", n)
		}
		if n := g.metric("hearsay_queue_wait_seconds"); n != 6 {
			t.Errorf("%v waits observed", n)
		}
		g.idle()
	})
}

// What waited is served in turn, and everybody sees that it waited.
func TestQueueServes(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(slow(time.Second), slow(time.Second)), capped(2, func(s *poolSpec) { s.QueueWait = time.Minute }))
		var wg sync.WaitGroup
		began := time.Now()
		for i := range 12 {
			wg.Go(func() {
				id := "q" + strconv.Itoa(i)
				r := g.chat(ask, "x-request-id: "+id, "x-hearsay-debug: 1")
				if r.StatusCode != 200 {
					t.Errorf("%d %q", r.StatusCode, r.body)
				}
				waited := time.Since(began) - time.Second
				ms, _ := strconv.Atoi(r.Header.Get("x-hearsay-queued-ms"))
				if d := time.Duration(ms)*time.Millisecond - waited; waited > 100*time.Millisecond && d.Abs() > 50*time.Millisecond {
					t.Errorf("waited %v, told %d ms", waited, ms)
				}
				if p := g.srv.Picks().Of(id); len(p) != 1 || p[0].Queued.Milliseconds() != int64(ms) {
					t.Errorf("its picks: %+v", p)
				}
			})
		}
		g.waiting(8)
		if n := g.metric("hearsay_queue_requests", "band", "normal"); n != 8 {
			t.Errorf("hearsay_queue_requests is %v", n)
		}
		wg.Wait()
		if took := time.Since(began); took < 3*time.Second || took > 3200*time.Millisecond {
			t.Errorf("took %v, want three rounds of a second", took)
		}
		g.idle()
	})
}

// A stream's client hears comments while it waits, is served behind them, or told why
// not.
func TestHeartbeatsInTheQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(after(2500*time.Millisecond, streams(role, word, finish, done))), capped(1, func(s *poolSpec) {
			s.Heartbeat, s.QueueWait = time.Second, 3500*time.Millisecond
		}))
		var wg sync.WaitGroup
		f := func(beats int, end string) {
			wg.Go(func() {
				h := g.listen(askStream)
				if h.StatusCode != 200 || len(h.beats) != beats || !strings.HasSuffix(h.rest, end) {
					t.Errorf("%d, comments at %v, want %d, %q", h.StatusCode, h.beats, beats, h.rest)
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		f(2, done)
		f(4, done)
		f(3, `"code":"overloaded"}}`+"\n\n") // its time is over
		wg.Wait()
		if n := g.metric("hearsay_shed_total", "reason", "queue_timeout"); n != 1 {
			t.Errorf("%v shed", n)
		}
		g.idle()
	})
}

// C44 in the queue: whatever ends a request, nothing is left of it.
func TestC44NothingIsLeftInTheQueue(t *testing.T) {
	over(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(func(e *engine, in *incoming) bool {
			switch b := string(in.body); {
			case strings.Contains(b, "reset"):
				return false
			case strings.Contains(b, "broken"):
				_ = in.write(streamHead + chunk(role) + chunk(word))
				return false
			case strings.Contains(b, "status"):
				return in.write(jsonAnswer(500, `{"error":{"message":"no"}}`)) == nil
			case strings.Contains(b, "refused"):
				return in.write(jsonAnswer(400, `{"error":{"message":"no"}}`)) == nil
			case strings.Contains(b, "odd"):
				return in.write(jsonAnswer(200, strings.Replace(good, `"usage":{`, `"usage":"x","y":{`, 1))) == nil
			case strings.Contains(b, "hang"):
				in.gone()
				return false
			case strings.Contains(b, "long"):
				<-time.After(300 * time.Millisecond)
			}
			return in.write(jsonAnswer(200, good)) == nil
		}), capped(2, func(s *poolSpec) {
			s.QueueWait, s.QueueRequests, s.FirstByteTimeout = 600*time.Millisecond, 12, 400*time.Millisecond
		}))
		var wg sync.WaitGroup
		send := func(word string, leave time.Duration, fields ...string) {
			wg.Go(func() {
				c := g.conn()
				defer func() { _ = c.Close() }()
				body := strings.Replace(ask, "Hello there", word, 1)
				if word == "broken" {
					body = strings.Replace(askStream, "Hello there", word, 1)
				}
				if _, err := io.WriteString(c, post("/v1/chat/completions", body, fields...)); err != nil {
					t.Error(err)
				}
				if leave > 0 {
					<-time.After(leave)
					return
				}
				if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
					t.Errorf("%s: %v", word, err)
				} else {
					_, _ = io.ReadAll(resp.Body)
				}
			})
		}
		for round := range 3 {
			for _, x := range []string{"reset", "broken", "status", "refused", "odd", "hang", "long", "fine"} {
				send(x, 0)
				send(x, 0, "X-Priority: high", urgent)
				send("long", 100*time.Millisecond, "X-Priority: "+[]string{"low", "high"}[round%2], urgent)
			}
		}
		wg.Wait()
		g.idle()
		// Ones that leave while they wait: on a busy machine none of those above did.
		left := func() float64 { return g.metric("hearsay_client_disconnects_total", "phase", "queued") }
		for range 20 {
			if left() > 0 {
				break
			}
			for range 3 {
				send("hang", 0)
				send("long", 100*time.Millisecond)
			}
			wg.Wait()
			g.idle()
		}
		sum := 0.0
		for _, reason := range []string{"queue_full", "displaced", "queue_timeout"} {
			sum += g.metric("hearsay_shed_total", "reason", reason)
		}
		if sum == 0 || left() == 0 {
			t.Errorf("%v were refused, %v left: the test shows nothing", sum, left())
		}
		began := time.Now()
		for range 4 {
			wg.Go(func() {
				if r := g.chat(ask); r.StatusCode != 200 {
					t.Errorf("afterwards: %d %q", r.StatusCode, r.body)
				}
			})
		}
		wg.Wait()
		if _, ok := w.(sim); ok && time.Since(began) > 100*time.Millisecond {
			t.Errorf("afterwards four took %v", time.Since(began))
		}
		g.idle()
	})
}

// C74: interactive work waits for little more than the next free place, batches get
// their least share meanwhile and the rest afterwards.
func TestC74Priority(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		const service = 2 * time.Second
		g := newRig(t, w, handlers(slow(service), slow(service)), capped(4, nil))
		var wg sync.WaitGroup
		var mu sync.Mutex
		var longest time.Duration
		var batch []time.Duration // when batches were served
		expired := 0
		began := time.Now()
		low := func() {
			wg.Go(func() {
				sent := time.Now()
				r := g.chat(ask, "X-Priority: low", "X-Hearsay-Max-Wait: 1h")
				mu.Lock()
				defer mu.Unlock()
				switch r.StatusCode {
				case 200:
					batch = append(batch, time.Since(began))
				case 429:
					if expired++; r.Header.Get("Retry-After") == "" || time.Since(sent) > 5100*time.Millisecond {
						t.Errorf("expired after %v: %v", time.Since(sent), r.Header)
					}
				default:
					t.Errorf("batch: %d %q", r.StatusCode, r.body)
				}
			})
		}
		for range 200 {
			low()
		}
		// A batch's clients come again; 3 interactive requests a second of 4 that there is
		// room for.
		for i := range 180 {
			time.Sleep(time.Second / 3)
			wg.Go(func() {
				sent := time.Now()
				r := g.chat(ask, "X-Priority: high", urgent)
				mu.Lock()
				defer mu.Unlock()
				if longest = max(longest, time.Since(sent)); r.StatusCode != 200 {
					t.Errorf("interactive: %d %q", r.StatusCode, r.body)
				}
			})
			if i%2 == 0 {
				low()
				low()
			}
		}
		mu.Lock()
		during := len(batch)
		if longest > 2*service+200*time.Millisecond {
			t.Errorf("interactive work took up to %v", longest)
		}
		mu.Unlock()
		time.Sleep(5 * time.Second) // what waits now is gone
		mu.Lock()
		began, batch = time.Now(), nil
		mu.Unlock()
		for range 20 {
			low()
		}
		wg.Wait()
		// 60 s of 4 a second: at least a tenth, and what was left of the room.
		if during < 24 || during > 100 || expired == 0 {
			t.Errorf("%d batches served meanwhile, %d expired", during, expired)
		}
		if len(batch) < 16 {
			t.Errorf("%d batches served afterwards: %v", len(batch), batch)
		}
		g.idle()
	})
}
