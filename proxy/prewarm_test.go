package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// lateSketch is the rig's index, which is made after its options were applied.
type lateSketch struct{ g *rig }

func (l *lateSketch) Lookup(dst []sketch.Match, marks []prefix.Mark, slots []state.Slot, now time.Time) {
	l.g.index.Lookup(dst, marks, slots, now)
}

// warmRig is a rig whose pool keeps up to n prompts.
func warmRig(t *testing.T, w wire, n int, log *bytes.Buffer, h ...func(*engine, *incoming) bool) (*rig, *Prewarm) {
	sk := &lateSketch{}
	g := newRig(t, w, h, func(cfg *Config, spec *poolSpec) {
		cfg.Core.Prewarm, spec.Prewarm = sk, n
		cfg.Logger = zerolog.New(log)
	})
	sk.g = g
	return g, g.srv.Prewarm()
}

// marksOf are the marks of a tenant's chat.
func marksOf(t *testing.T, g *rig, tenant, body string) []prefix.Mark {
	t.Helper()
	r, err := api.Parse(api.Chat, []byte(body))
	must(t, err)
	j, err := g.srv.Core().Admit(&Ask{Request: &r, Body: []byte(body), Tenant: tenant})
	must(t, err)
	defer j.Release()
	return slices.Clone(j.marks)
}

// shared is the deepest mark of both chats.
func shared(t *testing.T, g *rig, a, b string) state.HotPrefix {
	t.Helper()
	return sharedBy(t, g, "", a, b)
}

// sharedBy is shared for chats of a tenant.
func sharedBy(t *testing.T, g *rig, tenant, a, b string) state.HotPrefix {
	t.Helper()
	other := marksOf(t, g, tenant, b)
	for _, m := range slices.Backward(marksOf(t, g, tenant, a)) {
		if slices.ContainsFunc(other, func(o prefix.Mark) bool { return o.Hash == m.Hash }) {
			return state.HotPrefix{Mark: m.Hash, Share: 1}
		}
	}
	t.Fatal("they share nothing")
	return state.HotPrefix{}
}

// weigh publishes what is hot, and that a replica is being warmed.
func (g *rig) weigh(warming state.ReplicaID, hot ...state.HotPrefix) {
	now := time.Now()
	g.store.SetWeights(&state.Weights{
		At: now, Pools: map[string]state.PoolBalance{"chat": {Prewarm: hot}},
		Replicas: map[state.ReplicaID]state.Weight{warming: {Slow: 1, Warming: true, WarmFrom: now}},
	})
}

// outrank adds a live router whose turn it is before this one's.
func (g *rig) outrank(p *Prewarm, id state.ReplicaID) {
	for i := 0; i < 64 && p.turn(g.store.View(), id) == 0; i++ {
		g.store.ApplyRows(state.Rows{Router: state.RouterID(fmt.Sprint("other", i)), Boot: state.BootID(100 + i), Seq: 1, Full: true})
	}
}

// readBy says which router read a replica last.
func (g *rig) readBy(reader state.RouterID, id state.ReplicaID) {
	r := state.UnknownReading(id)
	r.OK, r.Reader, r.At = true, reader, g.store.Clock().Stamp(time.Now())
	g.store.ApplyReading(r)
}

func (e *engine) got() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.bodies)
}

func TestPromptThatWarms(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		var log bytes.Buffer
		picky := func(_ *engine, in *incoming) bool {
			if strings.Contains(string(in.body), `"priority"`) {
				return in.write(jsonAnswer(400, `{"error":{"message":"no priorities here"}}`)) == nil
			}
			return in.write(jsonAnswer(200, good)) == nil
		}
		g, p := warmRig(t, w, 2, &log, says(jsonAnswer(200, good)), picky)
		long, short := agentPrompt("", strings.Repeat("Long question. ", 50)), agentPrompt("", "Short one")
		short = `{"stream_options":{"include_usage":true},"stream":true,"max_completion_tokens":77,"min_tokens":5,` + short[1:]
		hot := shared(t, g, long, short)
		g.weigh("none", hot)
		for _, body := range []string{long, short, long} {
			time.Sleep(time.Second)
			g.chat(body)
		}
		served, counted := g.metric("hearsay_requests_total"), g.metric("hearsay_tokens_total")
		step := func() []string {
			g.readBy("r1", "e2")
			for p.Step(t.Context(), time.Now()) {
				p.wg.Wait()
			}
			return g.engines[1].got()
		}
		var told []Prewarmed
		g.srv.cfg.Core.Prewarmed = func(x Prewarmed) { told = append(told, x) }
		g.weigh("e2", hot)
		g.outrank(p, "e2")
		for range 2 {
			if n := len(step()); n != 0 {
				t.Errorf("%d prompts were sent, though it is another router's turn", n)
			}
			time.Sleep(prewarmTakeOver - time.Millisecond)
		}
		time.Sleep(time.Second)
		got := step()
		if len(got) != 2 || !strings.Contains(got[0], `"priority":100`) {
			t.Fatalf("it got %q, want one with a priority and one without", got)
		}
		var sent map[string]any
		must(t, json.Unmarshal([]byte(got[1]), &sent))
		if sent["stream"] != false || sent["max_completion_tokens"] != 1.0 || sent["stream_options"] != nil || sent["min_tokens"] != nil ||
			sent["priority"] != nil || !strings.Contains(got[1], "Short one") {
			t.Errorf("sent %.200s", got[1])
		}
		if id := g.engines[1].heads[1].Get("X-Request-Id"); !strings.HasPrefix(id, "prewarm-") {
			t.Errorf("request id %q", id)
		}
		if a, b := g.metric("hearsay_requests_total"), g.metric("hearsay_tokens_total"); a != served || b != counted {
			t.Errorf("it counts as a client's: %v requests, %v tokens more", a-served, b-counted)
		}
		if n := g.metric("hearsay_prewarm_requests_total", "pool", "chat", "result", "served"); n != 1 {
			t.Errorf("%v are counted", n)
		}
		if len(told) != 1 || told[0].Replica != "e2" || told[0].Pool != "chat" || told[0].Outcome != "served" || told[0].Tokens < 100 || told[0].From != "" {
			t.Errorf("told: %+v", told)
		}
		if n := g.metric("hearsay_prewarm_tokens_total", "pool", "chat"); n < 100 {
			t.Errorf("%v tokens are counted", n)
		}
		if r := g.reports.take(); !strings.HasSuffix(r, "e2 served") {
			t.Errorf("reported: %s", r)
		}
		if there, _, _ := p.holders(g.store.View().Pools[0], g.store.View().Replica("e2"), &warmPrompt{mark: hot.Mark}, time.Now()); !there {
			t.Error("nobody knows that it holds the prefix")
		}
		if n := len(step()); n != 2 {
			t.Error("it is sent again in the same warming")
		}
		time.Sleep(time.Second)
		g.weigh("e2", hot)
		if n := len(step()); n != 2 {
			t.Error("what it holds is sent again")
		}
		if !strings.Contains(log.String(), "replica was warmed") || strings.Contains(log.String(), "Rule 1") || strings.Contains(log.String(), "Short one") {
			t.Errorf("log: %s", log.String())
		}
	})
}

func TestPromptsToWarmWithAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		var log bytes.Buffer
		g, p := warmRig(t, w, 2, &log, says(jsonAnswer(200, good)))
		var hot []state.HotPrefix
		var bodies []string
		for i := range 4 {
			a, b := agentPrompt(fmt.Sprint("Agent ", i, ". "), "One"), agentPrompt(fmt.Sprint("Agent ", i, ". "), "Two")
			hot, bodies = append(hot, shared(t, g, a, b)), append(bodies, a)
		}
		send := func(bodies ...string) {
			for _, b := range bodies {
				time.Sleep(time.Second)
				g.chat(b)
			}
		}
		kept := func() int { return len(p.kept.of("chat", hot)) }
		send(bodies...)
		if kept() != 0 {
			t.Error("kept while nothing is hot")
		}
		g.weigh("none", hot[:2]...)
		send(bodies...)
		if kept() != 2 {
			t.Errorf("%d kept, want the two that are hot", kept())
		}
		g.weigh("none", hot[1], hot[2])
		send(bodies...)
		if list := p.kept.of("chat", hot); len(list) != 2 || list[0].mark != hot[1].Mark || list[1].mark != hot[2].Mark {
			t.Errorf("%d kept, want the two that are hot now", len(list))
		}
		if k := p.kept.pools["chat"]; k.bytes != p.kept.bytes || k.bytes != len(bodies[1])+len(bodies[2]) {
			t.Errorf("%d bytes of %d are counted", k.bytes, p.kept.bytes)
		}

		// Not kept: what is too large, and what is answered in ways of its own.
		large := agentPrompt("Agent 3. ", strings.Repeat("x", warmBytes))
		several := `{"n":2,` + agentPrompt("Agent 3. ", "n")[1:]
		g.weigh("none", hot[3])
		send(large, several)
		if len(p.kept.of("chat", hot[3:])) != 0 {
			t.Error("kept what must not be")
		}

		// What is no longer hot goes, and all of a pool that is gone.
		p.Step(t.Context(), time.Now())
		time.Sleep(warmCool)
		p.Step(t.Context(), time.Now())
		if kept() != 0 || p.kept.bytes != 0 {
			t.Errorf("%d are kept, %d bytes, a minute after", kept(), p.kept.bytes)
		}
		send(bodies[3])
		spec := g.store.View().Pools[0].Spec
		if kept() != 1 {
			t.Fatal("not kept")
		}
		g.store.SetPools(nil)
		p.Step(t.Context(), time.Now())
		if len(p.kept.pools) != 0 || p.kept.bytes != 0 {
			t.Error("prompts of a pool that is gone are kept")
		}
		g.store.SetPools([]poolSpec{spec})
	})
}

// Whatever a replica does with a prompt that warms, it ends, and is counted.
func TestPromptsThatWarmInVain(t *testing.T) {
	f := func(name string, result Outcome, within time.Duration, sent int, h func(*engine, *incoming) bool) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w wire) {
				var log bytes.Buffer
				g, p := warmRig(t, w, 3, &log, says(jsonAnswer(200, good)), h)
				var hot []state.HotPrefix
				for i := range 3 {
					a, b := agentPrompt(fmt.Sprint("Agent ", i, ". "), "One"), agentPrompt(fmt.Sprint("Agent ", i, ". "), "Two")
					hot = append(hot, shared(t, g, a, b))
					g.weigh("e2", hot...)
					g.chat(a)
					time.Sleep(time.Second)
				}
				g.srv.Core().noPriority.add(g.store.View().Replica("e2").URL)
				g.weigh("e2", hot...)
				g.readBy("r1", "e2")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began := time.Now()
				for p.Step(ctx, time.Now()) {
					if result == OutcomeAborted {
						time.Sleep(time.Second)
						cancel()
					}
					p.wg.Wait()
				}
				if took := time.Since(began); took > within {
					t.Errorf("it took %v", took)
				}
				if n := len(g.engines[1].got()); n != sent {
					t.Errorf("%d prompts were sent, want %d", n, sent)
				}
				if n := g.metric("hearsay_prewarm_requests_total", "result", result.String()); n != float64(sent) {
					t.Errorf("%v are counted as %s, want %d", n, result, sent)
				}
				if there, _, _ := p.holders(g.store.View().Pools[0], g.store.View().Replica("e2"), &warmPrompt{mark: hot[0].Mark}, time.Now()); there {
					t.Error("it is taken to hold what it did not take")
				}
				if kept := len(p.kept.of("chat", hot)); result == OutcomeRejected && kept != 0 {
					t.Errorf("%d prompts that are refused are kept", kept)
				}
			})
		})
	}
	f("hangs", OutcomeTimeout, state.MaxWarming+time.Second, 1, func(e *engine, in *incoming) bool { e.waitGone(in); return false })
	f("hangs, and the router stops", OutcomeAborted, 2*time.Second, 1, func(e *engine, in *incoming) bool { e.waitGone(in); return false })
	f("fails", OutcomeFailed, time.Second, 2, says(jsonAnswer(500, `{}`)))
	f("says nonsense", OutcomeFailed, time.Second, 2, says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnot JSON!"))
	f("is busy", OutcomeBusy, time.Second, 1, says(jsonAnswer(503, `{}`)))
	f("refuses", OutcomeRejected, time.Second, 3, says(jsonAnswer(404, `{"error":{"message":"no"}}`)))
}
