package node

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md from the registry")

const metricsHead = `# Metrics

Prometheus exposition at ` + "`/metrics`" + ` on the admin port. Base units; labels are few and closed; names from clients are capped,
further ones count as ` + "`unknown` or `other`" + `. Series of removed replicas disappear. The Go and process collectors are there too.
Counters with a ` + "`_created`" + ` or histogram suffix follow the usual rules and are listed once.

| metric | labels | meaning |
|---|---|---|
`

const statesHead = `
## States of a replica

Values of the label ` + "`state` of `hearsay_replica_state`, and of `state` in `hearsay replicas`" + ` and the admin API. Exactly one of them is 1. Several
may hold at a time; the one shown is the first of draining, unreachable, half_open, ejected; then of what else readings find: unread, loading, unreadable,
wrong_model; then of failing, busy, slow_start.

| state | meaning |
|---|---|
`

const dropsHead = `
## What gossip drops

Values of the label ` + "`reason` of `hearsay_gossip_dropped_total`, and of `dropped` in `hearsay status`" + `. What was dropped is told again or made up for
by the next full rows and snapshots; only growth that lasts is a reason to look.

| reason | meaning |
|---|---|
`

// drops are the reasons, as gossip counts them.
var drops = map[string]string{
	"inbox":       "more datagrams came than were read: the machine has no time",
	"lessons":     "more was learned at once than a message holds",
	"malformed":   "what came is not understood: another release, or damage",
	"members":     "more routers than are kept",
	"old_boot":    "late messages of a router from before its restart: a few after each are usual",
	"out_of_step": "what came of a stream that has ended, or before what explains it: a few at each reconnection are usual",
	"queue":       "a peer's queue was full, or it has no stream: it is slow, or away",
	"unknown_op":  "sketch ops of a kind that a later release has",
}

// docs/metrics.md lists exactly what a node registers.
func TestMetricsAreDocumented(t *testing.T) {
	rows, reasons := metricRows(t)
	want := metricsHead + strings.Join(rows, "\n") + "\n" + statesHead
	for _, c := range state.Conditions() {
		want += fmt.Sprintf("| `%s` | %s |\n", c, c.Meaning())
	}
	want += dropsHead
	if all := slices.Sorted(maps.Keys(drops)); !slices.Equal(all, reasons) {
		t.Errorf("%q are explained, %q counted", all, reasons)
	}
	for _, r := range slices.Sorted(maps.Keys(drops)) {
		want += fmt.Sprintf("| `%s` | %s |\n", r, drops[r])
	}
	want += reasonsTail + scaleTail
	const path = "../../docs/metrics.md"
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != want {
		t.Errorf("docs/metrics.md differs from the registry: run go test ./cmd/node -run TestMetricsAreDocumented -update")
	}
	// The names that others rely on.
	for _, name := range []string{
		"hearsay_requests_total", "hearsay_request_duration_seconds", "hearsay_time_to_first_token_seconds",
		"hearsay_time_per_output_token_seconds", "hearsay_tokens_total", "hearsay_pick_duration_seconds", "hearsay_picks_total",
		"hearsay_predicted_cached_tokens_total", "hearsay_reported_cached_tokens_total", "hearsay_ttft_prediction_error_seconds",
		"hearsay_retries_total", "hearsay_shed_total", "hearsay_replica_inflight", "hearsay_replica_state", "hearsay_replica_sketch_tokens",
		"hearsay_skew_ratio", "hearsay_gossip_bytes_total", "hearsay_gossip_delay_seconds", "hearsay_gossip_dropped_total",
		"hearsay_sketch_entries", "hearsay_view_age_seconds", "hearsay_members", "hearsay_raft_leader", "hearsay_raft_term",
		"hearsay_scale_target", "hearsay_scale_actual", "hearsay_scale_decisions_total", "hearsay_scale_refusals_total",
		"hearsay_client_disconnects_total",
	} {
		if !slices.ContainsFunc(rows, func(r string) bool { return strings.HasPrefix(r, "| `"+name+"` ") }) {
			t.Errorf("no metric %s", name)
		}
	}
}

var descForm = regexp.MustCompile(`fqName: "([^"]+)", help: "([^"]*)", .*variableLabels: \{([^}]*)\}`)

func metricRows(t *testing.T) (rows, reasons []string) {
	t.Helper()
	cfg := Defaults()
	cfg.Node.DataDir = t.TempDir()
	cfg.Pools = []PoolConfig{{Name: "chat", Model: "m"}}
	n := newOnFreePorts(t, cfg)
	defer n.Close()
	ch := make(chan *prometheus.Desc, 1024)
	n.reg.Describe(ch)
	close(ch)
	seen := map[string]bool{}
	for d := range ch {
		m := descForm.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("description of another form: %s", d)
		}
		if !strings.HasPrefix(m[1], "hearsay_") || seen[m[1]] {
			continue
		}
		seen[m[1]] = true
		labels := "-"
		if m[3] != "" {
			labels = "`" + strings.ReplaceAll(m[3], ",", "`, `") + "`"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", m[1], labels, m[2]))
	}
	slices.Sort(rows)
	families, err := n.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "hearsay_gossip_dropped_total" {
			for _, m := range f.GetMetric() {
				reasons = append(reasons, m.GetLabel()[0].GetValue())
			}
		}
	}
	return rows, reasons
}

// newOnFreePorts makes a node on loopback ports that are free now.
func newOnFreePorts(t *testing.T, cfg Config) *Node {
	t.Helper()
	cfg.Listen = ListenConfig{API: "127.0.0.1:0", Admin: "127.0.0.1:0", Cluster: "127.0.0.1:0"}
	cfg.Finish()
	var err error
	for range 20 { // the port after a free one may be taken
		var n *Node
		if n, err = New(cfg, Deps{Log: zerolog.Nop()}); err == nil {
			return n
		}
	}
	t.Fatal(err)
	return nil
}
