package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// pupil keeps what it is taught.
type pupil struct{ samples []routing.Sample }

func (p *pupil) Observe(s routing.Sample) bool {
	p.samples = append(p.samples, s)
	return true
}

func (p *pupil) ObserveOutput(string, int, int) {}

// A time to first token is learned at the first token where next to nothing was expected
// in the cache, once; and again if the engine reports that much was there.
func TestTheFirstTokenTeaches(t *testing.T) {
	const ms = time.Millisecond
	now := time.Now()
	clock := state.NewClock(1, now)
	spec := state.PoolSpec{Name: "chat", Model: "llama", Engine: state.EngineVLLM}
	store := state.NewStore(state.Config{Self: "r1", Clock: clock, Pools: []state.PoolSpec{spec}})
	store.SetReplicas(state.SourceStatic, "chat", []state.Replica{{ID: "e1", URL: "http://e1", Role: state.RoleBoth}})
	index := sketch.New(sketch.Config{Clock: clock, Slots: store.SlotOf})
	var cal pupil
	c, err := NewCore(CoreConfig{
		Store: store, Index: index, Calibration: &cal, Ratios: prefix.NewRatios(16), Now: func() time.Time { return now },
		Picker: routing.NewPicker(routing.Config{}, index, routing.NewCalibration()),
	}, nil)
	must(t, err)
	// f is one streamed request and how much of its prompt the engine says it had; it
	// gives the samples at the first token and at the end.
	f := func(prompt string, cached float64) (first, end []routing.Sample) {
		t.Helper()
		body := []byte(`{"model":"llama","stream":true,"messages":[{"role":"user","content":"` + prompt + `"}]}`)
		ask, err := api.Parse(api.Chat, body)
		must(t, err)
		j, err := c.Admit(&Ask{ID: "x", Request: &ask, Body: body})
		must(t, err)
		defer j.Release()
		cal.samples = nil
		_, err = j.Next()
		must(t, err)
		now = now.Add(200 * ms)
		j.First()
		first, cal.samples = cal.samples, nil
		now = now.Add(900 * ms)
		n := j.pick.PromptTokens
		j.End(&Result{Outcome: OutcomeServed, Streamed: true, HasUsage: true, Last: now, Usage: api.Usage{
			InputTotal: n, InputCached: int(cached * float64(n)), CachedKnown: true, Output: 10, Source: api.Reported,
		}})
		return first, cal.samples
	}
	text := strings.Repeat("all that was said of it so far ", 300)

	first, end := f("new: "+text, 0)
	if len(first) != 1 || first[0].TTFT != 200*ms || first[0].ITL != 0 || first[0].UncachedTokens != first[0].PromptTokens {
		t.Errorf("at the first token of a new prompt: %+v", first)
	}
	if len(end) != 1 || end[0].TTFT != 0 || end[0].ITL != 100*ms {
		t.Errorf("at its end: %+v", end)
	}
	first, end = f("new: "+text+" go on", 0.9)
	if len(first) != 0 {
		t.Errorf("at the first token of one that is expected in the cache: %+v", first)
	}
	if len(end) != 1 || end[0].TTFT != 200*ms || end[0].UncachedTokens > end[0].PromptTokens/5 {
		t.Errorf("at its end: %+v", end)
	}
	first, end = f("unheard of: "+text, 0.9)
	if len(first) != 1 || len(end) != 1 || end[0].TTFT != 200*ms || end[0].UncachedTokens > end[0].PromptTokens/5 {
		t.Errorf("one of which more was there than expected: %+v, then %+v", first, end)
	}
}
