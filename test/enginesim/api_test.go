package enginesim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestErrors(t *testing.T) {
	cfg := simpleConfig()
	cfg.MaxModelLen, cfg.MaxBodyBytes = 200, 100_000
	bubble(t, cfg, func(t *testing.T, s *sim) {
		for name, x := range map[string]struct {
			path, body string
			status     int
			want       string
		}{
			"not json":               {chatPath, `{`, 400, `"type":"BadRequestError"`},
			"trailing garbage":       {chatPath, `{} {}`, 400, `JSON decode error`},
			"not an object":          {chatPath, `[]`, 400, `valid dictionary`},
			"invalid utf-8":          {chatPath, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", 400, `JSON decode error`},
			"no messages":            {chatPath, `{"model":"m"}`, 400, `messages`},
			"empty messages":         {chatPath, `{"model":"m","messages":[]}`, 400, `messages`},
			"no role":                {chatPath, `{"model":"m","messages":[{"content":"x"}]}`, 400, `role`},
			"unknown model":          {chatPath, `{"model":"gpt","messages":[{"role":"user","content":"x"}]}`, 404, `{"error":{"message":"The model ` + "`gpt`" + ` does not exist.","type":"NotFoundError","param":"model","code":404}}`},
			"model of another type":  {chatPath, `{"model":3,"messages":[{"role":"user","content":"x"}]}`, 400, `model`},
			"stream of another type": {textPath, `{"prompt":"x","stream":"maybe"}`, 400, `stream`},
			"limit zero":             {textPath, `{"prompt":"x","max_tokens":0}`, 400, `max_tokens must be at least 1, got 0.`},
			"limit with fraction":    {textPath, `{"prompt":"x","max_tokens":1.5}`, 400, `valid integer`},
			"min above max":          {textPath, `{"prompt":"x","max_tokens":1,"min_tokens":2}`, 400, `min_tokens`},
			"prompt too long":        {textPath, `{"prompt":` + tokenPrompt(200) + `}`, 400, `maximum context length is 200 tokens`},
			"prompt and limit":       {textPath, `{"prompt":` + tokenPrompt(100) + `,"max_tokens":101}`, 400, `maximum context length is 200 tokens`},
			"no prompt":              {textPath, `{"model":"m"}`, 400, `prompt`},
			"empty list":             {textPath, `{"prompt":[]}`, 400, `prompt`},
			"mixed list":             {textPath, `{"prompt":["a",1]}`, 400, `prompt`},
			"negative token":         {textPath, `{"prompt":[1,-1]}`, 400, `prompt`},
			"list with empty list":   {textPath, `{"prompt":[[1],[]]}`, 400, `prompt`},
			"body too large":         {textPath, `{"prompt":"` + strings.Repeat("x", 100_000) + `"}`, 413, `too large`},
			"unknown path":           {"/v1/nothing", `{}`, 404, `{"detail":"Not Found"}`},
		} {
			status, got := s.post(x.path, x.body)
			if status != x.status || !strings.Contains(got, x.want) {
				t.Errorf("%s: %d %s", name, status, got)
			}
		}
		if status, _ := s.get("GET", chatPath, ""); status != http.StatusMethodNotAllowed {
			t.Errorf("GET: %d", status)
		}
		if l, rec := s.Load(), s.Record(); l.Running+l.Waiting != 0 || rec.Executed != 0 || rec.Received != 21 {
			t.Errorf("load %+v, %d received", l, rec.Received)
		}
	})
}

func TestPromptForms(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		for _, x := range []struct {
			prompt         string
			choices, total int
		}{
			{`"hello world"`, 1, 3}, // a mark and two words
			{`""`, 1, 1},
			{`["hello world","hello"]`, 2, 5},
			{`[1,2,3]`, 1, 3},
			{`[[1,2,3],[4]]`, 2, 4},
		} {
			r := s.ask(textPath, `{"prompt":`+x.prompt+`,"max_tokens":2}`)
			if len(r.Choices) != x.choices || r.Usage.Prompt != x.total || r.Usage.Completion != 2*x.choices {
				t.Errorf("%s: %d choices, usage %+v", x.prompt, len(r.Choices), r.Usage)
			}
			for i, c := range r.Choices {
				if c.Index != i || c.FinishReason != "length" || c.Text == "" {
					t.Errorf("%s: choice %+v", x.prompt, c)
				}
			}
		}
	})
}

// n answers to one prompt differ, count their output each and the prompt once.
func TestSeveralChoices(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		r := s.ask(chatPath, `{"model":"m","messages":[{"role":"user","content":"hi"}],"n":3,"max_tokens":4}`)
		if len(r.Choices) != 3 || r.Usage.Prompt != 9 || r.Usage.Completion != 12 || r.Choices[0].Message.Content == r.Choices[1].Message.Content {
			t.Errorf("%+v", r)
		}
		_, body := s.post(chatPath, `{"model":"m","messages":[{"role":"user","content":"hi"}],"n":3,"max_tokens":4,"stream":true}`)
		for i, c := range r.Choices {
			if got := s.streamed(body, i); got != c.Message.Content {
				t.Errorf("choice %d streamed %q, whole %q", i, got, c.Message.Content)
			}
		}
		if n := strings.Count(body, `"finish_reason":"length"`); n != 3 || strings.Count(body, "[DONE]") != 1 {
			t.Errorf("%d finish reasons in %s", n, body)
		}
	})
}

// streamed joins the content of one choice of a chat stream.
func (s *sim) streamed(body string, index int) string {
	s.t.Helper()
	var out strings.Builder
	for line := range strings.SplitSeq(body, "\n\n") {
		data, ok := strings.CutPrefix(line, "data: {")
		if !ok {
			continue
		}
		var c struct {
			Choices []struct {
				Index int
				Delta struct{ Content string }
			}
		}
		if err := json.Unmarshal([]byte("{"+data), &c); err != nil {
			s.t.Fatal(err)
		}
		for _, x := range c.Choices {
			if x.Index == index {
				out.WriteString(x.Delta.Content)
			}
		}
	}
	return out.String()
}

// 10 tokens, 4 per event: 1, 4, 4, 1, and the end of the stream.
func TestStreamInterval(t *testing.T) {
	cfg := simpleConfig()
	cfg.StreamInterval = 4
	bubble(t, cfg, func(t *testing.T, s *sim) {
		start := time.Now()
		resp, err := s.do(t.Context(), "POST", textPath, `{"prompt":`+tokenPrompt(100)+`,"max_tokens":10,"stream":true}`)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, err := frames(start, resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		var at []time.Duration
		for _, f := range got {
			at = append(at, f.at)
		}
		want := []time.Duration{21 * msec, (21 + 4*11) * msec, (21 + 8*11) * msec, (21 + 9*11) * msec, (21 + 9*11) * msec}
		if !slices.Equal(at, want) {
			t.Errorf("events at %v, want %v", at, want)
		}
	})
}

func TestUsageOptions(t *testing.T) {
	cfg := simpleConfig()
	cfg.HideCachedTokens = true
	bubble(t, cfg, func(t *testing.T, s *sim) {
		if r := s.ask(textPath, `{"prompt":[1],"max_tokens":1}`); r.Usage.Details != nil {
			t.Errorf("usage %+v", r.Usage)
		}
		_, body := s.post(textPath, `{"prompt":[1],"max_tokens":2,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`)
		for i := 1; i <= 2; i++ {
			if !strings.Contains(body, fmt.Sprintf(`"usage":{"prompt_tokens":1,"total_tokens":%d,"completion_tokens":%d}`, i+1, i)) {
				t.Errorf("no cumulative usage %d in %s", i, body)
			}
		}
		if _, body := s.post(textPath, `{"prompt":[1],"max_tokens":2,"stream":true,"stream_options":null}`); strings.Contains(body, "usage") {
			t.Errorf("usage not asked for: %s", body)
		}
	})
}

// Without a limit the length is drawn: the same for the same prompt and seed,
// about MeanOutput on average, ended by the model ("stop").
func TestDrawnLengthIsDeterministic(t *testing.T) {
	ask := func(seed uint64) (out []string, tokens int) {
		cfg := simpleConfig()
		cfg.Seed = seed
		bubble(t, cfg, func(t *testing.T, s *sim) {
			for i := range 60 {
				r := s.ask(textPath, fmt.Sprintf(`{"prompt":"question %d"}`, i))
				if r.Choices[0].FinishReason != "stop" {
					t.Errorf("finish %q", r.Choices[0].FinishReason)
				}
				out = append(out, r.Choices[0].Text)
				tokens += r.Usage.Completion
			}
		})
		return out, tokens
	}
	one, tokens := ask(1)
	again, _ := ask(1)
	other, _ := ask(2)
	if !slices.Equal(one, again) || slices.Equal(one, other) {
		t.Error("answers are not a function of the seed")
	}
	if mean := tokens / 60; mean < 64 || mean > 256 {
		t.Errorf("mean of 60 drawn lengths %d, want about 128", mean)
	}
}

func TestLimits(t *testing.T) {
	cfg := simpleConfig()
	cfg.DrawUnderLimit, cfg.MeanOutput = true, 4
	bubble(t, cfg, func(t *testing.T, s *sim) {
		for _, x := range []struct {
			fields string
			ok     func(tokens int, finish string) bool
		}{
			{`"max_tokens":1000`, func(n int, f string) bool { return n < 100 && f == "stop" }},
			{`"max_tokens":1000,"min_tokens":300`, func(n int, f string) bool { return n == 300 && f == "stop" }},
			{`"max_tokens":200,"ignore_eos":true`, func(n int, f string) bool { return n == 200 && f == "length" }},
			{`"max_tokens":50,"max_completion_tokens":7,"ignore_eos":true`, func(n int, _ string) bool { return n == 7 }},
		} {
			r := s.ask(textPath, `{"prompt":"x",`+x.fields+`}`)
			if !x.ok(r.Usage.Completion, r.Choices[0].FinishReason) {
				t.Errorf("%s: %d tokens, %s", x.fields, r.Usage.Completion, r.Choices[0].FinishReason)
			}
		}
	})
}

func TestEmbeddings(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		_, body := s.post("/v1/embeddings", `{"model":"m","input":["hello world","x"],"dimensions":8}`)
		var r struct {
			Data []struct {
				Index     int
				Embedding []float64
			}
			Usage struct {
				Prompt int `json:"prompt_tokens"`
				Total  int `json:"total_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(body), &r); err != nil || len(r.Data) != 2 || len(r.Data[1].Embedding) != 8 || r.Data[1].Index != 1 || r.Usage.Total != 5 {
			t.Errorf("%v %s", err, body)
		}
		_, body = s.post("/v1/embeddings", `{"model":"m","input":"hello","encoding_format":"base64","dimensions":3}`)
		if !strings.Contains(body, `"embedding":"`) {
			t.Errorf("%s", body)
		}
		if l, tot := s.Load(), s.Totals(); l.UsedBlocks != 0 || tot.GeneratedTokens != 0 || tot.Finished != 3 {
			t.Errorf("load %+v totals %+v", l, tot)
		}
	})
}

func TestAdministration(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		prompt := `{"prompt":` + tokenPrompt(100) + `,"max_tokens":1}`
		s.ask(textPath, prompt)
		if status, _ := s.post("/reset_prefix_cache", ""); status != 200 {
			t.Errorf("reset: %d", status)
		}
		if got := s.ask(textPath, prompt).Usage.Details.Cached; got != 0 {
			t.Errorf("cached %d after reset", got)
		}
		s.post("/sleep?level=1", "")
		if _, body := s.get("GET", "/is_sleeping", ""); body != `{"is_sleeping":true}` {
			t.Errorf("%s", body)
		}
		start := time.Now()
		time.AfterFunc(time.Minute, func() { s.SetAsleep(false) })
		r := s.ask(textPath, prompt)
		if d := time.Since(start); d != time.Minute+20*msec || r.Usage.Details.Cached != 0 {
			t.Errorf("answered after %v, cached %d", d, r.Usage.Details.Cached)
		}
		if _, body := s.get("GET", "/version", ""); body != `{"version":"0.11.0"}` {
			t.Errorf("%s", body)
		}
		if _, body := s.post("/tokenize", `{"model":"m","prompt":"hello world"}`); !strings.Contains(body, `"count":3`) {
			t.Errorf("%s", body)
		}
	})
}

func TestLoadReportHeader(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		for format, want := range map[string]string{
			"JSON": `JSON {"named_metrics": {"kv_cache_usage_perc": 0.0, "num_requests_waiting": 0.0}}`,
			"TEXT": `TEXT named_metrics.kv_cache_usage_perc=0.0, named_metrics.num_requests_waiting=0.0`,
			"":     "",
		} {
			resp, err := s.do(t.Context(), "POST", textPath, `{"prompt":[1],"max_tokens":1}`, "endpoint-load-metrics-format", format)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got := resp.Header.Get("endpoint-load-metrics"); got != want {
				t.Errorf("%s: %s", format, got)
			}
		}
	})
}

// A prefill for another engine names its blocks; the decode that names them
// computes one token of the prompt.
func TestPrefillDecodeHandover(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		p := s.ask(textPath, `{"prompt":`+tokenPrompt(1000)+`,"max_tokens":1,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false}}`)
		if p.KV["do_remote_prefill"] != true || len(p.KV["remote_block_ids"].([]any)) != 63 {
			t.Fatalf("kv %v", p.KV)
		}
		if err := s.SetFault(Fault{Kind: FaultWipe}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		params, _ := json.Marshal(p.KV)
		d := s.ask(textPath, `{"prompt":`+tokenPrompt(1000)+`,"max_tokens":1,"kv_transfer_params":`+string(params)+`}`)
		if took := time.Since(start); took != 11*msec+100*time.Microsecond || d.Usage.Prompt != 1000 {
			t.Errorf("took %v, usage %+v", took, d.Usage)
		}
	})
}

func TestRecord(t *testing.T) {
	cfg := simpleConfig()
	cfg.KeepBodies, cfg.RecordLimit = true, 2
	bubble(t, cfg, func(t *testing.T, s *sim) {
		for i := range 3 {
			s.post(textPath, fmt.Sprintf(`{"prompt":%s,"max_tokens":%d}`, tokenPrompt(100), i+1), "X-Request-Id", fmt.Sprint("id", i))
		}
		_, body := s.get("GET", "/sim/record", "")
		var rec Record
		if err := json.Unmarshal([]byte(body), &rec); err != nil {
			t.Fatal(err)
		}
		if rec.Received != 3 || rec.Finished != 3 || rec.Dropped != 1 || rec.PeakConcurrency != 1 || len(rec.Requests) != 2 {
			t.Fatalf("%+v", rec)
		}
		r := rec.Requests[1]
		if r.Seq != 3 || r.XRequestID != "id2" || r.ID != "cmpl-id2" || r.Model != "m" || r.PromptTokens != 100 || r.CachedTokens != 96 || r.OutputTokens != 3 ||
			r.Outcome != OutcomeFinished || r.Status != 200 || len(r.BodySHA256) != 64 || !strings.Contains(string(r.Body), `"max_tokens":3`) {
			t.Errorf("%+v", r)
		}
		if status, _ := s.post("/sim/record/reset", ""); status != 200 || len(s.Record().Requests) != 0 {
			t.Errorf("reset: %d", status)
		}
	})
}

func TestConfigFaultsAreJoined(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	err := Config{Profile: "simple"}.Validate()
	if err == nil {
		t.Fatal("an empty config passes")
	}
	for _, field := range []string{"kind", "model", "simple_prefill", "speed", "block_tokens", "kv_tokens", "max_batched_tokens", "max_seqs", "max_model_len", "mean_output", "stream_interval", "keep_alive", "record_limit"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("no word of %s in %v", field, err)
		}
	}
}

func TestPromptsAskTheCache(t *testing.T) {
	cfg := simpleConfig()
	cfg.Adapters = []string{"ad"}
	bubble(t, cfg, func(t *testing.T, s *sim) {
		body := string(chatBody(2000, 1, `"max_tokens":1`))
		r := s.ask(chatPath, body)
		p, err := s.Prompts(chatPath, []byte(body))
		if err != nil || len(p) != 1 || len(p[0].Tokens) != r.Usage.Prompt {
			t.Fatalf("%d prompts, %v", len(p), err)
		}
		if got, want := s.CachedPrefix(p[0]), (r.Usage.Prompt-1)/16*16; got != want {
			t.Errorf("cached %d, want %d", got, want)
		}
		p, err = s.Prompts(chatPath, []byte(strings.Replace(body, `"m"`, `"ad"`, 1)))
		if err != nil || s.CachedPrefix(p[0]) != 0 {
			t.Errorf("the adapter's cache holds the base model's prompt, %v", err)
		}
		for _, path := range []string{"/health", textPath} {
			if _, err := s.Prompts(path, []byte(body)); err == nil {
				t.Errorf("%s: no error", path)
			}
		}
	})
}
