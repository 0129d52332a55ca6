package replay

import (
	"math"
	"slices"
	"time"
)

// Report is what a replay measured. Times are in seconds; unless said otherwise they are the engine's (wall-clock times
// Speed). It marshals to JSON as it is.
type Report struct {
	Trace       string   `json:"trace,omitempty"`
	Model       string   `json:"model"`
	Endpoint    Endpoint `json:"endpoint"`
	Seed        uint64   `json:"seed"`
	Speed       float64  `json:"speed"`
	Interrupted bool     `json:"interrupted"` // stopped before the trace's end

	Sent       int `json:"sent"`       // requests begun
	Warmup     int `json:"warmup"`     // of those, due within Config.Warmup and in no figure below
	OK         int `json:"ok"`         // whole answers
	Errors     int `json:"errors"`     // all ends but ok and cancelled
	Unfinished int `json:"unfinished"` // cancelled when the replay was stopped
	// ErrorsByKind has the kinds that happened; ErrorExamples one message for each.
	ErrorsByKind  map[Kind]int    `json:"errors_by_kind"`
	ErrorExamples map[Kind]string `json:"error_examples"`

	Duration     float64 `json:"duration_s"`      // from the first measured request's send to the last one's end
	WallDuration float64 `json:"wall_duration_s"` // of the whole run, wall-clock

	TTFT Dist  `json:"ttft_s"` // of whole answers, as the three below
	TPOT Dist  `json:"tpot_s"` // of those with at least two tokens
	E2E  Dist  `json:"e2e_s"`
	Raw  Times `json:"raw_wall_s"` // the same by the wall clock

	// Usage sums over the requests whose engine reported it.
	UsageReports  int   `json:"usage_reports"`
	CachedReports int   `json:"cached_reports"` // of those, with cached tokens
	PromptTokens  int64 `json:"prompt_tokens"`
	CachedTokens  int64 `json:"cached_tokens"`
	OutputTokens  int64 `json:"output_tokens"` // events are counted where no usage came
	// HitRate is cached over prompt tokens of the requests with a usage report; nil when none reported cached tokens. A report
	// without cached tokens counts as none cached (some engines leave out a zero).
	HitRate    *float64    `json:"hit_rate"`
	Prediction *Prediction `json:"prediction,omitempty"` // nil unless routers told what they expected

	SLOTTFT    float64    `json:"slo_ttft_s"` // 0 means no bound
	SLOTPOT    float64    `json:"slo_tpot_s"` // 0 means no bound
	Goodput    Goodput    `json:"goodput"`
	Throughput Throughput `json:"throughput"`

	Lateness    Dist  `json:"client_lateness_wall_s"`    // the client's own delay of sends, wall-clock
	Blocked     int   `json:"blocked_by_concurrency"`    // sends that waited for the bound on requests in flight
	HeldTurns   int   `json:"turns_held_by_own_session"` // turns due before the answer they reply to
	Held        Dist  `json:"turns_held_s"`              // how long those waited
	TargetRows  []Row `json:"targets"`                   // in the order given
	Replicas    []Row `json:"replicas,omitempty"`        // as the routers named them, sorted; only with debug headers
	targets     []string
	concurrency int
	samples     []sample // measured ones, in order of send; for plots and WriteSamples
}

// Times are the three distributions of a request's course.
type Times struct {
	TTFT Dist `json:"ttft"`
	TPOT Dist `json:"tpot"`
	E2E  Dist `json:"e2e"`
}

// Prediction compares what routers expected to be cached with what engines reported, over requests where both are known.
type Prediction struct {
	Requests        int     `json:"requests"`
	PredictedTokens int64   `json:"predicted_tokens"`
	CachedTokens    int64   `json:"cached_tokens"`
	ErrorShare      Dist    `json:"error_share"` // |predicted - cached| / prompt tokens
	Bias            float64 `json:"bias"`        // (predicted - cached) / cached, over the sums; 0 when nothing was cached
}

// Goodput counts the requests that met the SLO.
type Goodput struct {
	Met       int     `json:"met"`
	Share     float64 `json:"share"` // of the measured requests that were not cancelled; errors don't meet it
	PerSecond float64 `json:"per_second"`
}

// Throughput is per second of Duration.
type Throughput struct {
	Requests     float64 `json:"requests_per_s"` // whole answers
	InputTokens  float64 `json:"input_tokens_per_s"`
	OutputTokens float64 `json:"output_tokens_per_s"`
}

// Row sums up one target or replica.
type Row struct {
	Name         string   `json:"name"`
	Requests     int      `json:"requests"`
	Errors       int      `json:"errors"`
	TTFT         Dist     `json:"ttft_s"`
	PromptTokens int64    `json:"prompt_tokens"`
	CachedTokens int64    `json:"cached_tokens"`
	HitRate      *float64 `json:"hit_rate"`
}

// report sums up what was booked. The run is over.
func (b *book) report(end time.Time) *Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &Report{
		Trace: b.cfg.Name, Model: b.cfg.Model, Endpoint: b.cfg.Endpoint, Seed: b.cfg.Seed, Speed: b.cfg.Speed,
		Sent: b.sent, Blocked: b.blocked, WallDuration: end.Sub(b.start).Seconds(),
		ErrorsByKind: make(map[Kind]int), ErrorExamples: b.examples,
		SLOTTFT: b.cfg.SLO.TTFT.Seconds(), SLOTPOT: b.cfg.SLO.TPOT.Seconds(),
		targets: b.cfg.Targets, concurrency: b.cfg.Concurrency,
	}
	for _, s := range b.samples {
		if s.at < b.cfg.Warmup {
			r.Warmup++
			continue
		}
		r.samples = append(r.samples, s)
	}
	slices.SortStableFunc(r.samples, func(x, y sample) int { return int(x.sent - y.sent) })
	r.count()
	r.times()
	r.tokens()
	r.rates()
	r.rows()
	return r
}

func (r *Report) count() {
	for _, s := range r.samples {
		switch s.kind {
		case OK:
			r.OK++
		case Cancelled:
			r.Unfinished++
		default:
			r.Errors++
			r.ErrorsByKind[s.kind]++
		}
	}
	for kind := range r.ErrorExamples {
		if r.ErrorsByKind[kind] == 0 {
			delete(r.ErrorExamples, kind)
		}
	}
}

func (r *Report) times() {
	var ttft, tpot, e2e, late, held []float64
	for _, s := range r.samples {
		if s.held > 0 {
			held = append(held, s.held.Seconds())
		}
		if s.begun {
			late = append(late, s.late.Seconds())
		}
		if s.kind != OK {
			continue
		}
		ttft = append(ttft, s.ttft.Seconds())
		e2e = append(e2e, (s.end - s.sent).Seconds())
		if s.output > 1 {
			tpot = append(tpot, s.tpot.Seconds())
		}
	}
	r.Raw = Times{TTFT: newDist(ttft), TPOT: newDist(tpot), E2E: newDist(e2e)}
	r.TTFT, r.TPOT, r.E2E = r.Raw.TTFT.scaled(r.Speed), r.Raw.TPOT.scaled(r.Speed), r.Raw.E2E.scaled(r.Speed)
	r.Lateness = newDist(late)
	r.HeldTurns, r.Held = len(held), newDist(held).scaled(r.Speed)
}

func (r *Report) tokens() {
	var p Prediction
	var shares []float64
	for _, s := range r.samples {
		r.OutputTokens += int64(s.output)
		if !s.usage.known {
			continue
		}
		r.UsageReports++
		r.PromptTokens += int64(s.usage.prompt)
		if !s.usage.cachedKnown {
			continue
		}
		r.CachedReports++
		r.CachedTokens += int64(s.usage.cached)
		if s.predictedKnown && s.usage.prompt > 0 {
			p.Requests++
			p.PredictedTokens += int64(s.predicted)
			p.CachedTokens += int64(s.usage.cached)
			shares = append(shares, math.Abs(float64(s.predicted-s.usage.cached))/float64(s.usage.prompt))
		}
	}
	if r.CachedReports > 0 {
		r.HitRate = ratio(r.CachedTokens, r.PromptTokens)
	}
	if p.Requests > 0 {
		p.ErrorShare = newDist(shares)
		if p.CachedTokens > 0 {
			p.Bias = float64(p.PredictedTokens-p.CachedTokens) / float64(p.CachedTokens)
		}
		r.Prediction = &p
	}
}

func (r *Report) rates() {
	var first, last time.Duration
	seen := false
	for _, s := range r.samples {
		if !s.begun {
			continue
		}
		if !seen {
			first, seen = s.sent, true
		}
		last = max(last, s.end)
		if r.good(s) {
			r.Goodput.Met++
		}
	}
	r.Duration = (last - first).Seconds() * r.Speed
	if judged := r.OK + r.Errors; judged > 0 {
		r.Goodput.Share = float64(r.Goodput.Met) / float64(judged)
	}
	if r.Duration <= 0 {
		return
	}
	r.Goodput.PerSecond = float64(r.Goodput.Met) / r.Duration
	r.Throughput = Throughput{
		Requests:     float64(r.OK) / r.Duration,
		InputTokens:  float64(r.PromptTokens) / r.Duration,
		OutputTokens: float64(r.OutputTokens) / r.Duration,
	}
}

// good says whether a request met the SLO.
func (r *Report) good(s sample) bool {
	if s.kind != OK {
		return false
	}
	within := func(measured time.Duration, bound float64) bool {
		return bound == 0 || measured.Seconds()*r.Speed <= bound
	}
	return within(s.ttft, r.SLOTTFT) && within(s.tpot, r.SLOTPOT)
}

func (r *Report) rows() {
	targets := make([]rowSum, len(r.targets))
	replicas := make(map[string]*rowSum)
	for _, s := range r.samples {
		targets[s.target].add(s)
		if s.replica == "" {
			continue
		}
		sum := replicas[s.replica]
		if sum == nil {
			if len(replicas) == maxReplicaRows {
				continue
			}
			sum = &rowSum{}
			replicas[s.replica] = sum
		}
		sum.add(s)
	}
	for i, name := range r.targets {
		r.TargetRows = append(r.TargetRows, targets[i].row(name, r.Speed))
	}
	for name, sum := range replicas {
		r.Replicas = append(r.Replicas, sum.row(name, r.Speed))
	}
	slices.SortFunc(r.Replicas, func(a, b Row) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
}

// maxReplicaRows bounds what a confused target can make of the replica header.
const maxReplicaRows = 4096

type rowSum struct {
	requests, errors, cachedReports int
	prompt, cached                  int64
	ttft                            []float64
}

func (s *rowSum) add(x sample) {
	s.requests++
	switch x.kind {
	case OK:
		s.ttft = append(s.ttft, x.ttft.Seconds())
	case Cancelled:
	default:
		s.errors++
	}
	if x.usage.known {
		s.prompt += int64(x.usage.prompt)
		if x.usage.cachedKnown {
			s.cachedReports++
			s.cached += int64(x.usage.cached)
		}
	}
}

func (s *rowSum) row(name string, speed float64) Row {
	row := Row{
		Name: name, Requests: s.requests, Errors: s.errors, TTFT: newDist(s.ttft).scaled(speed),
		PromptTokens: s.prompt, CachedTokens: s.cached,
	}
	if s.cachedReports > 0 {
		row.HitRate = ratio(s.cached, s.prompt)
	}
	return row
}
