package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	pmodel "github.com/prometheus/common/model"

	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// contract are the metric names that operators rely on, with their type and labels.
var contract = map[string]struct {
	kind   dto.MetricType
	labels string // space-separated, sorted
}{
	"hearsay_requests_total":                {dto.MetricType_COUNTER, "code pool"},
	"hearsay_request_duration_seconds":      {dto.MetricType_HISTOGRAM, "pool"},
	"hearsay_time_to_first_token_seconds":   {dto.MetricType_HISTOGRAM, "pool"},
	"hearsay_time_per_output_token_seconds": {dto.MetricType_HISTOGRAM, "pool"},
	"hearsay_tokens_total":                  {dto.MetricType_COUNTER, "pool type"},
	"hearsay_usage_records_total":           {dto.MetricType_COUNTER, "pool source"},
	"hearsay_pick_duration_seconds":         {dto.MetricType_HISTOGRAM, ""},
	"hearsay_picks_total":                   {dto.MetricType_COUNTER, "pool reason"},
	"hearsay_predicted_cached_tokens_total": {dto.MetricType_COUNTER, ""},
	"hearsay_reported_cached_tokens_total":  {dto.MetricType_COUNTER, ""},
	"hearsay_ttft_prediction_error_seconds": {dto.MetricType_HISTOGRAM, ""},
	"hearsay_retries_total":                 {dto.MetricType_COUNTER, "pool reason"},
	"hearsay_queue_requests":                {dto.MetricType_GAUGE, "band pool"},
	"hearsay_limit_rejections_total":        {dto.MetricType_COUNTER, "kind"},
	"hearsay_replica_inflight":              {dto.MetricType_GAUGE, "pool replica"},
	"hearsay_replica_state":                 {dto.MetricType_GAUGE, "replica state"},
	"hearsay_replica_sketch_tokens":         {dto.MetricType_GAUGE, "pool replica"},
	"hearsay_skew_ratio":                    {dto.MetricType_GAUGE, "pool"},
	"hearsay_gossip_bytes_total":            {dto.MetricType_COUNTER, "direction kind"},
	"hearsay_gossip_delay_seconds":          {dto.MetricType_HISTOGRAM, ""},
	"hearsay_gossip_dropped_total":          {dto.MetricType_COUNTER, "reason"},
	"hearsay_sketch_entries":                {dto.MetricType_GAUGE, ""},
	"hearsay_view_age_seconds":              {dto.MetricType_GAUGE, "signal"},
	"hearsay_members":                       {dto.MetricType_GAUGE, "state"},
	"hearsay_raft_leader":                   {dto.MetricType_GAUGE, ""},
	"hearsay_raft_term":                     {dto.MetricType_GAUGE, ""},
	"hearsay_scale_target":                  {dto.MetricType_GAUGE, "pool role"},
	"hearsay_scale_actual":                  {dto.MetricType_GAUGE, "pool role"},
	"hearsay_scale_decisions_total":         {dto.MetricType_COUNTER, "direction pool reason"},
	"hearsay_scale_refusals_total":          {dto.MetricType_COUNTER, "reason"},
	"hearsay_client_disconnects_total":      {dto.MetricType_COUNTER, "phase"},
	"go_goroutines":                         {dto.MetricType_GAUGE, ""},
	"process_cpu_seconds_total":             {dto.MetricType_COUNTER, ""},
}

// leadersOnly are those that only the router that leads must have.
var leadersOnly = []string{"hearsay_scale_target", "hearsay_scale_actual", "hearsay_scale_decisions_total"}

// hearsay_shed_total, of the documented names, has series only once a request was
// refused for want of room, and hearsay_limit_rejections_total once one was for a limit
// of its key: no load of this test brings that about.

func TestMetricsAfterTraffic(t *testing.T) {
	p := healthy(t)
	joined(t, p.Routers)
	for _, r := range p.Routers {
		whole(t, r.API+"/v1/chat/completions", chat(long("metrics", 40), 4, true, ""))
		whole(t, r.API+"/v1/chat/completions", chat(long("metrics", 40), 4, true, ""))
		leave(t, r, "metrics-"+r.Name)
	}
	// Every engine fails once: the second try fails too, and the first was a retry.
	for _, r := range p.Routers {
		for _, e := range p.Engines {
			fault(t, e, enginesim.Fault{Kind: enginesim.FaultStatus, Status: 500, Count: 1})
		}
		whole(t, r.API+"/v1/chat/completions", chat("retried", 1, false, ""))
		for _, e := range p.Engines {
			fault(t, e, enginesim.Fault{Kind: enginesim.FaultNone})
		}
	}
	lead, _ := leader(t, p.Routers)
	poll(t, 2*patience, "the leader counts the decision that the pool's bounds ask for", func() (bool, string) {
		n := sum(scrape(t, lead)["hearsay_scale_decisions_total"], "pool", "chat")
		return n > 0, fmt.Sprintf("%v; %+v", n, ask[[]decision](t, lead, "decisions"))
	})
	for _, r := range p.Routers {
		families := scrape(t, r)
		for name, want := range contract {
			f := families[name]
			if f == nil {
				if r == lead || !slices.Contains(leadersOnly, name) {
					t.Errorf("%s does not expose %s", r.Name, name)
				}
				continue
			}
			if f.GetType() != want.kind {
				t.Errorf("%s of %s is a %v, want %v", name, r.Name, f.GetType(), want.kind)
			}
			if f.GetHelp() == "" {
				t.Errorf("%s has no help", name)
			}
			for _, m := range f.Metric {
				if got := labels(m); got != want.labels {
					t.Errorf("%s of %s has labels %q, want %q", name, r.Name, got, want.labels)
					break
				}
			}
		}
		for name := range maps.Keys(families) {
			if !strings.HasPrefix(name, "hearsay_") && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") && !strings.HasPrefix(name, "promhttp_") {
				t.Errorf("%s exposes %s", r.Name, name)
			}
		}
		if n := sum(families["hearsay_requests_total"], "code", "200"); n < 2 {
			t.Errorf("%s counts %v good requests", r.Name, n)
		}
		if n := sum(families["hearsay_members"], "state", "alive"); n != 3 {
			t.Errorf("%s counts %v routers alive", r.Name, n)
		}
		if n := sum(families["hearsay_gossip_bytes_total"], "", ""); n == 0 {
			t.Errorf("%s counts no gossip", r.Name)
		}
	}
}

// leave sends a streamed request and goes after its first event.
func leave(t *testing.T, r *harness.Proc, id string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	resp := post(ctx, t, r.API+"/v1/chat/completions", chat("leave", 3000, true, ""), "x-request-id", id)
	var b [16]byte
	_, err := io.ReadFull(resp.Body, b[:])
	cancel()
	_ = resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	poll(t, patience, r.Name+" counts the client that left", func() (bool, string) {
		n := sum(scrape(t, r)["hearsay_client_disconnects_total"], "", "")
		return n > 0, fmt.Sprint(n)
	})
}

// scrape reads a router's metrics as Prometheus would.
func scrape(t *testing.T, r *harness.Proc) map[string]*dto.MetricFamily {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.Admin+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(pmodel.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatalf("metrics of %s: %v", r.Name, err)
	}
	return families
}

func labels(m *dto.Metric) string {
	var names []string
	for _, l := range m.Label {
		names = append(names, l.GetName())
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// sum adds up the values of a counter or gauge whose label has a value.
func sum(f *dto.MetricFamily, label, value string) float64 {
	total := 0.0
	for _, m := range f.GetMetric() {
		ok := label == ""
		for _, l := range m.Label {
			ok = ok || l.GetName() == label && l.GetValue() == value
		}
		if ok {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return total
}
