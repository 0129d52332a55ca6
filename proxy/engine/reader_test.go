package engine

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

const vllmText = `# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.4
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.6
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000",engine="0"} 1.0
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 500
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 200
# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{max_lora="1",running_lora_adapters="old",waiting_lora_adapters=""} 1.2e9
vllm:lora_requests_info{max_lora="1",running_lora_adapters="lora4, lora2",waiting_lora_adapters="lora3"} 1.3e9
process_start_time_seconds 1.7e9
`

const sglangLoads = `{"version":"0.5.9","loads":[{"dp_rank":0,"num_running_reqs":1,"num_waiting_reqs":4,"num_waiting_uncached_tokens":900,"max_total_num_tokens":204000,"token_usage":0.2},{"dp_rank":1,"num_running_reqs":2,"num_waiting_reqs":0,"max_total_num_tokens":204000,"token_usage":0.4}]}`

func read(t *testing.T, kind state.EngineKind, paths map[string]string, status int) state.Reading {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := paths[r.URL.Path]
		switch {
		case status != 0:
			w.WriteHeader(status)
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = w.Write([]byte(body))
		}
	}))
	defer srv.Close()
	rd := NewReader(srv.Client(), func(string) string { return "" })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return rd.Read(ctx, state.Replica{ID: "a", URL: srv.URL, Engine: kind})
}

func TestReadVLLM(t *testing.T) {
	r := read(t, state.EngineAuto, map[string]string{"/version": `{"version":"0.9"}`, "/metrics": vllmText}, 0)
	if !r.OK || r.Kind != state.EngineVLLM || r.Running != 5 || r.Waiting != 7 || r.KVUsage != 0.5 ||
		r.Capacity != 16000 || r.Queries != 500 || r.Hits != 200 || r.Started != 1.7e9 {
		t.Errorf("reading: %+v", r)
	}
	if !slices.Equal(r.Adapters, []string{"lora4", "lora2"}) {
		t.Errorf("adapters: %q", r.Adapters)
	}
}

func TestOldVLLMNamesAndMissingGaugesAreUnknown(t *testing.T) {
	r := read(t, state.EngineVLLM, map[string]string{"/metrics": "vllm:gpu_cache_usage_perc 0.25\n"}, 0)
	if !r.OK || r.KVUsage != 0.25 || r.Running != -1 || r.Waiting != -1 || r.Capacity != -1 {
		t.Errorf("reading: %+v", r)
	}
}

func TestReadSGLang(t *testing.T) {
	r := read(t, state.EngineAuto, map[string]string{"/server_info": `{}`, "/v1/loads": sglangLoads}, 0)
	if !r.OK || r.Kind != state.EngineSGLang || r.Running != 3 || r.Waiting != 4 || r.WaitingUncached != 900 || r.Capacity != 408000 {
		t.Errorf("reading: %+v", r)
	}
	old := read(t, state.EngineSGLang, map[string]string{"/metrics": "sglang:num_running_reqs 162.0\nsglang:token_usage 0.55\n"}, 0)
	if !old.OK || old.Running != 162 || old.KVUsage != 0.55 || old.Waiting != -1 {
		t.Errorf("reading from metrics: %+v", old)
	}
}

func TestReadLlamaCpp(t *testing.T) {
	props := `{"total_slots":4,"default_generation_settings":{"n_ctx":2048}}`
	r := read(t, state.EngineAuto, map[string]string{"/props": props, "/metrics": "llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n"}, 0)
	if !r.OK || r.Kind != state.EngineLlamaCpp || r.Capacity != 8192 || r.Running != 2 || r.Waiting != 1 || r.KVUsage != 0.5 {
		t.Errorf("reading: %+v", r)
	}
	off := read(t, state.EngineLlamaCpp, map[string]string{"/props": props}, 0)
	if !off.OK || off.Running != -1 {
		t.Errorf("with metrics switched off: %+v", off)
	}
}

func TestUnreadableIsNotIdle(t *testing.T) {
	f := func(name string, r state.Reading, loading bool) {
		t.Helper()
		if r.OK || r.Err == "" || r.Running != -1 || r.Loading != loading {
			t.Errorf("%s: %+v", name, r)
		}
	}
	f("error status", read(t, state.EngineVLLM, nil, 500), false)
	f("loading", read(t, state.EngineAuto, nil, 503), true)
	f("empty exposition", read(t, state.EngineVLLM, map[string]string{"/metrics": ""}, 0), false)
	f("not an exposition", read(t, state.EngineVLLM, map[string]string{"/metrics": "<html>"}, 0), false)
	rd := NewReader(http.DefaultClient, func(string) string { return "" })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	dead := rd.Read(ctx, state.Replica{ID: "a", URL: "http://127.0.0.1:1", Engine: state.EngineAuto})
	f("refused", dead, false)
	if !dead.Refused {
		t.Errorf("a refused connection: %+v", dead)
	}
}

func TestCredentialIsSent(t *testing.T) {
	var got string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		_, _ = w.Write([]byte(vllmText))
	}))
	defer srv.Close()
	rd := NewReader(srv.Client(), func(pool string) string { return "key-of-" + pool })
	rd.Read(t.Context(), state.Replica{ID: "a", Pool: "chat", URL: srv.URL, Engine: state.EngineVLLM})
	if got != "Bearer key-of-chat" {
		t.Errorf("authorization: %q", got)
	}
}

func FuzzMetrics(f *testing.F) {
	f.Add([]byte(vllmText))
	f.Add([]byte("vllm:num_requests_running NaN\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := state.UnknownReading("a")
		_ = parseMetrics(b, vllmMetrics, &r)
		_ = parseMetrics(b, sglangMetrics, &r)
		for _, v := range []float64{r.Running, r.Waiting, r.KVUsage, r.Queries, r.Hits, r.Capacity} {
			if v != v || v > maxFigure {
				t.Fatalf("figure %v out of %q", v, b)
			}
		}
		_ = parseLoads(b, &r)
	})
}

// Most of an exposition is not parsed at all; what is wrong there does not matter.
func TestOnlyWantedFamiliesAreParsed(t *testing.T) {
	text := "# HELP other x\n# TYPE other histogram\nother_bucket{le=\"oops\n" + vllmText + "garbage without value\n"
	r := state.UnknownReading("a")
	if err := parseMetrics([]byte(text), vllmMetrics, &r); err != nil || r.Running != 5 || r.Capacity != 16000 {
		t.Errorf("%v: %+v", err, r)
	}
}

func BenchmarkParse(b *testing.B) {
	text := []byte(vllmText)
	for i := range 600 { // a real engine's histograms
		text = fmt.Appendf(text, "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"%d\",model_name=\"m\"} %d\n", i, i)
	}
	for b.Loop() {
		r := state.UnknownReading("a")
		if err := parseMetrics(text, vllmMetrics, &r); err != nil {
			b.Fatal(err)
		}
	}
}
