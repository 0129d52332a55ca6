package whatif

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/table"
)

// Figures is what a run comes to, of the requests after the workload's warm-up.
type Figures struct {
	Requests int           `json:"requests"`
	Failed   int           `json:"failed"`
	TTFTMean time.Duration `json:"ttft_mean_ns"`
	TTFTP50  time.Duration `json:"ttft_p50_ns"`
	TTFTP99  time.Duration `json:"ttft_p99_ns"`
	TPOTP99  time.Duration `json:"tpot_p99_ns"`
	HitRate  float64       `json:"hit_rate"`    // cached over prompt tokens
	MetSLO   float64       `json:"met_slo"`     // share of requests
	Goodput  float64       `json:"goodput_rps"` // those, per second of Span; 0 where that is
	Span     time.Duration `json:"span_ns"`     // of arrivals; 0: they came at one time
	Spread   float64       `json:"spread"`      // most requests of a replica over the mean
}

// Outcome is a variant and what came of it.
type Outcome struct {
	Name    string  `json:"name"`
	Figures Figures `json:"figures"`
}

// Run runs a workload on one configuration. It ends early, with ctx's error, when that
// is over.
func Run(ctx context.Context, cfg Config, work *Workload) (Figures, error) {
	if err := cfg.Validate(); err != nil {
		return Figures{}, err
	}
	w, err := newWorld(cfg, work)
	if err != nil {
		return Figures{}, err
	}
	if err := w.run(ctx); err != nil {
		return Figures{}, err
	}
	return w.figures(), nil
}

// Compare runs a workload on every variant, and tells each one's outcome to done.
func Compare(ctx context.Context, variants []Variant, work *Workload, done func(Outcome)) ([]Outcome, error) {
	var out []Outcome
	for _, v := range variants {
		f, err := Run(ctx, v.Config, work)
		if err != nil {
			return out, fmt.Errorf("%s: %w", v.Name, err)
		}
		o := Outcome{v.Name, f}
		out = append(out, o)
		if done != nil {
			done(o)
		}
	}
	return out, nil
}

func (w *world) figures() Figures {
	f := Figures{Requests: len(w.flights) - w.work.Warmup}
	var d draws
	for i := w.work.Warmup; i < len(w.flights); i++ {
		x := &w.flights[i]
		if x.failed {
			f.Failed++
			continue
		}
		each := time.Duration(0)
		if k := x.item.Answer.Tokens() - 1; k > 0 {
			each = (x.done - x.first) / time.Duration(k)
		}
		d.add(x.sent, x.first-x.sent, each, w.cfg.SLO)
		d.prompt += float64(len(x.item.Prompt.Tokens))
		d.cached += float64(x.cached)
	}
	d.into(&f)
	if len(d.ttft) > 0 {
		f.Spread = w.spread()
	}
	return f
}

// spread is the most requests of one replica over the mean of all.
func (w *world) spread() float64 {
	most := int64(0)
	for _, x := range w.replicas {
		most = max(most, x.core.Totals().Finished)
	}
	return float64(most) * float64(len(w.replicas)) / float64(max(1, len(w.flights)))
}

func quantile(v []time.Duration, q float64) time.Duration {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[min(len(v)-1, max(0, int(math.Ceil(q*float64(len(v))))-1))]
}

// Write prints outcomes beside each other; what follows the first has its difference
// from it.
func Write(out io.Writer, title string, outcomes []Outcome) {
	head := []string{"what", "TTFT mean s", "p50", "p99", "TPOT p99 ms", "hit rate", "goodput/s", "met SLO", "max/mean", "failed"}
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
	var rows [][]string
	for i := range outcomes {
		f, base := &outcomes[i].Figures, &outcomes[0].Figures
		relative := func(text string, v, of float64) string {
			if i == 0 || of == 0 {
				return text
			}
			return fmt.Sprintf("%s (%+.1f %%)", text, 100*(v/of-1))
		}
		hit := fmt.Sprintf("%.3f", f.HitRate)
		if i > 0 {
			hit += fmt.Sprintf(" (%+.3f)", f.HitRate-base.HitRate)
		}
		goodput := "-"
		if f.Span > 0 {
			goodput = relative(fmt.Sprintf("%.2f", f.Goodput), f.Goodput, base.Goodput)
		}
		rows = append(rows, []string{
			outcomes[i].Name,
			relative(seconds(f.TTFTMean), float64(f.TTFTMean), float64(base.TTFTMean)), seconds(f.TTFTP50),
			relative(seconds(f.TTFTP99), float64(f.TTFTP99), float64(base.TTFTP99)),
			relative(fmt.Sprintf("%.1f", 1e3*f.TPOTP99.Seconds()), float64(f.TPOTP99), float64(base.TPOTP99)),
			hit, goodput,
			fmt.Sprintf("%.1f %%", 100*f.MetSLO), fmt.Sprintf("%.2f", f.Spread), fmt.Sprint(f.Failed),
		})
	}
	table.Print(out, title, 1, head, rows)
}
