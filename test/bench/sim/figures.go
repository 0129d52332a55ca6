package sim

import (
	"math"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/table"
)

// Figures is what a cell comes to. Times are seconds unless named otherwise.
type Figures struct {
	Requests     int     `json:"requests"` // measured ones
	Failed       int     `json:"failed"`
	HitRate      float64 `json:"hit_rate"`        // cached over prompt tokens
	FollowUpHit  float64 `json:"follow_up_hit"`   // the same of turns after the first; NaN-free: 0 without any
	TTFTMean     float64 `json:"ttft_mean_s"`     //
	TTFTP50      float64 `json:"ttft_p50_s"`      //
	TTFTP90      float64 `json:"ttft_p90_s"`      //
	TTFTP99      float64 `json:"ttft_p99_s"`      //
	TPOTP99      float64 `json:"tpot_p99_ms"`     //
	Predicted    float64 `json:"predicted_ratio"` // predicted over reported cached tokens
	PredictErr   float64 `json:"predict_error"`   // median of |predicted-reported|/prompt
	PredictErr90 float64 `json:"predict_error_p90"`

	MetSLO     float64 `json:"met_slo"`     // share of measured requests
	Goodput    float64 `json:"goodput_rps"` // those, per second of their arrivals
	OutputRate float64 `json:"output_tps"`  // tokens a second, from the first one's arrival to the last one's end

	// Of sampled loads: the mean over replicas, and the most loaded replica's over it.
	InFlight       float64 `json:"in_flight"`
	InFlightSpread float64 `json:"in_flight_spread"`
	Queue          float64 `json:"queue"` // uncached tokens
	QueueSpread    float64 `json:"queue_spread"`
	QueueNow       float64 `json:"queue_now"` // the longest queue of each sample, on average, over the mean

	Rate      float64 `json:"rate_rps"`
	Virtual   float64 `json:"virtual_s"`
	CPU       float64 `json:"cpu_s"`
	BytesOut  float64 `json:"bytes_out_per_s"` // by a router, mean
	BytesMax  float64 `json:"bytes_out_per_s_max"`
	RowsP50   float64 `json:"rows_p50_ms"`
	RowsP99   float64 `json:"rows_p99_ms"`
	OpsP50    float64 `json:"ops_p50_ms"`
	OpsP99    float64 `json:"ops_p99_ms"`
	Entries   float64 `json:"sketch_entries"` // per router
	HeapBytes float64 `json:"heap_bytes"`     // that one router holds; 0: not measured

	Equal     float64   `json:"equal_picks"`    // share of routers that picked what most did
	Disagree  float64   `json:"disagree"`       // share of replicas of whose match two routers differ by over 64 tokens
	QueueGap  float64   `json:"queue_gap"`      // mean of the largest difference between routers about a replica's queue, tokens
	RegretAvg float64   `json:"regret_mean_ms"` //
	RegretP50 float64   `json:"regret_p50_ms"`
	RegretP95 float64   `json:"regret_p95_ms"`
	Regrets   []float64 `json:"regrets_ms,omitempty"` // quantiles, 0 to 1 in equal steps; of probes
	CEff      float64   `json:"c_eff_ratio"`          // learned over true, mean
	Preempted int       `json:"preempted"`
	Missed    Missed    `json:"missed"`

	// What routers learned of the engines: the mean of all, and by how much routers
	// differ about one replica (standard deviation over mean), mean over replicas.
	PrefillRate       float64 `json:"prefill_rate"` // tokens/s
	PrefillRateSpread float64 `json:"prefill_rate_spread"`
	FixedMS           float64 `json:"fixed_ms"`
	FixedSpreadMS     float64 `json:"fixed_spread_ms"`
	BytesPerToken     float64 `json:"bytes_per_token"`
	BytesSpread       float64 `json:"bytes_per_token_spread"`
}

// Missed says where cached tokens were left unused: shares of all prompt tokens,
// by why the deepest holder was not picked.
type Missed struct {
	Total    float64 `json:"total"`     // deepest holder's less the pick's
	Unknown  float64 `json:"unknown"`   // the sketch believed the holder to hold much less
	Rightly  float64 `json:"rightly"`   // the holder's true score was worse
	Queue    float64 `json:"queue"`     // known and better, and yet passed over
	Foreign  float64 `json:"foreign"`   // of Queue: foreign load was seen at the holder
	Phantom  float64 `json:"phantom"`   // believed at the pick and not there
	Best     float64 `json:"best"`      // hit rate if every request went to its deepest holder
	QueueErr float64 `json:"queue_err"` // mean of believed less true queue at the pick, tokens
	QueueAbs float64 `json:"queue_abs"` // mean of its size
}

func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	i := int(math.Ceil(q*float64(len(v)))) - 1
	return v[min(max(i, 0), len(v)-1)]
}

// Figures sums the run up.
func (c *Cluster) Figures() Figures {
	f := Figures{Requests: len(c.Records) - c.work.Warmup}
	var prompt, cached, followPrompt, followCached, predicted float64
	var ttft, tpot, perr, regret []float64
	n := 0.0
	var m Missed
	for i := c.work.Warmup; i < len(c.Records); i++ {
		r := &c.Records[i]
		if r.Failed != "" {
			f.Failed++
			continue
		}
		prompt += float64(r.Prompt)
		cached += float64(r.Cached)
		predicted += float64(r.Predicted)
		if c.work.Items[i].Turn > 0 {
			followPrompt += float64(r.Prompt)
			followCached += float64(r.Cached)
		}
		ttft = append(ttft, r.TTFT().Seconds())
		if k := c.work.Items[i].Answer.Tokens(); k > 1 {
			tpot = append(tpot, 1e3*(r.Done-r.First).Seconds()/float64(k-1))
		}
		perr = append(perr, math.Abs(float64(r.Predicted-r.Cached))/float64(r.Prompt))
		f.TTFTMean += r.TTFT().Seconds()
		n++
		if t := &r.Truth; t.Known {
			regret = append(regret, t.Regret)
			m.add(t)
		}
	}
	if n == 0 {
		return f
	}
	f.HitRate, f.Predicted = cached/prompt, predicted/max(1, cached)
	f.FollowUpHit = followCached / max(1, followPrompt)
	f.TTFTMean /= n
	f.TTFTP50, f.TTFTP90, f.TTFTP99, f.TPOTP99 = quantile(ttft, 0.5), quantile(ttft, 0.9), quantile(ttft, 0.99), quantile(tpot, 0.99)
	c.sloFigures(&f)
	c.loadFigures(&f)
	f.PredictErr, f.PredictErr90 = quantile(perr, 0.5), quantile(perr, 0.9)
	f.RegretAvg = table.Mean(regret)
	f.RegretP50, f.RegretP95 = quantile(regret, 0.5), quantile(regret, 0.95)
	m.scale(prompt, n)
	f.Missed = m
	c.clusterFigures(&f)
	c.probeFigures(&f)
	return f
}

func (m *Missed) add(t *PickTruth) {
	lost := float64(t.BestCached - t.Cached)
	m.Total += lost
	m.Best += float64(t.BestCached)
	m.Phantom += float64(max(0, t.Matched-t.Cached))
	switch {
	case lost <= 0:
	case t.BestMatch < t.BestCached-t.BestCached/8-64:
		m.Unknown += lost
	case t.HolderLoses:
		m.Rightly += lost
	default:
		m.Queue += lost
		if t.BestForeign > 0 {
			m.Foreign += lost
		}
	}
	m.QueueErr += t.Believed - t.Queue
	m.QueueAbs += math.Abs(t.Believed - t.Queue)
}

func (m *Missed) scale(prompt, n float64) {
	for _, v := range []*float64{&m.Total, &m.Unknown, &m.Rightly, &m.Queue, &m.Foreign, &m.Phantom, &m.Best} {
		*v /= prompt
	}
	m.QueueErr /= n
	m.QueueAbs /= n
}

// clusterFigures are the routers' own.
func (c *Cluster) clusterFigures(f *Figures) {
	f.Virtual = time.Since(c.began).Seconds()
	f.Rate = float64(len(c.Records)) / f.Virtual
	for i, now := range c.traffic() {
		out := float64(now.StreamOut+now.PacketOut-c.idle[i].StreamOut-c.idle[i].PacketOut) / f.Virtual
		f.BytesOut += out / float64(c.cfg.Routers)
		f.BytesMax = max(f.BytesMax, out)
	}
	var rows, ops []float64
	k := 0.0
	for _, r := range c.alive() {
		f.Entries += float64(r.index.Totals().Entries) / float64(c.cfg.Routers)
		for _, x := range c.Replicas {
			if s := r.index.Stats(x.ID); s.Samples > 0 {
				f.CEff += s.CEff / float64(x.kv)
				k++
			}
		}
		r.timed.mu.Lock()
		for _, d := range r.timed.rows {
			rows = append(rows, 1e3*d.Seconds())
		}
		for _, d := range r.timed.ops {
			ops = append(ops, 1e3*d.Seconds())
		}
		r.timed.mu.Unlock()
	}
	f.CEff /= max(1, k)
	c.calibrationFigures(f)
	f.RowsP50, f.RowsP99 = quantile(rows, 0.5), quantile(rows, 0.99)
	f.OpsP50, f.OpsP99 = quantile(ops, 0.5), quantile(ops, 0.99)
	for _, r := range c.Replicas {
		f.Preempted += int(r.Totals().Preemptions)
	}
}

// calibrationFigures says how far routers agree on engines and text.
func (c *Cluster) calibrationFigures(f *Figures) {
	moments := func(get func(*Router) float64) (mean, dev float64) {
		n, sum, squares := 0.0, 0.0, 0.0
		for _, r := range c.alive() {
			v := get(r)
			n, sum, squares = n+1, sum+v, squares+v*v
		}
		mean = sum / n
		return mean, math.Sqrt(max(0, squares/n-mean*mean))
	}
	k := float64(len(c.Replicas))
	for _, x := range c.first().store.View().Pools[0].Replicas {
		mean, dev := moments(func(r *Router) float64 { return r.cal.Params(x.Slot, Pool).Rate })
		f.PrefillRate, f.PrefillRateSpread = f.PrefillRate+mean/k, f.PrefillRateSpread+dev/mean/k
		mean, dev = moments(func(r *Router) float64 { return r.cal.Params(x.Slot, Pool).Fixed })
		f.FixedMS, f.FixedSpreadMS = f.FixedMS+mean/k, f.FixedSpreadMS+dev/k
	}
	mean, dev := moments(func(r *Router) float64 { ascii, _ := r.ratios.For(Model).BytesPerToken(); return ascii })
	f.BytesPerToken, f.BytesSpread = mean, dev/mean
}

// regretSteps is how finely the distribution of regrets is kept.
const regretSteps = 100

// probeFigures sums up what all routers said at one instant.
func (c *Cluster) probeFigures(f *Figures) {
	if len(c.Probes) == 0 {
		return
	}
	equal, picks := 0, 0
	differ, pairs, gap := 0.0, 0.0, 0.0
	var regret, perr []float64
	for _, p := range c.Probes {
		if len(p.Chosen) == 0 {
			continue
		}
		votes := map[int]int{}
		most := 0
		for i, r := range p.Chosen {
			votes[r]++
			most = max(most, votes[r])
			regret = append(regret, p.Regret[i])
			perr = append(perr, math.Abs(float64(p.Matched[i]-p.Cached[i]))/float64(len(c.work.Items[p.Item].Prompt.Tokens)))
		}
		for k := range p.Matches[0] {
			lo, hi, qlo, qhi := p.Matches[0][k], p.Matches[0][k], p.Queues[0][k], p.Queues[0][k]
			for r := range p.Matches {
				lo, hi = min(lo, p.Matches[r][k]), max(hi, p.Matches[r][k])
				qlo, qhi = min(qlo, p.Queues[r][k]), max(qhi, p.Queues[r][k])
			}
			pairs++
			gap += qhi - qlo
			if hi-lo > 64 {
				differ++
			}
		}
		equal += most
		picks += len(p.Chosen)
	}
	f.Equal, f.Disagree, f.QueueGap = float64(equal)/float64(max(1, picks)), differ/max(1, pairs), gap/max(1, pairs)
	f.RegretAvg = table.Mean(regret)
	f.RegretP50, f.RegretP95 = quantile(regret, 0.5), quantile(regret, 0.95)
	for i := range regretSteps + 1 {
		f.Regrets = append(f.Regrets, quantile(regret, float64(i)/regretSteps))
	}
	f.PredictErr, f.PredictErr90 = quantile(perr, 0.5), quantile(perr, 0.9)
}
