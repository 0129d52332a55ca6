package sim

import (
	"math"
	"slices"
	"time"
)

// Figures is what a cell comes to. Times are seconds unless named otherwise.
type Figures struct {
	Requests     int     `json:"requests"` // measured ones
	Failed       int     `json:"failed"`
	HitRate      float64 `json:"hit_rate"`        // cached over prompt tokens
	FollowUpHit  float64 `json:"follow_up_hit"`   // the same of turns after the first; NaN-free: 0 without any
	TTFTMean     float64 `json:"ttft_mean_s"`     //
	TTFTP50      float64 `json:"ttft_p50_s"`      //
	TTFTP99      float64 `json:"ttft_p99_s"`      //
	TPOTP99      float64 `json:"tpot_p99_ms"`     //
	Predicted    float64 `json:"predicted_ratio"` // predicted over reported cached tokens
	PredictErr   float64 `json:"predict_error"`   // median of |predicted-reported|/prompt
	PredictErr90 float64 `json:"predict_error_p90"`

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

	Equal     float64   `json:"equal_picks"` // share of routers that picked what most did
	RegretP50 float64   `json:"regret_p50_ms"`
	RegretP95 float64   `json:"regret_p95_ms"`
	Regrets   []float64 `json:"-"`
	CEff      float64   `json:"c_eff_ratio"` // learned over true, mean
	Preempted int       `json:"preempted"`
	Missed    Missed    `json:"missed"`
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
	f.TTFTP50, f.TTFTP99, f.TPOTP99 = quantile(ttft, 0.5), quantile(ttft, 0.99), quantile(tpot, 0.99)
	f.PredictErr, f.PredictErr90 = quantile(perr, 0.5), quantile(perr, 0.9)
	f.RegretP50, f.RegretP95, f.Regrets = quantile(regret, 0.5), quantile(regret, 0.95), regret
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
	f.RowsP50, f.RowsP99 = quantile(rows, 0.5), quantile(rows, 0.99)
	f.OpsP50, f.OpsP99 = quantile(ops, 0.5), quantile(ops, 0.99)
	for _, r := range c.Replicas {
		f.Preempted += int(r.Totals().Preemptions)
	}
}

// probeFigures sums up what all routers said at one instant.
func (c *Cluster) probeFigures(f *Figures) {
	if len(c.Probes) == 0 {
		return
	}
	equal, picks := 0, 0
	var regret, perr []float64
	for _, p := range c.Probes {
		votes := map[int]int{}
		most := 0
		for i, r := range p.Chosen {
			votes[r]++
			most = max(most, votes[r])
			regret = append(regret, p.Regret[i])
			perr = append(perr, math.Abs(float64(p.Matched[i]-p.Cached[i]))/float64(len(c.work.Items[p.Item].Prompt.Tokens)))
		}
		equal += most
		picks += len(p.Chosen)
	}
	f.Equal = float64(equal) / float64(max(1, picks))
	f.RegretP50, f.RegretP95, f.Regrets = quantile(regret, 0.5), quantile(regret, 0.95), regret
	f.PredictErr, f.PredictErr90 = quantile(perr, 0.5), quantile(perr, 0.9)
}
