package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

// A pick is told as a line, and as JSON with -o json, until whoever asked has enough.
func TestEvents(t *testing.T) {
	r := newRig(t)
	for _, output := range []outputFlag{outputTable, outputJSON} {
		ctx, cancel := context.WithCancel(t.Context())
		lines, w := io.Pipe()
		done := make(chan error, 1)
		go func() {
			a := &admin{server: r.admin, output: output}
			done <- a.follow(ctx, []string{console.KindPick}, w)
			_ = w.Close()
		}()
		asked := make(chan struct{})
		go func() { // until it reads along
			defer close(asked)
			for ctx.Err() == nil {
				if resp, err := http.Post(r.api+"/v1/chat/completions", "application/json", strings.NewReader(hello)); err == nil {
					_ = resp.Body.Close()
				}
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		}()
		got, err := bufio.NewReader(lines).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		var e console.Event
		switch isEvent := json.Unmarshal([]byte(got), &e) == nil; {
		case output == outputJSON && (!isEvent || e.Kind != console.KindPick || e.Pool != "chat" || e.Band != "normal" || e.RequestID == ""):
			t.Errorf("%q", got)
		case output == outputTable && (!strings.Contains(got, " pick     pool chat -> 127.0.0.1:") || !strings.Contains(got, "priority normal request ")):
			t.Errorf("%q", got)
		}
		cancel()
		go func() { _, _ = io.Copy(io.Discard, lines) }()
		if err := <-done; err != nil {
			t.Errorf("stopped by whoever asked: %v", err)
		}
		<-asked
	}
	http.DefaultClient.CloseIdleConnections()
	call(t, "events", "--kinds", "nothing").wants(t, 2, `--kinds: "nothing" is unknown: use pick, request, ejection`)
	call(t, "events", "--server", "http://127.0.0.1:1").wants(t, 1, "no router answers at")
	call(t, "events", "--server", r.api).wants(t, 1, "is a client port")
}

func TestEventsAsLines(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.Local)
	f := func(e console.Event, want string) {
		t.Helper()
		e.At = at
		if got := eventLine(&e); got != "03:04:05.006 "+want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f(console.Event{Kind: "ejection", Pool: "p", Replica: "r:1", Reason: "failures", Text: "5 failures in a row"}, "ejection pool p replica r:1 5 failures in a row")
	f(console.Event{Kind: "prewarm", Pool: "p", Replica: "r:1", From: "r:2", Outcome: "served", PromptTokens: 900, Text: "held by a draining replica alone"}, "prewarm  pool p -> r:1 served, 900 tokens prefilled, held by a draining replica alone (r:2)")
	f(console.Event{Kind: "member", Member: "two", From: "alive", To: "dead"}, "member   two alive -> dead")
	f(console.Event{Kind: "member", Member: "two", To: "alive"}, "member   two alive")
	f(console.Event{Kind: "decision", Pool: "p", From: "1", To: "2", Reason: "load"}, "decision pool p 1 -> 2 (load)")
	f(console.Event{Kind: "request", Pool: "p", Replica: "r:1", Outcome: "served", PromptTokens: 9, MatchedTokens: 5, RequestID: "id", Record: &console.Record{CachedTokens: -1, OutputTokens: 1, ObservedMS: 20.4}},
		"request  pool p at r:1 served ? of 9 tokens cached, 5 expected; 1 token first after 20 ms request id")
	f(console.Event{Kind: "pick", Pool: "p", Replica: "r:1", Reason: "warm", PromptTokens: 9, MatchedTokens: 5, TTFTMS: 12.4, Tenant: "t", Band: "high", RequestID: "id", Count: 3},
		"pick     pool p -> r:1 (warm) 5 of 9 tokens cached, first token after 12 ms tenant t priority high request id (3 more before it)")
}
