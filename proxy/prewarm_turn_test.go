package proxy

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// peer is a simulated network seen by one of several routers that share what they know.
type peer struct {
	named
	number state.BootID
}

func (w peer) boot() state.BootID { return w.number }

// stays picks as inOrder does, but none that drains or prefills.
type stays struct{ inOrder }

func (p stays) Pick(c *routing.Choice, req *routing.Request, v *state.View, now time.Time) error {
	r := *req
	r.Exclude = slices.Clone(req.Exclude)
	for _, x := range req.Pool.Replicas {
		if x.Draining || x.Load().Prefill > 0 {
			r.Exclude = append(r.Exclude, x.ID)
		}
	}
	return p.inOrder.Pick(c, &r, v, now)
}

// crew is several routers before one pool: e1 has served two hot prefixes, of which all
// keep prompts, and e2 and e3 are empty.
type crew struct {
	rigs  []*rig
	loops []*Prewarm // of rigs

	mu   sync.Mutex
	came []time.Time // guarded by mu: prompts at e2 and e3
}

// newCrew returns n routers; e2 and e3 take that long for a prompt.
func newCrew(t *testing.T, w sim, n int, took time.Duration) *crew {
	t.Helper()
	c := &crew{}
	empty := func(e *engine, in *incoming) bool {
		c.mu.Lock()
		c.came = append(c.came, time.Now())
		c.mu.Unlock()
		return slow(took)(e, in)
	}
	var list []state.Replica
	for i := range n {
		var h []func(*engine, *incoming) bool
		if i == 0 {
			h = handlers(says(jsonAnswer(200, good)), empty, empty)
		}
		sk := &lateSketch{}
		g := newRig(t, peer{named{w, fmt.Sprint("router", i)}, state.BootID(i + 10)}, h, func(cfg *Config, spec *poolSpec) {
			cfg.Core.Prewarm, cfg.Core.Picker, spec.Prewarm = sk, stays{}, 2
		})
		sk.g = g
		for _, e := range g.engines {
			list = append(list, state.Replica{ID: state.ReplicaID(e.name), URL: e.url, Role: state.RoleBoth})
		}
		g.store.SetReplicas(state.SourceStatic, "chat", list)
		c.rigs, c.loops = append(c.rigs, g), append(c.loops, g.srv.Prewarm())
	}
	return c
}

// serve sends each router a chat of both prefixes, which it is told are hot.
func (c *crew) serve(t *testing.T) (hot []state.HotPrefix) {
	t.Helper()
	var bodies []string
	for i := range 2 {
		a, b := agentPrompt(fmt.Sprint("Agent ", i, ". "), "One"), agentPrompt(fmt.Sprint("Agent ", i, ". "), "Two")
		hot, bodies = append(hot, shared(t, c.rigs[0], a, b)), append(bodies, a)
	}
	for _, g := range c.rigs {
		g.weigh("none", hot...)
		for _, b := range bodies {
			time.Sleep(warmLookEvery)
			g.chat(b)
		}
	}
	return hot
}

// gossip tells each router every 10 ms what the others have and sent, and how the
// replicas are, all of it late by delay. It returns how to stop.
func gossip(rigs []*rig, delay time.Duration) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		cursors := make([]uint64, len(rigs))
		for seq := uint64(1); ; seq++ {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			for i, g := range rigs {
				var ops []sketch.Op
				ops, cursors[i], _ = g.index.Journal().Read(cursors[i], 1000)
				rows, sent := rowsOf(g, i, seq), g.store.Clock().Stamp(time.Now())
				wg.Go(func() {
					time.Sleep(delay)
					for _, o := range rigs {
						if o != g {
							o.hear(rows, ops, sent)
						}
					}
				})
				if seq%10 == 1 {
					for _, x := range g.store.View().Pools[0].Replicas {
						g.readBy("router0", x.ID)
					}
				}
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// hear takes in what another router told of itself.
func (g *rig) hear(rows state.Rows, ops []sketch.Op, sent state.Stamp) {
	now := time.Now()
	g.store.Clock().Observe(sent.Boot, sent.At, now)
	g.store.ApplyRows(rows)
	for _, op := range ops {
		if op.Boot == sent.Boot {
			g.index.Apply(op, now)
		}
	}
}

// However late news are, within a turn, one router sends the prompts that a replica
// needs, one after another: the first in order whose loop runs. News that are later
// than turns cost a prompt for each router at most.
func TestOneRouterSendsWhatIsNeeded(t *testing.T) {
	const took = 700 * time.Millisecond
	f := func(name string, drains bool, hung int, late time.Duration, most int) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w wire) {
				c := newCrew(t, w.(sim), 3, took)
				stop := gossip(c.rigs, late)
				hot := c.serve(t)
				time.Sleep(time.Second + late)
				id := state.ReplicaID("e2")
				if drains {
					id = "e1"
				}
				turn := func(p *Prewarm) int { return p.turn(p.s.core.store.View(), id) }
				slices.SortFunc(c.loops, func(a, b *Prewarm) int { return cmp.Compare(turn(a), turn(b)) })
				for _, g := range c.rigs {
					if drains {
						g.store.SetDrain("e1", true, "")
					} else {
						g.weigh("e2", hot...)
					}
				}
				began := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for _, p := range c.loops[hung:] {
					wg.Go(func() { _ = p.Run(ctx) })
				}
				time.Sleep(8 * time.Second)
				cancel()
				wg.Wait()
				stop()
				c.check(t, began, hung, most, took)
			})
		})
	}
	f("warms, news are late", false, 0, 250*time.Millisecond, 2)
	f("drains, news are late", true, 0, 250*time.Millisecond, 2)
	f("warms, the first hangs", false, 1, 50*time.Millisecond, 2)
	f("drains, the first hangs", true, 1, 50*time.Millisecond, 2)
	f("warms, two hang", false, 2, 50*time.Millisecond, 2)
	f("warms, news are later than turns", false, 0, 2*prewarmTakeOver, 6)
}

// check looks at who sent how many of two prompts, and when, if the loops of the first
// routers in order hung.
func (c *crew) check(t *testing.T, began time.Time, hung, most int, took time.Duration) {
	t.Helper()
	if n := len(c.came); n < 2 || n > most {
		t.Errorf("%d prompts came, want 2 to %d", n, most)
		return
	}
	wait, turn := c.came[0].Sub(began), time.Duration(hung)*prewarmTakeOver
	if wait < turn || wait > turn+3*prewarmEvery {
		t.Errorf("the first came after %v, want %v or a little more", wait, turn)
	}
	if most > 2 {
		return
	}
	if apart := c.came[1].Sub(c.came[0]); apart < took {
		t.Errorf("two were under way: the second came %v after the first", apart)
	}
	for i, p := range c.loops {
		want := 0.0
		if i == hung {
			want = 2
		}
		g := c.rigs[slices.IndexFunc(c.rigs, func(g *rig) bool { return g.srv == p.s })]
		if n := g.metric("hearsay_prewarm_requests_total", "result", "served"); n != want {
			t.Errorf("number %d in order has sent %v, want %v", i, n, want)
		}
	}
}

// A prompt that needs an adapter goes to a replica only once that lists it, and names it.
func TestPromptOfAnAdapterWarms(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		var log bytes.Buffer
		g, p := warmRig(t, w, 2, &log, says(jsonAnswer(200, good)), says(jsonAnswer(200, good)))
		lists := func(id state.ReplicaID, names ...string) {
			time.Sleep(10 * time.Millisecond)
			r := state.UnknownReading(id)
			r.OK, r.Reader, r.Adapters, r.AdaptersSum = true, "r1", names, state.SumAdapters(names)
			r.At = g.store.Clock().Stamp(time.Now())
			g.store.ApplyReading(r)
		}
		lists("e1", "a1")
		lists("e2", "other")
		body := func(question string) string { return strings.Replace(agentPrompt("", question), `"llama"`, `"a1"`, 1) }
		a, b := body("One"), body("Two")
		hot := shared(t, g, a, b)
		g.weigh("e2", hot)
		if r := g.chat(a); r.StatusCode != 200 {
			t.Fatalf("%d %s", r.StatusCode, r.body)
		}
		if list := p.kept.of("chat", []state.HotPrefix{hot}); len(list) != 1 || list[0].adapter != "a1" {
			t.Fatalf("kept: %+v", list)
		}
		step := func() []string {
			for p.Step(t.Context(), time.Now()) {
				p.wg.Wait()
			}
			return g.engines[1].got()
		}
		if got := step(); len(got) != 0 {
			t.Errorf("it got %.200q, though it serves no such adapter", got)
		}
		lists("e2", "a1", "other")
		if got := step(); len(got) != 1 || !strings.Contains(got[0], `"model":"a1"`) {
			t.Errorf("it got %.200q, want the adapter's prompt", got)
		}
	})
}
