package engine

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Bytes as engines write them.
const (
	vllmText = `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-8B"} 3.0
vllm:num_requests_running{engine="1",model_name="Qwen/Qwen3-8B"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen3-8B"} 7.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="Qwen/Qwen3-8B",reason="capacity"} 99.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-8B"} 0.4
vllm:kv_cache_usage_perc{engine="1",model_name="Qwen/Qwen3-8B"} 0.6
vllm:gpu_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-8B"} 0.9
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="1000",swap_space_bytes="4294967296.0"} 1.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="1",num_gpu_blocks="500",swap_space_bytes="4294967296.0"} 1.0
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{engine="0",model_name="Qwen/Qwen3-8B"} 500
vllm:prefix_cache_queries_total{engine="1",model_name="Qwen/Qwen3-8B"} 30
vllm:prefix_cache_hits_total{engine="0",model_name="Qwen/Qwen3-8B"} 200
vllm:prompt_tokens_total{engine="0",model_name="Qwen/Qwen3-8B"} 8.128902e+06
# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{max_lora="1",running_lora_adapters="old",waiting_lora_adapters=""} 1.157894567e+09
vllm:lora_requests_info{max_lora="1",running_lora_adapters="lora4,lora2",waiting_lora_adapters="lora3"} 1.257894567e+09
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="Qwen/Qwen3-8B"} 4.0
process_start_time_seconds 1.7e9
`
	sglangLoads = `{"timestamp":"2026-01-01T00:00:00Z","version":"0.5.9","dp_rank_count":2,"loads":[` +
		`{"dp_rank":0,"num_running_reqs":1,"num_waiting_reqs":4,"num_waiting_uncached_tokens":900,"num_used_tokens":30000,"num_total_tokens":30000,` +
		`"max_total_num_tokens":204000,"max_running_requests":4,"token_usage":0.2,"gen_throughput":41.5,"cache_hit_rate":0.5,"utilization":0.2},` +
		`{"dp_rank":1,"num_running_reqs":2,"num_waiting_reqs":0,"max_total_num_tokens":204000,"token_usage":0.4}]}`
	sglangText = `sglang:num_running_reqs{model_name="m",tp_rank="0",pp_rank="0",moe_ep_rank="0"} 162.0
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 3.0
sglang:token_usage{model_name="m"} 0.55
sglang:cache_hit_rate{model_name="m"} 0.3
sglang:prompt_tokens_total{model_name="m"} 4000
`
	sglangServer = `{"model_path":"m","version":"0.4.1","max_total_num_tokens":204000,"page_size":64,"dp_size":1}`
	llamaServer  = `{"default_generation_settings":{"id":0,"n_ctx":2048},"total_slots":4,"model_path":"../models/x.gguf","is_sleeping":false,"build_info":"b5000-abc"}`
	llamaText    = `# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 1200
llamacpp:requests_processing 2
llamacpp:requests_deferred 1
`
	llamaSlots = `[{"id":0,"n_ctx":2048,"is_processing":true},{"id":1,"n_ctx":2048,"is_processing":false},{"id":2,"n_ctx":2048,"is_processing":true},{"id":3,"n_ctx":2048,"is_processing":true}]`
	llamaOff   = `{"error":{"code":501,"message":"This server does not support metrics endpoint.","type":"not_supported_error"}}`
)

// server is an engine of canned answers that may be changed, and counts.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	paths  map[string]string
	status map[string]int // of a path; "" = of every path
	asked  map[string]int
	hang   map[string]bool
}

func serve(t *testing.T, paths map[string]string) *server {
	t.Helper()
	s := &server{paths: paths, status: map[string]int{}, asked: map[string]int{}, hang: map[string]bool{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		body, ok := s.paths[r.URL.Path]
		st := s.status[r.URL.Path]
		if st == 0 {
			st = s.status[""]
		}
		hang := s.hang[r.URL.Path]
		s.asked[r.URL.Path]++
		s.mu.Unlock()
		if hang {
			<-r.Context().Done()
			return
		}
		switch {
		case st != 0:
			w.WriteHeader(st)
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *server) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

func newReader(t *testing.T) *Reader {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return NewReader(&http.Client{Transport: tr}, func(string) string { return "" })
}

func (s *server) read(t *testing.T, rd *Reader, kind state.EngineKind, ranks int) []state.Reading {
	t.Helper()
	var list []state.Replica
	for i := range ranks {
		list = append(list, state.Replica{ID: state.ReplicaID(rune('a' + i)), URL: s.URL, Engine: kind, Rank: i})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return rd.Read(ctx, list)
}

func (s *server) one(t *testing.T, kind state.EngineKind) state.Reading {
	t.Helper()
	return s.read(t, newReader(t), kind, 1)[0]
}

func TestReadVLLM(t *testing.T) {
	s := serve(t, map[string]string{"/version": `{"version":"0.11.0"}`, "/metrics": vllmText, "/health": ""})
	r := s.one(t, state.EngineAuto)
	if !r.OK || r.Kind != state.EngineVLLM || r.Version != "0.11.0" || r.Running != 5 || r.Waiting != 7 || r.KVUsage != 0.5 ||
		r.Capacity != 24000 || r.BlockSize != 16 || r.Queries != 530 || r.Hits != 200 || r.Processed != 8128902 || r.Started != 1.7e9 || r.Slots != -1 {
		t.Errorf("reading: %+v", r)
	}
	if !slices.Equal(r.AdaptersRunning, []string{"lora4", "lora2"}) || !slices.Equal(r.AdaptersWaiting, []string{"lora3"}) || r.AdapterSlots != 1 {
		t.Errorf("adapters: %q, %q, %d", r.AdaptersRunning, r.AdaptersWaiting, r.AdapterSlots)
	}
	if up := time.Since(time.Unix(1.7e9, 0)) - r.Uptime; up < 0 || up > time.Second {
		t.Errorf("uptime %v", r.Uptime)
	}
}

func TestMissingGaugesAreUnknown(t *testing.T) {
	s := serve(t, map[string]string{"/metrics": "vllm:gpu_cache_usage_perc{model_name=\"m\"} 0.25\n"}) // an old release, without engine labels
	r := s.one(t, state.EngineVLLM)
	if !r.OK || r.KVUsage != 0.25 || r.Running != -1 || r.Waiting != -1 || r.Capacity != -1 || r.BlockSize != -1 || r.Uptime != -1 || r.AdaptersRunning != nil {
		t.Errorf("reading: %+v", r)
	}
}

func TestReadSGLang(t *testing.T) {
	s := serve(t, map[string]string{"/server_info": sglangServer, "/v1/loads": sglangLoads, "/health": "", "/v1/models": "{}"})
	r := s.one(t, state.EngineAuto)
	if !r.OK || r.Kind != state.EngineSGLang || r.Version != "0.5.9" || r.Running != 3 || r.Waiting != 4 || r.WaitingUncached != 900 ||
		r.Capacity != 408000 || r.KVUsage < 0.29 || r.KVUsage > 0.31 || r.BlockSize != 64 {
		t.Errorf("reading: %+v", r)
	}
}

func TestReadSGLangWithoutLoads(t *testing.T) {
	f := func(name, info, text string) {
		t.Helper()
		s := serve(t, map[string]string{info: sglangServer, "/metrics": text})
		rd := newReader(t)
		for range 3 {
			r := s.read(t, rd, state.EngineAuto, 1)[0]
			if !r.OK || r.Kind != state.EngineSGLang || r.Running != 162 || r.KVUsage != 0.55 || r.Capacity != 204000 || r.Processed != 4000 || r.WaitingUncached != -1 {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if n := s.count("/v1/loads"); n != 1 {
			t.Errorf("%s: asked %d times for what is not there", name, n)
		}
	}
	f("new names", "/server_info", sglangText)
	f("old names", "/get_server_info", "sglang_num_running_reqs 162\nsglang_token_usage 0.55\nsglang_prompt_tokens_total 4000\n")
}

func TestReadLlamaCpp(t *testing.T) {
	f := func(name string, paths map[string]string, running, waiting, kv float64) *server {
		t.Helper()
		paths["/props"], paths["/health"] = llamaServer, `{"status":"ok"}`
		s := serve(t, paths)
		if _, ok := paths["/metrics"]; !ok {
			s.paths["/metrics"], s.status["/metrics"] = llamaOff, http.StatusNotImplemented
		}
		rd := newReader(t)
		for range 3 {
			r := s.read(t, rd, state.EngineAuto, 1)[0]
			if !r.OK || r.Kind != state.EngineLlamaCpp || r.Capacity != 8192 || r.Slots != 4 || r.Context != 2048 ||
				r.Running != running || r.Waiting != waiting || r.KVUsage != kv {
				t.Errorf("%s: %+v", name, r)
			}
		}
		return s
	}
	s := f("metrics", map[string]string{"/metrics": llamaText, "/slots": llamaSlots}, 2, 1, 0.5)
	if n := s.count("/props"); n != 2 { // one told the kind
		t.Errorf("/props was asked %d times", n)
	}
	s = f("slots", map[string]string{"/slots": llamaSlots}, 3, -1, 0.75)
	if n := s.count("/metrics"); n != 1 {
		t.Errorf("/metrics was asked %d times", n)
	}
	f("neither", map[string]string{}, -1, -1, -1)
}

func TestReadGeneric(t *testing.T) {
	f := func(name string, change func(*server)) state.Reading {
		t.Helper()
		s := serve(t, map[string]string{})
		change(s)
		rd := newReader(t)
		s.read(t, rd, state.EngineOpenAI, 1)
		r := s.read(t, rd, state.EngineOpenAI, 1)[0]
		if r.Running != -1 || r.Waiting != -1 || r.KVUsage != -1 || r.Capacity != -1 {
			t.Errorf("%s: figures out of nothing: %+v", name, r)
		}
		return r
	}
	for name, change := range map[string]func(*server){
		"health":            func(s *server) { s.paths["/health"] = "ok" },
		"models only":       func(s *server) { s.paths["/v1/models"] = `{"data":[]}` },
		"neither":           func(*server) {},
		"wants another key": func(s *server) { s.status["/v1/models"] = 401 },
		"asked too often":   func(s *server) { s.status["/v1/models"] = 429 },
	} {
		if r := f(name, change); !r.OK || r.Err != "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := f("broken", func(s *server) { s.status[""] = 500 }); r.OK || r.Loading || !r.Answered {
		t.Errorf("broken: %+v", r)
	}
	if r := f("not ready", func(s *server) { s.status["/health"] = 503 }); r.OK || !r.Loading {
		t.Errorf("not ready: %+v", r)
	}
}

func TestUnreadableIsNotIdle(t *testing.T) {
	f := func(name string, kind state.EngineKind, loading bool, paths map[string]string, status int) {
		t.Helper()
		s := serve(t, paths)
		s.status[""] = status
		if r := s.one(t, kind); r.OK || r.Err == "" || r.Running != -1 || r.Loading != loading || r.Refused {
			t.Errorf("%s: %+v", name, r)
		}
	}
	f("error status", state.EngineVLLM, false, nil, 500)
	f("loading", state.EngineAuto, true, nil, 503)
	f("loading, told", state.EngineLlamaCpp, true, nil, 503)
	f("empty exposition", state.EngineVLLM, false, map[string]string{"/metrics": ""}, 0)
	f("not an exposition", state.EngineVLLM, false, map[string]string{"/metrics": "<html>"}, 0)
	f("another engine's", state.EngineVLLM, false, map[string]string{"/metrics": llamaText}, 0)
	f("no loads", state.EngineSGLang, false, map[string]string{"/v1/loads": `{"loads":[]}`}, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, kind := range []state.EngineKind{state.EngineAuto, state.EngineVLLM, state.EngineOpenAI} {
		r := newReader(t).Read(ctx, []state.Replica{{ID: "a", URL: "http://127.0.0.1:1", Engine: kind}})[0]
		if r.OK || !r.Refused || r.Loading {
			t.Errorf("%s refused: %+v", kind, r)
		}
	}
}

// A server that answers can be reached, though it can't be read: people are told
// apart, and what may mend it.
func TestAnsweredIsNotUnreachable(t *testing.T) {
	f := func(name string, kind state.EngineKind, answered bool, said string, change func(*server)) {
		t.Helper()
		s := serve(t, map[string]string{})
		change(s)
		patience := 10 * time.Second // whoever answers does so on a busy machine, too
		if len(s.hang) > 0 {
			patience = 200 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		r := newReader(t).Read(ctx, []state.Replica{{ID: "a", URL: s.URL, Engine: kind}})[0]
		if r.OK || r.Loading || r.Answered != answered || r.Err != said {
			t.Errorf("%s: %+v, want %q", name, r, said)
		}
	}
	const hint = ": if it has no metrics, set its pool's engine to openai"
	all := func(status int) func(*server) { return func(s *server) { s.status[""] = status } }
	f("no path that is known", state.EngineAuto, true, "it answers like no known engine"+hint, all(0))
	f("500 to everything", state.EngineAuto, true, "it answers like no known engine"+hint, all(500))
	f("no metrics", state.EngineVLLM, true, "engine answered status 404"+hint, all(0))
	f("other metrics", state.EngineVLLM, true, "no known metric in 5 bytes"+hint, func(s *server) { s.paths["/metrics"] = "up 1\n" })
	f("locked", state.EngineVLLM, true, "engine answered status 401: does its pool need an api_key_env?", all(401))
	f("broken", state.EngineVLLM, true, "engine answered status 500", all(500))
	f("a gateway that reaches nobody", state.EngineVLLM, false, "engine answered status 502", all(502))
	f("silent", state.EngineVLLM, false, "timed out", func(s *server) { s.hang["/metrics"] = true })
}

func TestCredentialIsSent(t *testing.T) {
	var got http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		_, _ = w.Write([]byte(vllmText))
	}))
	defer srv.Close()
	rd := NewReader(srv.Client(), func(pool string) string { return "key-of-" + pool })
	rd.Read(t.Context(), []state.Replica{{ID: "a", Pool: "chat", URL: srv.URL, Engine: state.EngineVLLM}})
	if got.Get("Authorization") != "Bearer key-of-chat" || got.Get("X-Api-Key") != "" {
		t.Errorf("to vLLM: %v", got)
	}
	rd.Read(t.Context(), []state.Replica{{ID: "a", Pool: "chat", URL: srv.URL, Engine: state.EngineAnthropic}})
	if got.Get("Authorization") != "" || got.Get("X-Api-Key") != "key-of-chat" || got.Get("Anthropic-Version") == "" {
		t.Errorf("to Anthropic: %v", got)
	}
}
