package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/enginesim"
)

// simulated starts n simulated engines and gives them to a rig with the real
// picker.
func simulated(t *testing.T, w wire, n int) (*rig, []*enginesim.Engine, func()) {
	g := newRig(t, w, nil, func(cfg *Config, _ *poolSpec) { cfg.Core.Picker = nil })
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var engines []*enginesim.Engine
	var list []state.Replica
	for i := range n {
		cfg := enginesim.DefaultConfig()
		cfg.Model = "llama"
		e := enginesim.New(cfg)
		name := fmt.Sprintf("sim%d", i)
		ln := w.listen(name)
		wg.Go(func() {
			if err := e.Serve(ctx, ln); err != nil {
				t.Error(err)
			}
		})
		engines = append(engines, e)
		list = append(list, state.Replica{ID: state.ReplicaID(name), URL: "http://" + name + ":80", Role: state.RoleBoth})
	}
	g.store.SetReplicas(state.SourceStatic, "chat", list)
	return g, engines, func() { g.stop(); cancel(); wg.Wait() }
}

// Chats of several turns, streamed and not, over simulated engines: each turn
// finds the engine that holds its history, answers included, and what the router
// predicts is what engines report.
func TestChatsFindTheirHistory(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g, engines, stop := simulated(t, w, 4)
		defer stop()
		const chats, turns = 8, 5
		var wg sync.WaitGroup
		for c := range chats {
			wg.Go(func() {
				type message struct {
					Role    string `json:"role"`
					Content string `json:"content"`
				}
				history := []message{{"system", fmt.Sprintf("You are helper number %d. ", c) + strings.Repeat(fmt.Sprintf("Rule %d. ", c), 400)}}
				for turn := range turns {
					history = append(history, message{"user", fmt.Sprintf("Question %d of chat %d, please answer at some length.", turn, c)})
					stream := c%2 == 0
					body, err := json.Marshal(map[string]any{"model": "fast", "messages": history, "max_tokens": 60, "stream": stream})
					must(t, err)
					r := g.chat(string(body))
					if r.StatusCode != 200 || r.err != nil {
						t.Errorf("chat %d turn %d: %d %q, %v", c, turn, r.StatusCode, r.body, r.err)
						return
					}
					history = append(history, message{"assistant", answerOf(t, r.body, stream)})
					time.Sleep(time.Second)
				}
			})
		}
		wg.Wait()
		predicted, reported := g.metric("hearsay_predicted_cached_tokens_total"), g.metric("hearsay_reported_cached_tokens_total")
		input := g.metric("hearsay_tokens_total", "type", "input")
		if reported < 0.7*input {
			t.Errorf("%v of %v prompt tokens were cached", reported, input)
		}
		if predicted < 0.85*reported || predicted > 1.05*reported {
			t.Errorf("predicted %v cached tokens, engines report %v", predicted, reported)
		}
		if n := g.metric("hearsay_requests_total", "code", "200"); n != chats*turns {
			t.Errorf("%v good requests", n)
		}
		if s := g.reports.take(); strings.Count(s, "served") != chats*turns {
			t.Errorf("reports %q", s)
		}
		if observed, _ := g.cal.Counts(); observed == 0 {
			t.Error("calibration learned nothing")
		}
		used := 0
		for _, e := range engines {
			if e.Totals().Finished > 0 {
				used++
			}
			if l := e.Load(); l.Running+l.Waiting != 0 {
				t.Errorf("engine load %+v", l)
			}
		}
		if used < 2 {
			t.Errorf("%d engines were used", used)
		}
	})
}

// answerOf is the text of an answer.
func answerOf(t *testing.T, body string, stream bool) string {
	var chunk struct {
		Choices []struct {
			Message, Delta struct{ Content string }
		}
	}
	if !stream {
		must(t, json.Unmarshal([]byte(body), &chunk))
		return chunk.Choices[0].Message.Content
	}
	var text strings.Builder
	for _, e := range strings.Split(body, "\n\n") {
		data, ok := strings.CutPrefix(e, "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		chunk.Choices = nil
		must(t, json.Unmarshal([]byte(data), &chunk))
		for _, c := range chunk.Choices {
			text.WriteString(c.Delta.Content)
		}
	}
	return text.String()
}

// A client that leaves ends the engine's work at once, and what was prefilled
// counts as held.
func TestLeavingEndsTheEnginesWork(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g, engines, stop := simulated(t, w, 1)
		defer stop()
		for range 4 {
			c := g.conn()
			_, err := io.WriteString(c, post("/v1/chat/completions", strings.Replace(askStream, `"stream"`, `"max_tokens":5000,"stream"`, 1)))
			must(t, err)
			_, err = io.CopyN(io.Discard, c, 2000)
			must(t, err)
			_ = c.Close()
		}
		time.Sleep(time.Second)
		if l := engines[0].Load(); l.Running+l.Waiting != 0 || g.inFlight() != 0 {
			t.Errorf("engine load %+v, in-flight %d", l, g.inFlight())
		}
		if got := g.metric("hearsay_client_disconnects_total", "phase", "streaming"); got != 4 {
			t.Errorf("disconnects %v", got)
		}
	})
}
