package enginesim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// fault orders one over HTTP.
func (s *sim) fault(body string) {
	s.t.Helper()
	if status, b := s.post("/sim/fault", body); status != 200 {
		s.t.Fatalf("fault %s: %d %s", body, status, b)
	}
}

const streamBody = `{"model":"m","prompt":"once upon a time","max_tokens":10,"stream":true}`

func TestFaultStatusForACount(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		s.fault(`{"kind":"status","status":429,"count":2,"retry_after_s":7}`)
		for range 2 {
			resp, err := s.do(t.Context(), "POST", textPath, streamBody)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "7" {
				t.Errorf("status %d, retry after %q", resp.StatusCode, resp.Header.Get("Retry-After"))
			}
		}
		if status, _ := s.post(textPath, streamBody); status != 200 {
			t.Errorf("status %d after the count", status)
		}
		if rec := s.Record(); rec.Received != 3 || rec.Executed != 1 || rec.Requests[0].Outcome != OutcomeFault || rec.Requests[0].Status != 429 {
			t.Errorf("record %+v", rec)
		}
	})
}

func TestFaultStatusForATime(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		s.fault(`{"kind":"status","status":500,"duration_ms":1000,"body":"{\"oops\":1}"}`)
		time.Sleep(999 * msec)
		if status, b := s.post(textPath, streamBody); status != 500 || b != `{"oops":1}` {
			t.Errorf("%d %s", status, b)
		}
		time.Sleep(msec)
		if status, _ := s.post(textPath, streamBody); status != 200 {
			t.Errorf("status %d afterwards", status)
		}
	})
}

// broken posts and returns the events read before the connection broke.
func (s *sim) broken(body string) (int, error) {
	s.t.Helper()
	resp, err := s.do(context.Background(), "POST", textPath, body)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	got, err := frames(time.Now(), resp.Body)
	return len(got), err
}

func TestFaultReset(t *testing.T) {
	loopback(t, simpleConfig(), func(s *sim) {
		s.fault(`{"kind":"reset","after_events":3,"count":1}`)
		if n, err := s.broken(streamBody); !errors.Is(err, syscall.ECONNRESET) || n > 3 {
			s.t.Errorf("%d events, %v: want a reset after 3", n, err)
		}
		eventually(s.t, func() bool { return s.Load().UsedBlocks == 0 })
		rec := s.Record().Requests[0]
		if rec.Outcome != OutcomeFault || rec.Events != 3 {
			s.t.Errorf("record %+v", rec)
		}
		s.fault(`{"kind":"reset","count":1}`)
		if _, err := s.broken(streamBody); err == nil {
			s.t.Error("no error for a reset before the response")
		}
		if n, err := s.broken(streamBody); err != nil || n != 11 {
			s.t.Errorf("%d events, %v after the count", n, err)
		}
	})
}

func TestFaultFin(t *testing.T) {
	for _, k := range []int{0, 1, 5, 11} {
		bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
			s.fault(fmt.Sprintf(`{"kind":"fin","after_events":%d}`, k))
			n, err := s.broken(streamBody)
			want := io.ErrUnexpectedEOF
			if k == 0 {
				want = io.EOF
			}
			if n != k || !errors.Is(err, want) {
				t.Errorf("after %d events: read %d, %v", k, n, err)
			}
			s.fault(`{"kind":"none"}`)
			if n, err := s.broken(streamBody); err != nil || n != 11 {
				t.Errorf("%d events, %v when cleared", n, err)
			}
		})
	}
}

func TestFaultFinOfAWholeAnswer(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		s.fault(`{"kind":"fin","after_events":1}`)
		resp, err := s.do(t.Context(), "POST", textPath, `{"prompt":"x","max_tokens":5}`)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if !errors.Is(err, io.ErrUnexpectedEOF) || len(b) == 0 {
			t.Errorf("read %q, %v", b, err)
		}
	})
}

func TestFaultSilence(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		s.fault(`{"kind":"silence","after_events":2,"count":1}`)
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := s.do(ctx, "POST", textPath, streamBody)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		r := bufio.NewReader(resp.Body)
		for range 4 { // two events, each with an empty line
			if _, err := r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		time.AfterFunc(time.Hour, cancel)
		start := time.Now()
		if _, err := r.ReadByte(); !errors.Is(err, context.Canceled) {
			t.Errorf("read: %v", err)
		}
		if time.Since(start) != time.Hour {
			t.Errorf("silence ended after %v", time.Since(start))
		}
		synctest.Wait()
		if rec := s.Record().Requests[0]; rec.Outcome != OutcomeAborted || rec.OutputTokens != 10 {
			t.Errorf("record %+v", rec)
		}
	})
}

func TestFaultSilenceBeforeTheHeaderEndsWhenCleared(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		s.fault(`{"kind":"silence"}`)
		start := time.Now()
		time.AfterFunc(time.Minute, func() { _ = s.SetFault(Fault{Kind: FaultNone}) })
		if _, err := s.broken(streamBody); err == nil {
			t.Error("an answer came")
		}
		if time.Since(start) != time.Minute {
			t.Errorf("ended after %v", time.Since(start))
		}
	})
}

func TestFaultSlow(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		s.fault(`{"kind":"slow","factor":3}`)
		start := time.Now()
		s.ask(textPath, `{"prompt":`+tokenPrompt(100)+`,"max_tokens":1}`)
		if d := time.Since(start); d != 61*msec { // 1 + 3*20
			t.Errorf("took %v", d)
		}
		s.fault(`{"kind":"none"}`)
		start = time.Now()
		s.ask(textPath, `{"prompt":[1],"max_tokens":1}`)
		if d := time.Since(start); d != 11*msec+100*time.Microsecond {
			t.Errorf("took %v when cleared", d)
		}
	})
}

func TestFaultsOnMetricsAndHealth(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		s.fault(`{"kind":"metrics_status","status":401,"count":1}`)
		if status, _ := s.get("GET", "/metrics", ""); status != 401 {
			t.Errorf("metrics %d", status)
		}
		s.fault(`{"kind":"hang_metrics","duration_ms":4000}`)
		start := time.Now()
		if status, _ := s.get("GET", "/metrics", ""); status != 200 || time.Since(start) != 4*time.Second {
			t.Errorf("metrics %d after %v", status, time.Since(start))
		}
		s.fault(`{"kind":"hang_metrics"}`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.do(ctx, "GET", "/metrics", ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("metrics: %v", err)
		}
		s.fault(`{"kind":"health"}`)
		if status, _ := s.get("GET", "/health", ""); status != 503 {
			t.Errorf("health %d", status)
		}
		s.fault(`{"kind":"none"}`)
		if status, _ := s.get("GET", "/health", ""); status != 200 {
			t.Errorf("health %d when cleared", status)
		}
	})
}

func TestFaultLoading(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		s.fault(`{"kind":"loading","duration_ms":30000}`)
		for _, path := range []string{"/health", "/metrics", "/v1/models", "/version"} {
			if status, _ := s.get("GET", path, ""); status != 503 {
				t.Errorf("%s: %d while loading", path, status)
			}
		}
		if status, _ := s.post(textPath, streamBody); status != 503 {
			t.Errorf("completion: %d while loading", status)
		}
		time.Sleep(30 * time.Second)
		if status, _ := s.get("GET", "/health", ""); status != 200 {
			t.Errorf("health %d when loaded", status)
		}
	})
}

func TestFaultRestart(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		prompt := `{"prompt":` + tokenPrompt(100) + `,"max_tokens":1}`
		s.ask(textPath, prompt)
		born := scrape(t, s)["process_start_time_seconds"]
		time.Sleep(time.Minute)
		died := make(chan error, 1)
		go func() {
			_, err := s.broken(`{"prompt":"x","max_tokens":1000,"stream":true}`)
			died <- err
		}()
		time.Sleep(100 * msec)
		s.fault(`{"kind":"restart","duration_ms":10000}`)
		if err := <-died; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("running request: %v", err)
		}
		if status, _ := s.get("GET", "/health", ""); status != 503 {
			t.Errorf("health %d while it starts", status)
		}
		time.Sleep(10 * time.Second)
		m := scrape(t, s)
		if m["process_start_time_seconds"] <= born+60 || m["vllm:prompt_tokens_total"] != 0 || m["vllm:generation_tokens_total"] != 0 {
			t.Errorf("born %v, then %v", born, m)
		}
		if got := s.ask(textPath, prompt).Usage.Details.Cached; got != 0 {
			t.Errorf("cached %d after a restart", got)
		}
		rec := s.Record() // the log survives
		if len(rec.Requests) != 3 || rec.Requests[1].Outcome != OutcomeKilled || rec.Active != 0 {
			t.Errorf("record %+v", rec)
		}
	})
}

func TestFaultWipe(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		prompt := `{"prompt":` + tokenPrompt(100) + `,"max_tokens":1}`
		s.ask(textPath, prompt)
		if got := s.ask(textPath, prompt).Usage.Details.Cached; got != 96 {
			t.Errorf("cached %d before", got)
		}
		s.fault(`{"kind":"wipe"}`)
		if got := s.ask(textPath, prompt).Usage.Details.Cached; got != 0 {
			t.Errorf("cached %d after", got)
		}
		if m := scrape(t, s); m["vllm:prompt_tokens_total"] != 300 {
			t.Errorf("counters start over: %v", m)
		}
	})
}

func TestMeaninglessFaultsAreRefused(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		for _, f := range []string{`{"kind":"status"}`, `{"kind":"status","status":42}`, `{"kind":"slow"}`, `{"kind":"slow","factor":-1}`, `{"kind":"melt"}`, `{"kind":"fin","count":-1}`, `{"kind":"fin","duration":"3s"}`, `{"status":500}`, `{}`, `[`, ``} {
			status, answer := s.post("/sim/fault", f)
			var said struct{ Error string }
			if err := json.Unmarshal([]byte(answer), &said); err != nil || status != http.StatusBadRequest || !strings.HasSuffix(said.Error, "; give one such as "+FaultExample) {
				t.Errorf("%s: %d %s", f, status, answer)
			}
			if named := strings.Contains(said.Error, "the kinds are status, reset, fin, "); named != (f == `{"kind":"melt"}` || f == `{"status":500}` || f == `{}`) {
				t.Errorf("%s: %s", f, said.Error)
			}
		}
		if got := s.Faults(); len(got) != 0 {
			t.Errorf("active %v", got)
		}
	})
}

func TestFaultExampleIsTaken(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		s.fault(FaultExample)
		if status, _ := s.post(textPath, streamBody); status != 503 {
			t.Errorf("status %d", status)
		}
	})
}

func TestFaultJSONRoundTrip(t *testing.T) {
	f := Fault{Kind: FaultFin, Status: 1, RetryAfter: 2, Body: "b", Count: 3, Duration: 1500 * time.Microsecond, AfterEvents: 5, Factor: 1.5}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var g Fault
	if err := json.Unmarshal(b, &g); err != nil || g != f {
		t.Fatalf("%+v, %v from %s", g, err, b)
	}
	if !strings.Contains(string(b), `"duration_ms":1.5`) {
		t.Errorf("wire form %s", b)
	}
}
