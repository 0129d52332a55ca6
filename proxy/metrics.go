package proxy

import (
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// unknownPool is the pool label of requests for models and paths that nobody
// serves, so that strangers can't make label values.
const unknownPool = "unknown"

type metrics struct {
	requests   *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	ttft       *prometheus.HistogramVec
	tpot       *prometheus.HistogramVec
	tokens     *prometheus.CounterVec
	records    *prometheus.CounterVec
	pick       prometheus.Histogram
	picks      *prometheus.CounterVec
	predicted  prometheus.Counter
	reported   prometheus.Counter
	ttftError  prometheus.Histogram
	retries    *prometheus.CounterVec
	shed       *prometheus.CounterVec
	disconnect *prometheus.CounterVec
	broken     *prometheus.CounterVec
	prefills   *prometheus.CounterVec
	fallbacks  *prometheus.CounterVec
	limits     *prometheus.CounterVec
	queued     *prometheus.GaugeVec
	queueWait  *prometheus.HistogramVec

	prewarms      *prometheus.CounterVec
	prewarmTokens *prometheus.CounterVec

	panics       prometheus.Counter
	refusedConns prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	seconds := prometheus.ExponentialBuckets(0.005, 2, 18) // 5 ms to 11 min
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_requests_total", Help: "Requests answered, by pool and HTTP status; 499 when the client had gone.",
		}, []string{"pool", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hearsay_request_duration_seconds", Help: "Time from a request read to its answer's end.", Buckets: seconds,
		}, []string{"pool"}),
		ttft: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hearsay_time_to_first_token_seconds", Help: "Time from a request read to the first event of its stream.", Buckets: seconds,
		}, []string{"pool"}),
		tpot: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hearsay_time_per_output_token_seconds", Help: "Mean time between output tokens of a stream.",
			Buckets: prometheus.ExponentialBuckets(0.001, 1.6, 16), // 1 ms to 1.2 s
		}, []string{"pool"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_tokens_total", Help: "Tokens as engines reported them, estimated where they do not: input holds the cached ones.",
		}, []string{"pool", "type"}),
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_usage_records_total", Help: "Answers whose tokens were counted, by source: reported by the engine, estimated, or partial: up to where the answer broke off.",
		}, []string{"pool", "source"}),
		pick: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "hearsay_pick_duration_seconds", Help: "Time to pick a replica.",
			Buckets: prometheus.ExponentialBuckets(1e-6, 2, 16), // 1 us to 33 ms
		}),
		picks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_picks_total", Help: "Picks, by pool and why the replica was chosen.",
		}, []string{"pool", "reason"}),
		predicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hearsay_predicted_cached_tokens_total", Help: "Prompt tokens expected in the cache, of requests whose engine reported them.",
		}),
		reported: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hearsay_reported_cached_tokens_total", Help: "Prompt tokens that engines reported as cached.",
		}),
		ttftError: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "hearsay_ttft_prediction_error_seconds", Help: "Distance between predicted and observed time to first token.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_retries_total", Help: "Requests sent to another replica, by what failed.",
		}, []string{"pool", "reason"}),
		shed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_shed_total", Help: "Requests refused for want of capacity.",
		}, []string{"pool", "reason"}),
		disconnect: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_client_disconnects_total", Help: "Clients that left before their answer's end.",
		}, []string{"phase"}),
		broken: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_broken_answers_total", Help: "Answers that had begun and did not come to their end, by reason; clients that left are not among them.",
		}, []string{"pool", "reason"}),
		prefills: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_prefill_hops_total", Help: "Prompts of pools whose replicas serve legs, by what came of prefilling them elsewhere.",
		}, []string{"pool", "result"}),
		fallbacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_fallbacks_total", Help: "Requests sent to another pool in the place of their own, by what was the matter with that.",
		}, []string{"pool", "to", "reason"}),
		limits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_limit_rejections_total", Help: "Requests refused for a limit of their key, by which.",
		}, []string{"kind"}),
		queued: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hearsay_queue_requests", Help: "Requests that wait at this router for a replica with room, or for a first one, by priority.",
		}, []string{"pool", "band"}),
		queueWait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hearsay_queue_wait_seconds", Help: "Time that requests waited in the pool's queue, those that did, whatever came of them.", Buckets: seconds,
		}, []string{"pool"}),
		prewarms: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_prewarm_requests_total", Help: "Prompts sent to replicas to fill their caches, by what came of them.",
		}, []string{"pool", "result"}),
		prewarmTokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_prewarm_tokens_total", Help: "Prompt tokens that replicas prefilled for their caches' sake.",
		}, []string{"pool"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hearsay_panics_total", Help: "Panics contained while serving requests.",
		}),
		refusedConns: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hearsay_refused_connections_total", Help: "Client connections refused over the limit.",
		}),
	}
	for _, p := range disconnectPhases {
		m.disconnect.WithLabelValues(string(p))
	}
	m.shed.WithLabelValues(unknownPool, "body_budget")
	m.limits.WithLabelValues(limitParallel)
	if reg != nil {
		reg.MustRegister(
			m.requests, m.duration, m.ttft, m.tpot, m.tokens, m.records, m.pick, m.picks, m.predicted, m.reported,
			m.ttftError, m.retries, m.shed, m.disconnect, m.broken, m.prefills, m.fallbacks, m.limits, m.queued, m.queueWait,
			m.prewarms, m.prewarmTokens, m.panics, m.refusedConns,
		)
	}
	return m
}

// Label values that are known before anything happens: without their series a rate
// over the first event would be missing. Codes of answers are left to come.
var (
	shedReasons = []string{
		"no_replicas", "none_eligible", shedReplicasBusy,
		"all_" + routing.ExcludedDraining, "all_" + routing.ExcludedEjected, "all_" + routing.ExcludedTrial,
		"all_" + routing.ExcludedLoading, "all_" + routing.ExcludedUnreachable, "all_" + routing.ExcludedITL,
		shedSaturated, shedQueueFull, shedDisplaced, shedTimeout, shedHoldTimeout,
	}
	retryReasons = []string{
		"connect", "connect_timeout", "connections", "busy", "timeout", "transport", "bad_response", "empty_stream",
		"error_event", "status_5xx", "prefill",
	}
	pickReasons = []string{
		routing.ReasonWarm, routing.ReasonSpill, routing.ReasonCold, routing.ReasonLoad, routing.ReasonOnly, routing.ReasonTrial,
	}
	brokenReasons = []string{
		"stream_broken", "idle_timeout", "total_timeout", "event_too_long", "error_event", "shutdown", "write_stall", "no_answer",
	}
	tokenTypes  = []string{"input", "cached", "output"}
	usageSource = []string{api.Reported.String(), api.Estimated.String(), api.Partial.String()}
)

// know makes the series of a pool that there is from now on.
func (m *metrics) know(spec *state.PoolSpec) {
	pool := spec.Name
	for _, to := range spec.Fallback {
		for _, reason := range fallbackReasons {
			m.fallbacks.WithLabelValues(pool, to, reason)
		}
	}
	for _, x := range []struct {
		of     *prometheus.CounterVec
		labels []string
	}{{m.shed, shedReasons}, {m.retries, retryReasons}, {m.picks, pickReasons}, {m.tokens, tokenTypes}, {m.records, usageSource}, {m.broken, brokenReasons}, {m.prefills, hopResults}} {
		for _, l := range x.labels {
			x.of.WithLabelValues(pool, l)
		}
	}
	if spec.Prewarm > 0 {
		for o := OutcomeServed; o <= OutcomeAborted; o++ {
			m.prewarms.WithLabelValues(pool, o.String())
		}
		m.prewarmTokens.WithLabelValues(pool)
	}
	m.requests.WithLabelValues(pool, "200")
	m.duration.WithLabelValues(pool)
	m.ttft.WithLabelValues(pool)
	m.tpot.WithLabelValues(pool)
	m.queueWait.WithLabelValues(pool)
	for b := range state.Bands {
		m.queued.WithLabelValues(pool, state.Band(b).String())
	}
}

// forget deletes the series of a pool that is gone.
func (m *metrics) forget(pool string) {
	l := prometheus.Labels{"pool": pool}
	for _, v := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{m.requests, m.duration, m.ttft, m.tpot, m.tokens, m.records, m.picks, m.retries, m.shed, m.broken, m.prefills, m.fallbacks, m.queued, m.queueWait, m.prewarms, m.prewarmTokens} {
		v.DeletePartialMatch(l)
	}
	m.fallbacks.DeletePartialMatch(prometheus.Labels{"to": pool})
}

func stack() []byte {
	b := debug.Stack()
	return b[:min(len(b), 8<<10)]
}
