package engine

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/hearsay-llm/hearsay/state"
)

func unknowns(n int) (ranks []state.Replica, out []state.Reading) {
	for i := range n {
		ranks = append(ranks, state.Replica{ID: state.ReplicaID(fmt.Sprint("r", i)), Rank: i})
		out = append(out, state.UnknownReading(ranks[i].ID))
	}
	return ranks, out
}

// Ranks are told apart by their label; what has none holds for each, if it is no
// sum.
func TestRanksAreToldApart(t *testing.T) {
	ranks, out := unknowns(3)
	if err := readExposition([]byte(vllmText), &vllmDialect, ranks, out); err != nil {
		t.Fatal(err)
	}
	for i, want := range []state.Reading{
		{Running: 3, Waiting: 7, KVUsage: 0.4, Capacity: 16000, Queries: 500, Started: 1.7e9},
		{Running: 2, Waiting: -1, KVUsage: 0.6, Capacity: 8000, Queries: 30, Started: 1.7e9},
		{Running: -1, Waiting: -1, KVUsage: -1, Capacity: -1, Queries: -1, Started: 1.7e9},
	} {
		if r := out[i]; r.Running != want.Running || r.Waiting != want.Waiting || r.KVUsage != want.KVUsage || r.Capacity != want.Capacity ||
			r.Queries != want.Queries || r.Started != want.Started || len(r.AdaptersRunning) != 2 || r.AdapterSlots != 1 {
			t.Errorf("rank %d: %+v", i, r)
		}
	}
	_, out = unknowns(3)
	old := "vllm:num_requests_running{model_name=\"m\"} 5\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"10\"} 1\n"
	if err := readExposition([]byte(old), &vllmDialect, ranks, out); err != nil {
		t.Fatal(err)
	}
	for i, r := range out {
		if r.Running != -1 || r.Capacity != 160 {
			t.Errorf("without labels, rank %d: %+v", i, r)
		}
	}
	_, out = unknowns(3)
	if err := readLoads([]byte(sglangLoads), ranks, out); err != nil {
		t.Fatal(err)
	}
	if a, b, c := out[0], out[1], out[2]; a.Running != 1 || a.Waiting != 4 || a.WaitingUncached != 900 || a.Capacity != 204000 || a.KVUsage != 0.2 ||
		b.Running != 2 || b.WaitingUncached != -1 || c.Running != -1 {
		t.Errorf("loads: %+v", out)
	}
}

// One line that is malformed hides nothing.
func TestOddLinesArePassedOver(t *testing.T) {
	f := func(name, text string, want float64) {
		t.Helper()
		ranks, out := unknowns(1)
		err := readExposition([]byte(text), &vllmDialect, ranks, out)
		if out[0].Running != want || (err != nil) != (want < 0) {
			t.Errorf("%s: %v, %+v", name, err, out[0])
		}
	}
	f("garbage around", "# HELP other x\nother_bucket{le=\"oops\n"+vllmText+"garbage without value\n", 5)
	f("no newline at the end", "vllm:num_requests_running 2", 2)
	f("a timestamp", "vllm:num_requests_running{a=\"b\"} 2 1395066363000\n", 2)
	f("braces and quotes in labels", `vllm:num_requests_running{m="a}\"b{",n="\\"} 4`+"\n", 4)
	f("no number", "vllm:num_requests_running NaN\n", -1)
	f("negative", "vllm:num_requests_running -1\n", -1)
	f("absurd", "vllm:num_requests_running 1e300\n", -1)
	f("infinite", "vllm:num_requests_running +Inf\n", -1)
	f("open label set", "vllm:num_requests_running{a=\"b 3\n", -1)
	f("longer name", "vllm:num_requests_running_by_x 3\n", -1)
}

func TestUptimeByTheEnginesClock(t *testing.T) {
	at := time.Unix(1_700_000_000, 400e6)
	f := func(name string, ahead time.Duration, readings int, slack time.Duration) {
		t.Helper()
		p := &profile{}
		began := at.Add(-time.Minute)
		started := float64(began.Add(ahead).UnixMicro()) / 1e6
		now := at
		for range readings {
			now = now.Add(130 * time.Millisecond)
			p.noteClock(now.Add(ahead).Truncate(time.Second), now)
		}
		got := p.uptime(started, now) - now.Sub(began)
		if got < -slack || got > slack {
			t.Errorf("%s: off by %v", name, got)
		}
	}
	f("clocks agree", 0, 1, time.Microsecond)
	f("a little ahead", 20*time.Millisecond, 50, 20*time.Millisecond)
	f("an hour ahead, one reading", time.Hour, 1, 1100*time.Millisecond)
	f("an hour behind, one reading", -time.Hour, 1, 1100*time.Millisecond)
	f("an hour behind, many readings", -time.Hour, 50, 600*time.Millisecond)
	p := &profile{}
	if p.uptime(1, at) >= 0 {
		t.Error("an uptime without a clock")
	}
	p.noteClock(at.Add(time.Hour), at)
	p.noteClock(at, at) // set
	if d := p.uptime(float64(at.Add(-time.Minute).Unix()), at); d < time.Minute || d > time.Minute+time.Second {
		t.Errorf("after the clock was set: %v", d)
	}
}

func TestLoadHeader(t *testing.T) {
	f := func(value string, want Load, ok bool) {
		t.Helper()
		if got, gotOK := LoadHeader([]byte(value)); got != want || gotOK != ok {
			t.Errorf("%q: %+v %v", value, got, gotOK)
		}
	}
	f(`JSON {"named_metrics": {"kv_cache_usage_perc": 0.4, "num_requests_waiting": 3.0}}`, Load{0.4, 3}, true)
	f(`{"named_metrics": {"num_requests_waiting": 0}}`, Load{-1, 0}, true)
	f(`JSON {"named_metrics": {"gpu_cache_usage_perc": 1}}`, Load{1, -1}, true)
	f(`JSON {"cpu_utilization": 0.3}`, Load{-1, -1}, false)
	f(`JSON {"named_metrics": {"kv_cache_usage_perc": 40}}`, Load{-1, -1}, false)
	f(`JSON {"named_metrics": {"num_requests_waiting": -4}}`, Load{-1, -1}, false)
	f(`TEXT named_metrics.kv_cache_usage_perc=0.4`, Load{-1, -1}, false)
	f(``, Load{-1, -1}, false)
	f(`JSON {`, Load{-1, -1}, false)
}

func FuzzLoadHeader(f *testing.F) {
	f.Add([]byte(`JSON {"named_metrics": {"kv_cache_usage_perc": 0.4, "num_requests_waiting": 3.0}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, ok := LoadHeader(b)
		if ok != (l.KVUsage >= 0 || l.Waiting >= 0) || l.KVUsage > 1 || l.Waiting > maxFigure || l.KVUsage != l.KVUsage {
			t.Fatalf("%+v %v of %q", l, ok, b)
		}
	})
}

func FuzzReadings(f *testing.F) {
	for _, s := range []string{vllmText, sglangText, sglangLoads, llamaText, "vllm:num_requests_running NaN\n", `vllm:lora_requests_info{running_lora_adapters="a\"b,c"} 1`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, n := range []int{1, 2} {
			ranks, out := unknowns(n)
			for _, d := range []*dialect{&vllmDialect, &sglangDialect, &llamaDialect} {
				_ = readExposition(b, d, ranks, out)
			}
			_ = readLoads(b, ranks, out)
			for _, r := range out {
				for _, v := range []float64{r.Running, r.Waiting, r.KVUsage, r.Queries, r.Hits, r.Capacity, r.BlockSize, r.WaitingUncached, r.Processed, r.Started} {
					if v != v || v > maxFigure || v < -1 {
						t.Fatalf("figure %v out of %q", v, b)
					}
				}
			}
		}
		sameAsLibrary(t, b)
	})
}

// nameInBraces is how names are written that are none of the classic ones, as
// {"a.b"} 1. No engine has such a name, so they are not read.
var nameInBraces = regexp.MustCompile(`(?m)^[ \t]*\{`)

// sameAsLibrary compares samples with the Prometheus parser where that one accepts
// the whole exposition.
func sameAsLibrary(t *testing.T, b []byte) {
	if nameInBraces.Match(b) {
		return
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	fams, err := parser.TextToMetricFamilies(bytes.NewReader(b))
	if err != nil {
		return
	}
	want := map[string]float64{}
	for name, f := range fams {
		for _, m := range f.GetMetric() {
			if m.GetHistogram() != nil || m.GetSummary() != nil || bytes.ContainsAny([]byte(name), "{} \t\"") {
				return
			}
			v := m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
			if !math.IsNaN(v) && v >= 0 && v <= maxFigure {
				want[name] += v
			}
		}
	}
	got := map[string]float64{}
	samples(b, func([]byte) bool { return true }, func(s *sample) { got[string(s.name)] += s.value })
	for name, v := range want {
		if math.Abs(got[name]-v) > 1e-9*v {
			t.Fatalf("%s is %v, the library reads %v in %q", name, got[name], v, b)
		}
	}
}

func BenchmarkExposition(b *testing.B) {
	text := []byte(vllmText)
	for i := range 700 { // a real engine's histograms: about 60 kB
		text = fmt.Appendf(text, "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"%d\",model_name=\"Qwen/Qwen3-8B\"} %d.0\n", i, i)
	}
	ranks, out := unknowns(1)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if err := readExposition(text, &vllmDialect, ranks, out); err != nil {
			b.Fatal(err)
		}
	}
}
