package main

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

func TestVerdicts(t *testing.T) {
	f := func(status int, body, want string) {
		t.Helper()
		if got := verdict(status, strings.NewReader(body)); got != want {
			t.Errorf("%q: %q, want %q", body, got, want)
		}
	}
	f(200, "data: {\"id\":1}\n\ndata: [DONE]\n\n", "")
	f(200, "data: {\"id\":1}\n\n", causeBroken)
	f(200, "", causeBroken)
	f(200, "data: {\"error\":{}}\n\ndata: [DONE]\n\n", causeBroken)
	f(503, "{}", "status 503")
}

func TestCausesOfErrors(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	f := func(err error, want string) {
		t.Helper()
		if got := causeOf(fmt.Errorf("post: %w", err)); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	f(&dialError{refused}, causeRefused)
	f(&dialError{fmt.Errorf("i/o timeout")}, causeDial)
	f(syscall.ECONNRESET, causeHungUp)
}

func TestActsBeyondDecisions(t *testing.T) {
	started := func(id string) string { return `{"message":"process started","decision":"` + id + `"}` + "\n" }
	stopped := func(id string) string { return `{"message":"process asked to end","decision":"` + id + `"}` + "\n" }
	list := []console.Decision{
		{ID: "4", From: 3, To: 5, Index: 16, Outcome: "done"},
		{ID: "3", From: 4, To: 3, Index: 14, Outcome: "done"},
		{ID: "2", From: 3, To: 4, Index: 12, Outcome: "superseded"},
		{ID: "1", From: 1, To: 3, Index: 10, Outcome: "done"},
	}
	f := func(want int, logs ...string) {
		t.Helper()
		if got := actsIn(logs...).twice(list); len(got) != want {
			t.Errorf("%q: %q", logs, got)
		}
	}
	all := started("1") + started("1") + started("4") + started("4")
	f(0)
	f(0, started("1")+started("2")+"{", started("1")+stopped("3"))
	f(0, all)
	f(1, started("1")+started("1"), started("1"))
	f(1, stopped("3"), stopped("3"))
	f(1, all+started("4"))
	f(1, all, started("2")+started("3")) // one of them was decided, by 2
	f(1, started("7"))
	if got := lost([]ack{{3, 10}, {4, 12}}, list); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if got := lost([]ack{{3, 10}, {7, 12}, {3, 13}}, list); len(got) != 2 {
		t.Errorf("%q", got)
	}
}

func TestFaultsAreChosenByName(t *testing.T) {
	got, err := chosen("loss,minority")
	if err != nil || len(got) != 2 || got[0].name != "minority" {
		t.Errorf("%d faults, %v", len(got), err)
	}
	if _, err := chosen("minority,flood"); err == nil {
		t.Error("an unknown fault is taken")
	}
	seen := map[string]bool{}
	for _, f := range faults {
		if seen[f.name] || f.what == "" {
			t.Errorf("fault %q is there twice or unexplained", f.name)
		}
		seen[f.name] = true
	}
}
