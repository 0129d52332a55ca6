package whatif

import (
	"math"
	"time"
)

// Seen is what really came of a recorded workload, as far as it was measured: of requests
// of unknown TTFT only the hits count. It returns false where nothing was.
func Seen(work *Workload, slo SLO) (f Figures, ok bool) {
	var d draws
	by := map[string]int{}
	for _, it := range work.Items[min(work.Warmup, len(work.Items)):] {
		s := it.Seen
		if s == nil {
			continue
		}
		f.Requests++
		by[s.Replica]++
		if s.CachedTokens >= 0 {
			d.prompt += float64(len(it.Prompt.Tokens))
			d.cached += min(float64(s.CachedTokens), float64(len(it.Prompt.Tokens)))
		}
		if s.TTFT > 0 {
			d.add(it.At, s.Queued+s.TTFT, s.ITL, slo)
		}
	}
	d.into(&f)
	most := 0
	for _, n := range by {
		most = max(most, n)
	}
	f.Spread = float64(most) * float64(len(by)) / float64(max(1, f.Requests))
	return f, f.Requests > 0
}

// draws gathers the requests that figures are made of.
type draws struct {
	ttft, tpot          []time.Duration
	prompt, cached, met float64 // tokens, tokens, requests
	sum, from, to       time.Duration
}

// add takes a request that was sent at that time; each is its time per output token, 0 if
// it has none.
func (d *draws) add(sent, ttft, each time.Duration, slo SLO) {
	if len(d.ttft) == 0 {
		d.from = math.MaxInt64
	}
	d.from, d.to = min(d.from, sent), max(d.to, sent)
	d.ttft, d.sum = append(d.ttft, ttft), d.sum+ttft
	good := ttft <= slo.TTFT
	if each > 0 {
		d.tpot = append(d.tpot, each)
		good = good && each <= slo.TPOT
	}
	if good {
		d.met++
	}
}

// into makes the figures. Requests is set by then.
func (d *draws) into(f *Figures) {
	if d.prompt > 0 {
		f.HitRate = d.cached / d.prompt
	}
	if len(d.ttft) == 0 {
		return
	}
	f.TTFTMean = d.sum / time.Duration(len(d.ttft))
	f.TTFTP50, f.TTFTP99, f.TPOTP99 = quantile(d.ttft, 0.5), quantile(d.ttft, 0.99), quantile(d.tpot, 0.99)
	f.MetSLO = d.met / float64(f.Requests)
	if f.Span = d.to - d.from; f.Span < time.Millisecond { // there is no rate then
		f.Span = 0
		return
	}
	f.Goodput = d.met / f.Span.Seconds()
}
