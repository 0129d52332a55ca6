package enginesim

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Each rank has a cache, a load and a record of its own; faults are the process's.
func TestRanksAreEnginesOfTheirOwn(t *testing.T) {
	for _, kind := range []Kind{VLLM, SGLang} {
		cfg := simpleConfig()
		cfg.Kind, cfg.DPRanks = kind, 2
		bubble(t, cfg, func(t *testing.T, s *sim) {
			ask := func(rank int) string {
				body, header := `{"prompt":`+tokenPrompt(160)+`,"max_tokens":2`, ""
				if kind == SGLang {
					body += fmt.Sprintf(`,"data_parallel_rank":9,"data_parallel_rank":%d`, rank)
				} else {
					header = fmt.Sprint(rank)
				}
				resp, err := s.do(t.Context(), "POST", textPath, body+"}", "X-Data-Parallel-Rank", header)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				return resp.Status
			}
			for range 3 {
				if got := ask(1); got != "200 OK" {
					t.Fatal(got)
				}
			}
			if a, b := s.Rank(0).Record(), s.Rank(1).Record(); a.Finished != 0 || b.Finished != 3 || b.Requests[1].CachedTokens == 0 {
				t.Errorf("%s: rank 0 served %d, rank 1 %d: %+v", kind, a.Finished, b.Finished, b.Requests)
			}
			ask(0)
			if a := s.Rank(0).Record(); a.Finished != 1 || a.Requests[0].CachedTokens != 0 {
				t.Errorf("%s: rank 0: %+v", kind, a.Requests)
			}
			if got := ask(2); !strings.HasPrefix(got, "400") {
				t.Errorf("%s: a rank that is none: %s", kind, got)
			}
			m := families(t, s)
			name, rank := "vllm:prompt_tokens_total", "engine=1"
			if kind == SGLang {
				name, rank = "sglang:prompt_tokens_total", "dp_rank=1"
				_, loads := s.get("GET", "/v1/loads", "")
				if !strings.Contains(loads, `"dp_rank":1`) || !strings.Contains(loads, `"dp_rank_count":2`) {
					t.Errorf("loads: %s", loads)
				}
			}
			list := m[name].GetMetric()
			if len(list) != 2 || !strings.HasPrefix(labels(list[1]), rank) || list[0].GetCounter().GetValue() != 160 || list[1].GetCounter().GetValue() != 480 {
				t.Errorf("%s: %v", kind, list)
			}
			s.client.CloseIdleConnections()
			s.Restart()
			if n := s.Rank(1).Totals().PromptTokens; n != 0 {
				t.Errorf("%s: rank 1 outlived its process: %d", kind, n)
			}
		})
	}
}

// Without a rank a request goes where there is least to do.
func TestRequestsWithoutARankAreSpread(t *testing.T) {
	cfg := simpleConfig()
	cfg.DPRanks = 3
	bubble(t, cfg, func(t *testing.T, s *sim) {
		for range 6 {
			go func() { _, _ = s.broken(`{"prompt":` + tokenPrompt(160) + `,"max_tokens":100000,"stream":true}`) }()
			time.Sleep(10 * msec)
		}
		for i := range 3 {
			if l := s.Rank(i).Load(); l.Running+l.Waiting != 2 {
				t.Errorf("rank %d has %+v", i, l)
			}
		}
		s.client.CloseIdleConnections()
		s.Restart()
	})
}
