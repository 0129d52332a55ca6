package enginesim

import (
	"encoding/json"
	"io"
	"net/http"
	"time"
)

// What the kinds of engine have beside the common paths. A path that a kind does
// not have answers 404.

type route func(method, path string, h http.HandlerFunc)

func (e *Engine) vllmPaths(handle route) {
	handle(http.MethodGet, "/version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"version": e.cfg.Version})
	})
	handle(http.MethodGet, "/ping", e.health)
	handle(http.MethodPost, "/v1/load_lora_adapter", e.vllmAdapter(true))
	handle(http.MethodPost, "/v1/unload_lora_adapter", e.vllmAdapter(false))
	handle(http.MethodPost, "/reset_prefix_cache", func(w http.ResponseWriter, _ *http.Request) {
		e.ResetPrefixCache() // vLLM answers 200 either way
		w.WriteHeader(http.StatusOK)
	})
	handle(http.MethodPost, "/sleep", func(w http.ResponseWriter, _ *http.Request) {
		e.SetAsleep(true)
		w.WriteHeader(http.StatusOK)
	})
	handle(http.MethodPost, "/wake_up", func(w http.ResponseWriter, _ *http.Request) {
		e.SetAsleep(false)
		w.WriteHeader(http.StatusOK)
	})
	handle(http.MethodGet, "/is_sleeping", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]bool{"is_sleeping": e.Asleep()})
	})
}

func (e *Engine) sglangPaths(handle route) {
	info := func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{
			"model_path": e.cfg.Model, "served_model_name": e.cfg.Model, "version": e.cfg.Version,
			"max_total_num_tokens": e.cfg.KVTokens, "max_running_requests": e.cfg.MaxSeqs, "page_size": e.cfg.BlockTokens,
			"max_prefill_tokens": e.cfg.MaxBatchedTokens, "context_length": e.cfg.contextLen(), "dp_size": e.cfg.DPRanks, "tp_size": 1,
			"disaggregation_mode": "null", "status": "ready", "enable_lora": len(e.listed()) > 0 || e.cfg.MaxLoRAs > 0,
		})
	}
	handle(http.MethodGet, "/server_info", info)
	handle(http.MethodGet, "/get_server_info", info)
	handle(http.MethodGet, "/v1/loads", e.sglangLoads)
	flush := func(w http.ResponseWriter, _ *http.Request) {
		if !e.ResetPrefixCache() {
			http.Error(w, "Flush cache failed: requests are running.", http.StatusBadRequest)
			return
		}
		_, _ = w.Write([]byte("Cache flushed.\n"))
	}
	handle(http.MethodPost, "/flush_cache", flush)
	handle(http.MethodPost, "/load_lora_adapter", e.sglangAdapter(true))
	handle(http.MethodPost, "/unload_lora_adapter", e.sglangAdapter(false))
	handle(http.MethodPost, "/abort_request", func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			RID string `json:"rid"`
		}
		if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&ask); err != nil || ask.RID == "" {
			e.writeError(w, r, badRequest("rid is required"))
			return
		}
		e.AbortRequests(ask.RID)
		w.WriteHeader(http.StatusOK)
	})
}

func (e *Engine) sglangLoads(w http.ResponseWriter, _ *http.Request) {
	var loads []map[string]any
	for i, r := range e.states() {
		l, t := r.load, r.totals
		used := l.UsedBlocks * e.cfg.BlockTokens
		rate := 0.0
		if s := t.BusyTime.Seconds(); s > 0 {
			rate = float64(t.GeneratedTokens) / s
		}
		loads = append(loads, map[string]any{
			"dp_rank": i, "num_running_reqs": l.Running, "num_waiting_reqs": l.Waiting, "num_waiting_uncached_tokens": l.WaitingUncachedTokens,
			"num_used_tokens": used, "num_total_tokens": used + l.WaitingUncachedTokens, "max_total_num_tokens": r.capacity,
			"max_running_requests": e.cfg.MaxSeqs, "token_usage": float64(used) / float64(r.capacity), "gen_throughput": rate,
			"cache_hit_rate": t.LastHitRate, "utilization": float64(l.Running) / float64(e.cfg.MaxSeqs),
		})
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"timestamp": time.Now().UTC().Format(time.RFC3339Nano), "version": e.cfg.Version, "dp_rank_count": len(loads), "loads": loads,
	})
}

func (e *Engine) llamaPaths(handle route) {
	handle(http.MethodGet, "/props", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{
			"default_generation_settings": map[string]any{"n_ctx": e.cfg.slotTokens()},
			"total_slots":                 e.cfg.MaxSeqs, "model_path": e.cfg.Model, "is_sleeping": false, "build_info": e.cfg.Version,
		})
	})
	handle(http.MethodGet, "/slots", func(w http.ResponseWriter, r *http.Request) {
		running := e.Load().Running
		if running >= e.cfg.MaxSeqs && r.URL.Query().Get("fail_on_no_slot") != "" {
			e.writeError(w, r, &apiError{status: http.StatusServiceUnavailable, kind: "unavailable_error", message: "no slot available"})
			return
		}
		type slot struct {
			ID         int  `json:"id"`
			NCtx       int  `json:"n_ctx"`
			Processing bool `json:"is_processing"`
		}
		slots := make([]slot, e.cfg.MaxSeqs)
		for i := range slots {
			slots[i] = slot{i, e.cfg.slotTokens(), i < running}
		}
		writeJSON(w, http.StatusOK, slots)
	})
}
