package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/traces"
)

// What a replica is, and what is promised of it.
const (
	profile    = "h100-70b-tp4"
	chunk      = 2048.0    // prompt tokens of a full step
	kvTokens   = 400_000.0 // enginesim's default for this profile
	mostSeqs   = 256       // streams of a step
	sloTTFT    = 2.0       // s
	sloTPOT    = 0.2       // s
	sloMissed  = 0.01      // share of a minute that may miss either
	patience   = 10.0      // s; a request that would wait longer is refused
	smoothTPOT = 10.0      // s
	grain      = 16        // prompt tokens, of tables
)

// engine says how fast one replica is, and of what length its requests are. It is
// made once and shared.
type engine struct {
	decode  [mostSeqs + 1]float64                           // s, of a step with so many streams alone
	extra   [int(chunk)/grain + 1]float64                   // s, what prompt tokens add to a step, from a single one on
	steps   [rateCells + 1][mostSeqs/streamCell + 2]float64 // s, by rate and streams; see step
	longer  []float64                                       // share of prompts longer than grain times the index
	prompt  float64                                         // mean prompt, tokens
	spread  float64                                         // its standard deviation
	output  float64                                         // mean output, tokens
	context float64                                         // mean context of a stream, tokens
	most    float64                                         // streams that fit
}

func newEngine() (*engine, error) {
	timing, err := enginesim.NewTiming(profile)
	if err != nil {
		return nil, err
	}
	e := &engine{}
	if err := e.lengths(); err != nil {
		return nil, fmt.Errorf("lengths: %w", err)
	}
	e.context = e.prompt + e.output/2
	e.most = min(mostSeqs, kvTokens/e.context)
	step := func(prefill, streams int) float64 {
		l := enginesim.StepLoad{PrefillTokens: prefill, DecodeStreams: streams, DecodeContext: int64(float64(streams) * e.context)}
		return timing.StepTime(l).Seconds()
	}
	for n := range e.decode {
		e.decode[n] = step(0, max(1, n))
	}
	for i := range e.extra {
		e.extra[i] = step(max(1, i*grain), 1) - e.decode[1]
	}
	for i := range e.steps {
		for j := range e.steps[i] {
			e.steps[i][j], _ = e.solve(float64(i*rateCell), float64(j*streamCell))
		}
	}
	return e, nil
}

// lengths takes those of Azure's conversation trace.
func (e *engine) lengths() error {
	t, err := traces.Open(traces.AzureConversation, traces.OpenConfig{})
	if err != nil {
		return err
	}
	defer func() { _ = t.Close() }()
	var prompts []int
	sum, squares, outputs := 0.0, 0.0, 0.0
	for {
		r, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		p := float64(r.InputTokens)
		prompts = append(prompts, r.InputTokens)
		sum, squares, outputs = sum+p, squares+p*p, outputs+float64(r.OutputTokens)
	}
	n := float64(len(prompts))
	e.prompt, e.output = sum/n, outputs/n
	e.spread = sqrt(squares/n - e.prompt*e.prompt)
	slices.Sort(prompts)
	at := 0
	for x := 0; at < len(prompts); x += grain {
		for at < len(prompts) && prompts[at] <= x {
			at++
		}
		e.longer = append(e.longer, 1-float64(at)/n)
	}
	return nil
}

// base is the time of a step with so many streams and no prompt, s.
func (e *engine) base(streams float64) float64 {
	return between(e.decode[:], max(1, streams))
}

// full is how long a step takes that computes as much of prompts as it may, s, and
// how many prompt tokens per second are computed by such steps.
func (e *engine) full(streams float64) (step, rate float64) {
	step = e.base(streams) + e.extra[len(e.extra)-1]
	return step, chunk / step
}

// Cells of the table of steps: prompt tokens/s, and streams.
const (
	rateCell   = 50
	rateCells  = 240
	streamCell = 2
)

// step is solve from a table, as fast as a model of many replica-seconds needs it.
func (e *engine) step(tokens, streams float64) (seconds float64, ok bool) {
	full, rate := e.full(streams)
	x, y := tokens/rateCell, min(streams, mostSeqs)/streamCell
	if tokens >= rate || x >= rateCells {
		return full, false
	}
	if tokens < 1 {
		return e.base(streams), true
	}
	i, j := max(1, int(x)), int(y)
	i = min(i, rateCells-1)
	a, b := &e.steps[i], &e.steps[i+1]
	u, v := max(0, x-float64(i)), y-float64(j)
	return min(full, (1-u)*((1-v)*a[j]+v*a[j+1])+u*((1-v)*b[j]+v*b[j+1])), true
}

// solve is how long a step takes, s, when prompts come at so many tokens per second
// beside so many streams: it computes what came during the one before. ok is false if
// that is more than full steps do.
func (e *engine) solve(tokens, streams float64) (seconds float64, ok bool) {
	base := e.base(streams)
	if tokens < 1 {
		return base, true
	}
	p := 0.0
	for range 12 { // Newton's iteration for p = tokens * step(p)
		at := min(int(p/grain), len(e.extra)-2)
		slope := (e.extra[at+1] - e.extra[at]) / grain
		seconds = base + e.extra[at] + (p-float64(at*grain))*slope
		d := 1 - tokens*slope
		if d <= 0 {
			break
		}
		miss := tokens*seconds - p
		if miss < 0.5 && miss > -0.5 {
			return seconds, true
		}
		if p += miss / d; p >= chunk {
			break
		}
		p = max(0, p)
	}
	seconds, _ = e.full(streams)
	return seconds, false
}

// late is the share of requests that miss the TTFT objective, having waited so long (s)
// on a replica whose full steps compute rate tokens per second and whose step now
// takes as long as given (s).
func (e *engine) late(wait, rate, step float64) float64 {
	tokens := (sloTTFT - wait - step) * rate
	if tokens <= 0 {
		return 1
	}
	if at := int(tokens / grain); at < len(e.longer) {
		return e.longer[at]
	}
	return 0
}

// sustains is the highest rate of requests/s at which one replica holds the objective
// when nothing ever varies.
func (e *engine) sustains() float64 {
	low, high := 0.0, 100.0
	for range 40 {
		mid := (low + high) / 2
		if e.holds(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// rest is how many streams a replica has when that many requests/s come for long.
func (e *engine) rest(rate float64) (streams float64) {
	for range 200 {
		step, _ := e.solve(rate*e.prompt, streams)
		streams = min(rate*e.output*step, e.most)
	}
	return streams
}

func (e *engine) holds(rate float64) bool {
	streams := 0.0
	for range 200 {
		step, ok := e.solve(rate*e.prompt, streams)
		next := rate * e.output * step
		if !ok || next > e.most || step > sloTPOT {
			return false
		}
		if d := next - streams; d < 0.01 && d > -0.01 {
			_, full := e.full(streams)
			return e.late(0, full, step) <= sloMissed
		}
		streams = next
	}
	return false
}

// between interpolates in a table of values at 0, 1, 2 and so on.
func between(table []float64, x float64) float64 {
	at := min(int(x), len(table)-2)
	return table[at] + (x-float64(at))*(table[at+1]-table[at])
}

// seconds is a time of the model as package time has it.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
