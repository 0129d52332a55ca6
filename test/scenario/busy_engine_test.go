package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// An engine prefills for a minute and answers no reading, while its streams move on:
// it is busy, not dead.
func TestBusyEngineMissesItsReadings(t *testing.T) {
	t.Parallel()
	f := func(name string, engines int, body func(t *testing.T, b *harness.Bubble, busy *harness.Engine)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			harness.InBubble(t, harness.BubbleConfig{Routers: 2, Engines: engines, Delay: time.Millisecond, PoolFile: patient}, func(t *testing.T, b *harness.Bubble) {
				running := map[state.ReplicaID]*harness.Stream{}
				for i := 0; len(running) < engines; i++ {
					s := b.Open(i%2, streamed(chat("Be long.", words(fmt.Sprint("run", i), 20), 100000)).Body())
					s.Next()
					if running[s.Replica] != nil {
						s.Close()
						continue
					}
					running[s.Replica] = s
				}
				long := b.Open(1, streamed(chat("Read this.", words("long", 60000), 5)).Body())
				var busy *harness.Engine
				b.Within(time.Second, "the long prompt at an engine", func() error {
					for _, e := range b.Engines() {
						if b.Router(1).Replica(e.ID).Load().Prefill > 0 {
							busy = e
							return nil
						}
					}
					return errors.New("nowhere")
				})
				time.Sleep(200 * time.Millisecond) // a reading sees it
				stream := running[busy.ID]
				seen := len(stream.Events)
				busy.Fault(enginesim.Fault{Kind: enginesim.FaultSlow, Factor: 10, Duration: time.Minute})
				busy.Fault(enginesim.Fault{Kind: enginesim.FaultHangMetrics, Duration: time.Minute})
				until := time.Now().Add(time.Minute)
				body(t, b, busy)
				time.Sleep(time.Until(until))
				for range 100 {
					stream.Next()
				}
				if len(stream.Events) < seen+100 || stream.Err != nil {
					t.Errorf("the running stream was cut: %v", stream.Reply)
				}
				for long.Next() {
				}
				if !long.OK() {
					t.Errorf("the long prompt: %v", long.Reply)
				}
				for _, s := range running {
					s.Close()
				}
				b.WaitReady() // and then all is fine
			})
		})
	}
	f("one missed reading changes nothing", 2, func(t *testing.T, b *harness.Bubble, busy *harness.Engine) {
		for range 1400 {
			time.Sleep(time.Millisecond)
			for _, r := range b.Routers() {
				if v := r.Replica(busy.ID); !v.Reading.OK || v.Reading.Running+v.Reading.Waiting < 1 {
					t.Fatalf("%s lost its figures: %+v", r.Name, v.Reading)
				}
			}
		}
	})
	f("alone", 1, func(t *testing.T, b *harness.Bubble, _ *harness.Engine) {
		var asked []*harness.Stream
		for i := range 4 {
			time.Sleep(10 * time.Second)
			asked = append(asked, b.Open(i%2, streamed(chat("Be brief.", words(fmt.Sprint("alone", i), 200), 5)).Body()))
		}
		for _, s := range asked {
			for s.Next() {
			}
			ok(t, s.Reply)
		}
	})
	f("with another", 2, func(t *testing.T, b *harness.Bubble, busy *harness.Engine) {
		for i := range 4 {
			time.Sleep(10 * time.Second)
			if r := ok(t, b.Chat(i%2, streamed(chat("Be brief.", words(fmt.Sprint("other", i), 200), 5)))); r.Replica == busy.ID {
				t.Errorf("request %d went to the busy engine", i)
			}
		}
	})
}

// patient has requests wait for longer than the longest prompt takes.
func patient(p *node.PoolConfig) { p.Queue.MaxWait = 2 * time.Minute }

// One that loads says so: it is not ready, and not dead.
func TestLoadingEngine(t *testing.T) {
	t.Parallel()
	loading := enginesim.Fault{Kind: enginesim.FaultLoading, Duration: 20 * time.Second}
	for _, kind := range []enginesim.Kind{enginesim.VLLM, enginesim.LlamaCpp} {
		cfg := harness.BubbleConfig{Routers: 2, Engines: 2, Delay: time.Millisecond}
		cfg.Engine = enginesim.DefaultConfig()
		cfg.Engine.Kind = kind
		t.Run(string(kind)+", with another", func(t *testing.T) {
			harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
				b.Engine(0).Fault(loading)
				time.Sleep(time.Second)
				for i := range 10 {
					if r := ok(t, b.Chat(i%2, chat("Be brief.", words(fmt.Sprint("load", i), 100), 5))); r.Replica == b.Engine(0).ID {
						t.Errorf("request %d went to an engine that loads", i)
					}
				}
				for _, r := range b.Routers() {
					if v := r.Replica(b.Engine(0).ID); !v.Reading.Loading || !v.DownSince.IsZero() {
						t.Errorf("%s: %+v, down since %v", r.Name, v.Reading, v.DownSince)
					}
				}
				time.Sleep(20 * time.Second)
				b.WaitReady()
			})
		})
		cfg.Engines = 1
		t.Run(string(kind)+", alone", func(t *testing.T) {
			harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
				b.Engine(0).Fault(loading)
				for i := range 4 {
					time.Sleep(time.Second)
					r := b.Chat(i%2, chat("Be brief.", "Hello.", 5))
					after, err := strconv.Atoi(r.Header.Get("Retry-After"))
					if r.Status != 503 || err != nil || after < 1 || !json.Valid(r.Body) || !strings.Contains(r.Header.Get("Content-Type"), "json") {
						t.Errorf("request %d: %v, headers %v", i, r, r.Header)
					}
				}
				time.Sleep(20 * time.Second)
				b.WaitReady()
				ok(t, b.Chat(0, chat("Be brief.", "Hello.", 5)))
			})
		})
	}
}

// Each idle engine has one reader, and its readings stay fresh everywhere. (A hundred
// engines and ten routers, counted: package observe.)
func TestIdleEnginesHaveFewReaders(t *testing.T) {
	t.Parallel()
	const seconds = 5
	harness.InBubble(t, harness.BubbleConfig{Routers: 5, Engines: 20, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		time.Sleep(3 * time.Second)
		readers := map[string]map[string]bool{}
		for range seconds * 20 {
			time.Sleep(50 * time.Millisecond)
			for _, e := range b.Engines() {
				v := b.Router(0).Replica(e.ID)
				if !v.Fresh(time.Now()) || time.Since(v.ReadingAt) > time.Second {
					t.Fatalf("%s: a reading of %v", e.Name, time.Since(v.ReadingAt))
				}
				if readers[e.Name] == nil {
					readers[e.Name] = map[string]bool{}
				}
				readers[e.Name][string(v.Reading.Reader)] = true
			}
		}
		for name, set := range readers {
			if len(set) > 1 {
				t.Errorf("%s has %d readers", name, len(set))
			}
		}
	})
}
