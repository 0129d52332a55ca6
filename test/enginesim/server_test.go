package enginesim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestStreamTimesAreExactInABubble(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		start := time.Now()
		resp, err := s.do(t.Context(), "POST", textPath, `{"model":"m","prompt":`+tokenPrompt(100)+`,"max_tokens":3,"stream":true}`)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if at := time.Since(start); at != 0 {
			t.Errorf("header after %v, want at once", at)
		}
		got, err := frames(start, resp.Body)
		if err != nil || len(got) != 4 {
			t.Fatalf("%v, %v", got, err)
		}
		for i, want := range []time.Duration{21 * msec, 32 * msec, 43 * msec, 43 * msec} {
			if got[i].at != want {
				t.Errorf("event %d at %v, want %v", i, got[i].at, want)
			}
		}
		rec := s.Record().Requests[0]
		if d := rec.FirstToken.Sub(rec.Arrival); d != 21*msec {
			t.Errorf("recorded first token after %v", d)
		}
		if d := rec.End.Sub(rec.Arrival); d != 43*msec || rec.Outcome != OutcomeFinished || rec.Events != 4 || rec.OutputTokens != 3 {
			t.Errorf("record %+v, end after %v", rec, d)
		}
	})
}

func TestStreamBytes(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		created := time.Now().Unix()
		_, got := s.post(chatPath, `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":2,"stream":true,"stream_options":{"include_usage":true}}`, "X-Request-Id", "r1")
		g := generator{seed: s.gen(`{"messages":[{"role":"user","content":"hi"}]}`), tokens: 2}
		head := fmt.Sprintf(`data: {"id":"chatcmpl-r1","object":"chat.completion.chunk","created":%d,"model":"m","choices":[`, created)
		want := head + `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}` + "\n\n" +
			head + `{"index":0,"delta":{"content":"` + string(g.appendPiece(nil, 0)) + `"},"logprobs":null,"finish_reason":null}]}` + "\n\n" +
			head + `{"index":0,"delta":{"content":"` + string(g.appendPiece(nil, 1)) + `"},"logprobs":null,"finish_reason":"length","stop_reason":null}]}` + "\n\n" +
			head + `],"usage":{"prompt_tokens":9,"total_tokens":11,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}` + "\n\n" +
			"data: [DONE]\n\n"
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// gen returns the seed of the answer to a chat body.
func (s *sim) gen(body string) uint64 {
	s.t.Helper()
	c, _, err := s.prepare(s.chat(), &RequestRecord{}, []byte(body))
	if err != nil {
		s.t.Fatal(err)
	}
	return c.gens[0].seed
}

// A chat sent back with its answer and a new question hits all whole blocks of
// the first prompt and of the answer.
func TestFollowUpHitsPromptAndAnswer(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		question := strings.Repeat("why is the sky blue? ", 20)
		for _, limit := range []string{`,"max_tokens":50`, ``} { // end by length, end by the model's own mark
			history := `{"role":"system","content":"be brief` + limit2(limit) + `"},{"role":"user","content":"` + question + `"}`
			first := s.ask(chatPath, `{"model":"m","messages":[`+history+`]`+limit+`}`)
			answer, _ := json.Marshal(first.Choices[0].Message.Content)
			history += `,{"role":"assistant","content":` + string(answer) + `},{"role":"user","content":"go on"}`
			second := s.ask(chatPath, `{"model":"m","messages":[`+history+`],"max_tokens":1}`)
			// Computed were the prompt and all output tokens but the last one.
			want := (first.Usage.Prompt + first.Usage.Completion - 1) / 16 * 16
			if got := second.Usage.Details.Cached; got != want {
				t.Errorf("limit %q: cached %d, want %d of %d + %d", limit, got, want, first.Usage.Prompt, first.Usage.Completion)
			}
		}
	})
}

func limit2(s string) string { return fmt.Sprint(len(s)) }

func TestTextFollowUpHits(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		prompt := strings.Repeat("Once upon a time. ", 10) + "The end"
		first := s.ask(textPath, `{"model":"m","prompt":"`+prompt+`","max_tokens":40}`)
		second := s.ask(textPath, `{"model":"m","prompt":"`+prompt+first.Choices[0].Text+` and more","max_tokens":1}`)
		if got, want := second.Usage.Details.Cached, (first.Usage.Prompt+39)/16*16; got != want {
			t.Errorf("cached %d, want %d", got, want)
		}
	})
}

func TestDisconnectAbortsAtOnce(t *testing.T) {
	for _, stream := range []bool{true, false} {
		bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
			ctx, cancel := context.WithCancel(t.Context())
			body := fmt.Sprintf(`{"model":"m","prompt":%s,"max_tokens":1000,"stream":%v}`, tokenPrompt(100), stream)
			done := make(chan struct{})
			go func() {
				defer close(done)
				resp, err := s.do(ctx, "POST", textPath, body)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			time.Sleep(500 * msec)
			if l := s.Load(); l.Running != 1 || l.UsedBlocks == 0 {
				t.Fatalf("load %+v", l)
			}
			cancel()
			synctest.Wait()
			if l := s.Load(); l.Running != 0 || l.UsedBlocks != 0 {
				t.Errorf("stream %v: load after disconnect %+v", stream, l)
			}
			<-done
			rec := s.Record()
			r := rec.Requests[0]
			if r.Outcome != OutcomeAborted || r.End.Sub(r.Arrival) != 500*msec || rec.Aborted != 1 {
				t.Errorf("stream %v: record %+v", stream, r)
			}
			// Tokens at 21, 32, ... : 1 + (500-21)/11 = 44.
			if r.OutputTokens != 44 {
				t.Errorf("stream %v: %d tokens, want 44", stream, r.OutputTokens)
			}
		})
	}
}

func TestDisconnectOnARealSocket(t *testing.T) {
	loopback(t, simpleConfig(), func(s *sim) {
		ctx, cancel := context.WithCancel(s.t.Context())
		resp, err := s.do(ctx, "POST", textPath, `{"model":"m","prompt":"x","max_tokens":100000,"stream":true}`)
		if err != nil {
			s.t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
			s.t.Fatal(err)
		}
		cancel()
		eventually(s.t, func() bool { return s.Load().UsedBlocks == 0 && s.Record().Aborted == 1 })
	})
}

func TestIdleConnectionIsClosedAfterFiveSeconds(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		ln := s.client.Transport.(*http.Transport).DialContext
		conn, err := ln(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
		r := bufio.NewReader(conn)
		if _, err := http.ReadResponse(r, nil); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
			t.Fatalf("read: %v", err)
		}
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("closed after %v", d)
		}
	})
}

// Requests that come at one instant from several connections meet in one step and
// are served in an order that does not depend on goroutines.
func TestSimultaneousRequestsAreDeterministic(t *testing.T) {
	one := func() string {
		var log []string
		bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
			start := time.Now()
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					s.ask(textPath, fmt.Sprintf(`{"prompt":%s,"max_tokens":%d}`, tokenPrompt(1500+i), 1+i%3))
				})
			}
			wg.Wait()
			for _, r := range s.Record().Requests {
				log = append(log, fmt.Sprint(r.PromptTokens, r.CachedTokens, r.FirstToken.Sub(start), r.End.Sub(start)))
			}
		})
		slices.Sort(log) // receipt order is the goroutines'
		return strings.Join(log, "\n")
	}
	want := one()
	for range 5 {
		if got := one(); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	}
}

// An engine that is stopped cuts its streams, refuses connections and can be
// served again, warm or as a new process.
func TestStopAndServeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(simpleConfig())
		cached := func() int {
			ln := newMemListener()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- e.Serve(ctx, ln) }()
			tr := &http.Transport{DialContext: ln.dial}
			s := &sim{Engine: e, t: t, client: &http.Client{Transport: tr}, url: "http://engine"}
			n := s.ask(textPath, `{"prompt":`+tokenPrompt(100)+`,"max_tokens":1}`).Usage.Details.Cached
			time.AfterFunc(time.Second, cancel)
			if events, err := s.broken(`{"prompt":"x","max_tokens":1000,"stream":true}`); err == nil || events < 50 {
				t.Errorf("%d events, %v at stop", events, err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			tr.CloseIdleConnections()
			return n
		}
		if got := cached(); got != 0 {
			t.Errorf("cached %d at first", got)
		}
		if got := cached(); got != 96 {
			t.Errorf("cached %d when served again", got)
		}
		e.Restart()
		if got := cached(); got != 0 {
			t.Errorf("cached %d after a restart", got)
		}
	})
}
