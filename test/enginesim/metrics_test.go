package enginesim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// families parses what /metrics says.
func families(t *testing.T, s *sim) map[string]*dto.MetricFamily {
	t.Helper()
	status, body := s.get("GET", "/metrics", "")
	if status != 200 {
		t.Fatalf("metrics: %d", status)
	}
	p := expfmt.NewTextParser(model.UTF8Validation)
	m, err := p.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatalf("%v in\n%s", err, body)
	}
	return m
}

// scrape sums the samples of each family that are not histograms.
func scrape(t *testing.T, s *sim) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for name, f := range families(t, s) {
		for _, m := range f.GetMetric() {
			out[name] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			out[name] += float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func labels(m *dto.Metric) string {
	var out []string
	for _, l := range m.GetLabel() {
		out = append(out, l.GetName()+"="+l.GetValue())
	}
	return strings.Join(out, " ")
}

func TestVLLMMetrics(t *testing.T) {
	cfg := simpleConfig()
	cfg.Adapters, cfg.MaxLoRAs, cfg.KVTokens, cfg.MaxSeqs = []string{"ad1", "ad2"}, 1, 1600, 2
	bubble(t, cfg, func(t *testing.T, s *sim) {
		s.ask(textPath, `{"model":"m","prompt":`+tokenPrompt(100)+`,"max_tokens":5}`)
		s.ask(textPath, `{"model":"m","prompt":`+tokenPrompt(100)+`,"max_tokens":5}`)
		for _, m := range []string{"ad1", "ad2", "m"} { // the second adapter waits for the first
			go func() {
				_, _ = s.broken(`{"model":"` + m + `","prompt":` + tokenPrompt(160) + `,"max_tokens":1000,"stream":true}`)
			}()
			time.Sleep(msec)
		}
		time.Sleep(time.Second)
		got := scrape(t, s)
		for name, want := range map[string]float64{
			"vllm:num_requests_running": 2, "vllm:num_requests_waiting": 1,
			"vllm:prefix_cache_queries_total": 200 + 320, "vllm:prefix_cache_hits_total": 96 + 96,
			"vllm:prompt_tokens_total": 200 + 320, "vllm:num_preemptions_total": 0, "vllm:request_success_total": 2,
			"vllm:cache_config_info": 1, "vllm:e2e_request_latency_seconds": 2, "vllm:time_to_first_token_seconds": 4,
		} {
			if got[name] != want {
				t.Errorf("%s = %v, want %v", name, got[name], want)
			}
		}
		if v := got["vllm:kv_cache_usage_perc"]; v <= 0.2 || v >= 1 {
			t.Errorf("kv use %v", v)
		}
		if v := got["vllm:generation_tokens_total"]; v != float64(s.Totals().GeneratedTokens) || v < 100 {
			t.Errorf("generated %v", v)
		}
		fams := families(t, s)
		if got := labels(fams["vllm:num_requests_running"].GetMetric()[0]); got != "engine=0 model_name=m" {
			t.Errorf("labels %s", got)
		}
		if got := labels(fams["vllm:cache_config_info"].GetMetric()[0]); !strings.Contains(got, "block_size=16") || !strings.Contains(got, "num_gpu_blocks=100") {
			t.Errorf("cache config %s", got)
		}
		lora := fams["vllm:lora_requests_info"].GetMetric()[0]
		if got := labels(lora); got != "max_lora=1 running_lora_adapters=ad1 waiting_lora_adapters=ad2" {
			t.Errorf("adapters %s", got)
		}
		if v := lora.GetGauge().GetValue(); v != float64(time.Now().UnixMicro())/1e6 {
			t.Errorf("adapters at %v", v)
		}
		s.client.CloseIdleConnections()
		s.Restart()
	})
}

func TestSGLangFace(t *testing.T) {
	cfg := simpleConfig()
	cfg.Kind, cfg.MaxSeqs, cfg.MaxQueue = SGLang, 1, 1
	bubble(t, cfg, func(t *testing.T, s *sim) {
		long := `{"model":"m","prompt":` + tokenPrompt(160) + `,"max_tokens":1000,"stream":true}`
		go func() { _, _ = s.broken(long) }()
		time.Sleep(100 * msec)
		go func() {
			_, _ = s.broken(`{"rid":"waiting1","prompt":` + tokenPrompt(176) + `,"max_tokens":3,"stream":true}`)
		}()
		time.Sleep(100 * msec)
		if status, body := s.post(textPath, long); status != 503 || !strings.Contains(body, `"message":"The request queue is full."`) || !strings.HasPrefix(body, `{"object":"error",`) {
			t.Errorf("full: %d %s", status, body)
		}
		_, loads := s.get("GET", "/v1/loads?include=core,queues,memory", "")
		for _, want := range []string{`"num_running_reqs":1`, `"num_waiting_reqs":1`, `"num_waiting_uncached_tokens":16`, `"max_total_num_tokens":400000`, `"dp_rank_count":1`} {
			if !strings.Contains(loads, want) {
				t.Errorf("no %s in %s", want, loads)
			}
		}
		m := scrape(t, s)
		if m["sglang:num_running_reqs"] != 1 || m["sglang:num_queue_reqs"] != 1 || m["sglang:token_usage"] <= 0 || m["sglang:prompt_tokens_total"] != 160 {
			t.Errorf("metrics %v", m)
		}
		if _, body := s.get("GET", "/server_info", ""); !strings.Contains(body, `"max_total_num_tokens":400000`) {
			t.Errorf("server info %s", body)
		}
		if status, _ := s.get("GET", "/version", ""); status != 404 {
			t.Errorf("/version: %d", status)
		}
		if status, _ := s.post("/abort_request", `{}`); status != 400 {
			t.Errorf("abort without rid: %d", status)
		}
		if n := s.AbortRequests("other"); n != 0 {
			t.Errorf("aborted %d requests of another rid", n)
		}
		if status, _ := s.post("/abort_request", `{"rid":"wait"}`); status != 200 || s.Load().Waiting != 0 || s.Record().Aborted != 1 {
			t.Errorf("abort: %d, %+v", status, s.Load())
		}
		if status, _ := s.post("/flush_cache", ""); status != 400 {
			t.Errorf("flush with running requests: %d", status)
		}
		s.Restart()
	})
}

func TestLlamaCppFace(t *testing.T) {
	cfg := simpleConfig()
	cfg.Kind, cfg.MaxSeqs, cfg.MaxModelLen = LlamaCpp, 2, 500
	bubble(t, cfg, func(t *testing.T, s *sim) {
		body := fmt.Sprintf(`{"prompt":%s,"max_tokens":3,"stream":true}`, tokenPrompt(100))
		_, _ = s.post(textPath, body)
		_, got := s.post(textPath, body)
		for _, want := range []string{`"choices":[],"usage"`, `"cache_n":96`, `"prompt_n":4`, `"predicted_n":3`} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in %s", want, got)
			}
		}
		if _, got := s.get("GET", "/props", ""); !strings.Contains(got, `"total_slots":2`) {
			t.Errorf("props %s", got)
		}
		if _, got := s.get("GET", "/slots", ""); strings.Count(got, `"is_processing":false`) != 2 {
			t.Errorf("slots %s", got)
		}
		if m := scrape(t, s); m["llamacpp:prompt_tokens_total"] != 104 || m["llamacpp:tokens_predicted_total"] != 6 {
			t.Errorf("metrics %v", m)
		}
		if status, got := s.post(textPath, fmt.Sprintf(`{"prompt":%s}`, tokenPrompt(600))); status != 400 || !strings.Contains(got, `"exceed_context_size_error"`) || !strings.Contains(got, `"n_prompt_tokens":600`) {
			t.Errorf("overflow: %d %s", status, got)
		}
		s.fault(`{"kind":"loading"}`)
		if status, got := s.get("GET", "/health", ""); status != 503 || got != `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}` {
			t.Errorf("loading: %d %s", status, got)
		}
	})
}
