package enginesim

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// StepLoad is what one engine step computes.
type StepLoad struct {
	PrefillTokens int // prompt tokens computed in the step, over all requests
	// PrefillPairs sums, over the prefill chunks, chunk length times the tokens
	// already in the cache before the chunk: the attention to earlier context.
	PrefillPairs  int64
	DecodeStreams int   // requests that compute exactly one token and emit one
	DecodeContext int64 // sum of the context lengths of those streams, tokens
}

// Timing says how long an engine step takes. Implementations are immutable.
type Timing interface {
	StepTime(StepLoad) time.Duration
}

// SimpleTiming is for schedules computed by hand:
// Base + PrefillTokens/PrefillTokensPerSecond + DecodeStreams*PerStream.
type SimpleTiming struct {
	PrefillTokensPerSecond float64       // > 0
	Base                   time.Duration // of every step
	PerStream              time.Duration // of each decoding stream
}

// StepTime implements Timing.
func (t SimpleTiming) StepTime(l StepLoad) time.Duration {
	prefill := time.Duration(math.Round(float64(l.PrefillTokens) / t.PrefillTokensPerSecond * 1e9))
	return t.Base + prefill + time.Duration(l.DecodeStreams)*t.PerStream
}

// curve is a Timing measured on real hardware. With T the prefill time of n
// tokens in one step and D the step time of b decoding streams:
//
//	no prefill:   D(b) + contextMs
//	with prefill: T(n) + (D(b) - D(1)) + contextMs      (one pass over the weights serves both)
//
// T depends on the tokens of the step and not on how many requests they belong
// to: in the measurements 16 prompts of 512 tokens take as long as one of 8192
// (882 and 943 ms on four H100), the difference being attention.
type curve struct {
	prefill []sample // ms by tokens in the step, non-decreasing
	decode  []sample // ms by streams in the batch, non-decreasing
	// pairMs is the cost of one chunk token attending to one earlier token. It is
	// the slope of T times the ratio of attention to weight work of the model,
	// 4*8192*80 / (2*70e9) per pair; the H100 TP4 rows (one prompt of 8192 against
	// 16 of 512) give 1.9e-6 ms where this gives 2.2e-6.
	pairMs float64
	// contextMs is the cost of reading one token's keys and values in a decode
	// step: 327,680 bytes (8 KV heads x 128 x 80 layers x 2 x 2 bytes) at 60 % of
	// the memory bandwidth. It is computed, since the measurements vary the prompt
	// only at batch 1, where it does not show.
	contextMs float64
}

type sample struct{ x, ms float64 }

const (
	attentionShare = 4.0 * 8192 * 80 / (2 * 70e9)
	kvBytesToken   = 327_680.0
	measuredPrompt = 512 // context of the measured decode batches, already in D(b)
)

// StepTime implements Timing.
func (c *curve) StepTime(l StepLoad) time.Duration {
	var ms float64
	switch {
	case l.PrefillTokens == 0 && l.DecodeStreams == 0:
		return 0
	case l.PrefillTokens == 0:
		ms = interpolate(c.decode, float64(l.DecodeStreams))
	default:
		ms = max(interpolate(c.prefill, float64(l.PrefillTokens)), c.decode[0].ms)
		if l.DecodeStreams > 0 {
			ms += interpolate(c.decode, float64(l.DecodeStreams)) - c.decode[0].ms
		}
	}
	ms += float64(l.PrefillPairs) * c.pairMs
	ms += max(0, float64(l.DecodeContext-measuredPrompt*int64(l.DecodeStreams))) * c.contextMs
	return time.Duration(math.Round(ms * 1e6))
}

// interpolate is linear between samples and continues the first and the last
// segment beyond them.
func interpolate(s []sample, x float64) float64 {
	i, _ := slices.BinarySearchFunc(s, x, func(a sample, x float64) int {
		switch {
		case a.x < x:
			return -1
		case a.x > x:
			return 1
		}
		return 0
	})
	i = min(max(i, 1), len(s)-1)
	a, b := s[i-1], s[i]
	return a.ms + (x-a.x)*(b.ms-a.ms)/(b.x-a.x)
}

//go:embed calibration/splitwise_llama2_70b.csv
var calibration []byte

// profiles maps a profile's name to its rows of the calibration file and to the
// memory bandwidth of one of its accelerators, GB/s (vendor figures).
var profiles = map[string]struct {
	hardware string
	tensor   int
	gbps     float64
}{
	"h100-70b-tp4": {"h100-80gb", 4, 3350},
	"h100-70b-tp8": {"h100-80gb", 8, 3350},
	"a100-70b-tp4": {"a100-80gb", 4, 2039},
	"a100-70b-tp8": {"a100-80gb", 8, 2039},
}

// ProfileNames lists the profiles NewTiming knows, sorted.
func ProfileNames() []string {
	names := make([]string, 0, len(profiles))
	for n := range profiles {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// NewTiming returns the measured profile of that name.
func NewTiming(profile string) (Timing, error) {
	p, ok := profiles[profile]
	if !ok {
		return nil, fmt.Errorf("unknown profile %q (have %v)", profile, ProfileNames())
	}
	rows, err := csv.NewReader(bytes.NewReader(calibration)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read calibration: %w", err)
	}
	prefill, decode := map[int][]float64{}, map[int][]float64{}
	for _, r := range rows[1:] { // model,hardware,prompt_size,batch_size,token_size,peak,average,prompt_time,token_time,e2e_time,tp
		tp, err0 := strconv.Atoi(r[10])
		prompt, err1 := strconv.Atoi(r[2])
		batch, err2 := strconv.Atoi(r[3])
		promptMs, err3 := strconv.ParseFloat(r[7], 64)
		tokenMs, err4 := strconv.ParseFloat(r[8], 64)
		for _, err := range []error{err0, err1, err2, err3, err4} {
			if err != nil {
				return nil, fmt.Errorf("read calibration row %v: %w", r, err)
			}
		}
		if r[1] != p.hardware || tp != p.tensor {
			continue
		}
		if batch == 1 {
			prefill[prompt] = append(prefill[prompt], promptMs)
		}
		if prompt == measuredPrompt {
			decode[batch] = append(decode[batch], tokenMs)
		}
	}
	c := &curve{prefill: medians(prefill), decode: medians(decode)}
	if len(c.prefill) < 2 || len(c.decode) < 2 {
		return nil, fmt.Errorf("calibration has no rows for profile %q", profile)
	}
	a, b := c.prefill[len(c.prefill)-2], c.prefill[len(c.prefill)-1]
	c.pairMs = (b.ms - a.ms) / (b.x - a.x) * attentionShare
	c.contextMs = kvBytesToken / (0.6 * p.gbps * 1e9 * float64(p.tensor)) * 1e3
	return c, nil
}

// medians reduces repeated measurements to one point each, sorted, and lifts
// points below their predecessor (noise) to it, so that more work never takes
// less time.
func medians(m map[int][]float64) []sample {
	out := make([]sample, 0, len(m))
	for x, v := range m {
		slices.Sort(v)
		out = append(out, sample{float64(x), v[len(v)/2]})
	}
	slices.SortFunc(out, func(a, b sample) int { return int(a.x - b.x) })
	for i := 1; i < len(out); i++ {
		out[i].ms = max(out[i].ms, out[i-1].ms)
	}
	return out
}
