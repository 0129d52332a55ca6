package enginesim

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestModelsAndAdapters(t *testing.T) {
	cfg := simpleConfig()
	cfg.Adapters = []string{"ad"}
	bubble(t, cfg, func(t *testing.T, s *sim) {
		_, body := s.get("GET", "/v1/models", "")
		var list struct {
			Data []struct {
				ID     string
				Parent *string
			}
		}
		if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Data) != 2 || list.Data[0].Parent != nil || *list.Data[1].Parent != "m" {
			t.Errorf("%v %s", err, body)
		}
		cached := func(fields string) int {
			return s.ask(textPath, `{"prompt":`+tokenPrompt(100)+`,"max_tokens":1,`+fields+`}`).Usage.Details.Cached
		}
		for _, x := range []struct {
			fields string
			want   int
		}{{`"model":"m"`, 0}, {`"model":"m"`, 96}, {`"model":"ad"`, 0}, {`"model":"ad"`, 96}, {`"model":"m","cache_salt":"x"`, 0}, {`"model":"m","cache_salt":"x"`, 96}} {
			if got := cached(x.fields); got != x.want {
				t.Errorf("%s: cached %d, want %d", x.fields, got, x.want)
			}
		}
	})
}

func TestAdaptersComeAndGo(t *testing.T) {
	for kind, want := range map[Kind]struct{ load, unload, model, twice string }{
		VLLM:   {"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "x", "already been loaded"},
		SGLang: {"/load_lora_adapter", "/unload_lora_adapter", "m:x", "already exists"},
	} {
		cfg := simpleConfig()
		cfg.Kind, cfg.Adapters, cfg.MaxLoRAs, cfg.AdapterLoad = kind, []string{"ad"}, 1, 300*time.Millisecond
		bubble(t, cfg, func(t *testing.T, s *sim) {
			ask := func(model string) (int, time.Duration) {
				began := time.Now()
				status, _ := s.post(textPath, `{"model":"`+model+`","prompt":"a","max_tokens":1}`)
				return status, time.Since(began)
			}
			if status, _ := ask(want.model); status != map[Kind]int{VLLM: 404, SGLang: 400}[kind] {
				t.Errorf("%s: unknown: %d", kind, status)
			}
			for i, says := range []string{"x", want.twice} {
				if status, body := s.post(want.load, `{"lora_name":"x","lora_path":"/x"}`); status != 200+200*i || !strings.Contains(body, says) {
					t.Errorf("%s: load: %d %s", kind, status, body)
				}
			}
			if _, body := s.get("GET", "/v1/models", ""); !strings.Contains(body, `"id":"x"`) || !strings.Contains(body, `"root":"/x"`) {
				t.Errorf("%s: %s", kind, body)
			}
			_, cold := ask(want.model)
			_, warm := ask(want.model)
			other := strings.Replace(want.model, "x", "ad", 1)
			_, evicts := ask(other)
			_, again := ask(want.model)
			if cold-warm != cfg.AdapterLoad || evicts != cold || again != cold || s.Totals().AdapterLoads != 3 {
				t.Errorf("%s: cold %v, warm %v, the other %v, again %v, %d loads", kind, cold, warm, evicts, again, s.Totals().AdapterLoads)
			}
			if status, _ := s.post(want.unload, `{"lora_name":"x"}`); status != 200 {
				t.Errorf("%s: unload: %d", kind, status)
			}
			if status, _ := s.post(want.unload, `{"lora_name":"x"}`); status < 400 {
				t.Errorf("%s: unloaded twice: %d", kind, status)
			}
			if status, _ := ask(want.model); status < 400 {
				t.Errorf("%s: unloaded: %d", kind, status)
			}
			s.AddAdapter("x", "/x")
			s.Restart()
			if status, _ := ask(want.model); status < 400 {
				t.Errorf("%s: it outlives its process: %d", kind, status)
			}
		})
	}
}
