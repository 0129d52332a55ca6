package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// The tests here are lines of ARCHITECTURE's failure table that no other test shows with real processes; docs/cases.md
// has the whole list.

// The router that reads an engine hangs, its connections open: the next one in order reads it, and goes on doing so.
// How soon is shown in simulated time (scenario TestReaderHangs).
func TestReaderHangs(t *testing.T) {
	t.Parallel()
	p := cluster(t, harness.ProcsConfig{Routers: 3, Engines: 2})
	joined(t, p.Routers)
	first := ask[[]replica](t, p.Routers[0], "replicas")[0]
	engine := first.ID
	var ids []state.RouterID
	for _, r := range p.Routers {
		ids = append(ids, state.RouterID(ask[status](t, r, "status").Router.ID))
	}
	order := harness.ReadingOrder(first.URL, ids)
	read := func(r *harness.Proc) replica {
		for _, rep := range ask[[]replica](t, r, "replicas") {
			if rep.ID == engine {
				return rep
			}
		}
		t.Fatalf("%s does not list %s", r.Name, engine)
		return replica{}
	}
	hung, next := string(order[0]), string(order[1])
	poll(t, patience, "the first in order reads the engine", func() (bool, string) {
		rep := read(p.Routers[0])
		return rep.Reader == hung, fmt.Sprintf("%+v, want %s", rep, hung)
	})
	var rest []*harness.Proc
	for _, r := range p.Routers {
		if ask[status](t, r, "status").Router.ID != hung {
			rest = append(rest, r)
			continue
		}
		if err := r.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Signal(syscall.SIGCONT) })
	}
	if len(rest) != 2 {
		t.Fatalf("no router is the reader %q", hung)
	}
	for _, r := range rest {
		poll(t, patience, r.Name+" gets readings from the next reader", func() (bool, string) {
			rep := read(r)
			return rep.Reader == next && rep.ReadingAgeMS < 1000, fmt.Sprintf("%+v, want %s", rep, next)
		})
		for range 5 { // each ends with a reading that is younger than the look before it
			looked := time.Now()
			poll(t, patience, r.Name+" gets a further reading", func() (bool, string) {
				rep := read(r)
				if rep.Reader != next {
					t.Fatalf("%s: %+v, the reader was %s", r.Name, rep, next)
				}
				return time.Since(looked) > time.Duration(rep.ReadingAgeMS*float64(time.Millisecond)), fmt.Sprintf("%+v", rep)
			})
		}
		if resp, body := whole(t, r.API+"/v1/chat/completions", chat("hello", 2, false, "")); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d, %s", r.Name, resp.StatusCode, body)
		}
	}
}

// An engine whose metrics fail gets requests, and is neither ejected nor waited for.
func TestReadingsFail(t *testing.T) {
	t.Parallel()
	p := cluster(t, harness.ProcsConfig{Routers: 2, Engines: 2, EngineArgs: []string{"--speed", "10"}})
	joined(t, p.Routers)
	blind := strings.TrimPrefix(p.Engines[0].API, "http://")
	fault(t, p.Engines[0], enginesim.Fault{Kind: enginesim.FaultMetricsStatus, Status: http.StatusInternalServerError})
	for _, r := range p.Routers {
		poll(t, patience, r.Name+" says that it is unreadable", func() (bool, string) {
			for _, rep := range ask[[]replica](t, r, "replicas") {
				if rep.ID == blind {
					return rep.State == "unreadable", rep.State
				}
			}
			return false, "not listed"
		})
	}
	served := 0
	for i := range 40 {
		resp, body := whole(t, p.Routers[i%2].API+"/v1/chat/completions", chat(long(fmt.Sprint("blind ", i), 40), 2, true, ""), "x-hearsay-debug", "1")
		if resp.StatusCode != http.StatusOK {
			t.Errorf("request %d: status %d, %s", i, resp.StatusCode, body)
		}
		if resp.Header.Get("X-Hearsay-Replica") == blind {
			served++
		}
	}
	// How many depends on how fast each was when it was first used, in real time. The
	// shares are looked at in simulated time: TestMetricsCannotBeRead.
	if t.Logf("it got %d of 40 requests", served); served == 0 || served == 40 {
		t.Errorf("it got %d of 40 requests: one of the two is shunned", served)
	}
}

// All replicas of a pool are as full as they may be: what comes waits, and is told to come again in the end. When
// there is room it is served.
func TestSaturatedReplicas(t *testing.T) {
	t.Parallel()
	p := cluster(t, harness.ProcsConfig{Routers: 2, Engines: 1, PoolYAML: "    queue: {max_wait: 300ms, max_inflight: 2}\n"})
	joined(t, p.Routers)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for i := range 2 {
		resp := post(ctx, t, p.Routers[i].API+"/v1/chat/completions", chat(long(fmt.Sprint("full ", i), 10), 20000, true, ""))
		defer func() { _ = resp.Body.Close() }()
		events(t, bufio.NewReader(resp.Body), 1)
	}
	short := chat("a short one", 2, false, "")
	for _, r := range p.Routers {
		poll(t, patience, r.Name+" refuses for want of room", func() (bool, string) {
			resp, body := whole(t, r.API+"/v1/chat/completions", short)
			if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
				t.Fatalf("%s: status %d, %s", r.Name, resp.StatusCode, body)
			}
			return resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "", fmt.Sprint(resp.StatusCode, resp.Header, body)
		})
	}
	leave()
	for _, r := range p.Routers {
		poll(t, patience, r.Name+" serves again", func() (bool, string) {
			resp, body := whole(t, r.API+"/v1/chat/completions", short)
			return resp.StatusCode == http.StatusOK, body
		})
	}
}

// The only replica of a pool is killed: the pool it falls back to answers in the client's name. When that is gone, too,
// clients are told to come again.
func TestPoolThatCannotServe(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/v1/models" {
			_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"elsewhere","object":"model"}]}`)
			return
		}
		_, _ = io.WriteString(w, `{"id":"x","object":"chat.completion","model":"elsewhere","choices":[{"index":0,"message":{"role":"assistant","content":"from afar"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`)
	}))
	defer other.Close()
	p := cluster(t, harness.ProcsConfig{
		Routers: 1, Engines: 1, PoolYAML: "    fallback: [afar]\n",
		MorePools: fmt.Sprintf("  - name: afar\n    model: elsewhere\n    engine: openai\n    replicas:\n      - {url: %q}\n", other.URL),
	})
	url, body := p.Routers[0].API+"/v1/chat/completions", chat("hello", 2, false, "")
	if resp, answer := whole(t, url, body); resp.StatusCode != http.StatusOK || strings.Contains(answer, "from afar") {
		t.Fatalf("at first: status %d, %s", resp.StatusCode, answer)
	}
	p.Engines[0].Kill()
	for range 5 {
		resp, answer := whole(t, url, body)
		if resp.StatusCode != http.StatusOK || !strings.Contains(answer, "from afar") || !strings.Contains(answer, model) {
			t.Errorf("its replica killed: status %d, %s", resp.StatusCode, answer)
		}
	}
	other.Close()
	resp, answer := whole(t, url, body)
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(answer, `"error"`) {
		t.Errorf("nobody is left: status %d, %v, %s", resp.StatusCode, resp.Header, answer)
	}
}

// The replica that keeps a response is killed: any router says so by the response's id, and none makes one up.
func TestKeeperOfAResponseIsKilled(t *testing.T) {
	t.Parallel()
	p := cluster(t, harness.ProcsConfig{Routers: 2, Engines: 2})
	joined(t, p.Routers)
	first, body := whole(t, p.Routers[0].API+"/v1/responses", fmt.Sprintf(`{"model":%q,"input":"What is it?","max_output_tokens":4}`, model), "x-hearsay-debug", "1")
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(body), &made); err != nil || made.ID == "" || first.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %s: %v", first.StatusCode, body, err)
	}
	next := fmt.Sprintf(`{"model":%q,"input":"And then?","max_output_tokens":4,"previous_response_id":%q}`, model, made.ID)
	if resp, body := whole(t, p.Routers[1].API+"/v1/responses", next); resp.StatusCode != http.StatusOK {
		t.Errorf("while it is there: status %d, %s", resp.StatusCode, body)
	}
	for _, e := range p.Engines {
		if strings.HasSuffix(e.API, "/"+first.Header.Get("X-Hearsay-Replica")) {
			e.Kill()
		}
	}
	for _, r := range p.Routers {
		poll(t, patience, r.Name+" says that it is gone", func() (bool, string) {
			resp, body := whole(t, r.API+"/v1/responses", next)
			if resp.StatusCode == http.StatusOK {
				t.Fatalf("%s goes on from what nobody keeps: %s", r.Name, body)
			}
			return resp.StatusCode == http.StatusNotFound && strings.Contains(body, "previous_response_not_found"), body
		})
	}
}

// An engine is killed and started again at its address: no router takes it for a holder of what it held.
func TestEngineStartsAnew(t *testing.T) {
	t.Parallel()
	p := cluster(t, harness.ProcsConfig{Routers: 3, Engines: 2})
	joined(t, p.Routers)
	prompt := long("what is lost", 300)
	resp, _ := whole(t, p.Routers[0].API+"/v1/chat/completions", chat(prompt, 2, true, ""), "x-hearsay-debug", "1")
	holder := resp.Header.Get("X-Hearsay-Replica")
	matched := func(r *harness.Proc) (n int, all explained) {
		all = explain(t, r, chat(prompt+" And then?", 2, true, ""))
		for _, c := range all.Candidates {
			if c.Replica == holder {
				n = c.MatchedTokens
			}
		}
		return n, all
	}
	for _, r := range p.Routers {
		poll(t, patience, r.Name+" knows the holder", func() (bool, string) {
			n, all := matched(r)
			return 2*n > all.PromptTokens, all.String()
		})
	}
	for _, e := range p.Engines {
		if strings.HasSuffix(e.API, "/"+holder) {
			e.Kill()
			if err := p.Start(e); err != nil {
				t.Fatal(err)
			}
			if err := e.WaitReady(t.Context(), patience); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, r := range p.Routers {
		poll(t, 5*time.Second, r.Name+" knows that it holds nothing", func() (bool, string) {
			n, all := matched(r)
			return n == 0, all.String()
		})
	}
}
