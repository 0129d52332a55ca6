package node

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md from the registry")

const metricsHead = `# Metrics

Prometheus exposition at ` + "`/metrics`" + ` on the admin port. Base units; labels are few and closed; names from clients are capped,
further ones count as ` + "`unknown` or `other`" + `. Series of removed replicas disappear. The Go and process collectors are there too.
Counters with a ` + "`_created`" + ` or histogram suffix follow the usual rules and are listed once.

| metric | labels | meaning |
|---|---|---|
`

// docs/metrics.md lists exactly what a node registers.
func TestMetricsAreDocumented(t *testing.T) {
	rows := metricRows(t)
	want := metricsHead + strings.Join(rows, "\n") + "\n"
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

func metricRows(t *testing.T) []string {
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
	var rows []string
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
	return rows
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
