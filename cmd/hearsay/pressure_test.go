package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

// What waits and was refused stands beside its pool, and nowhere where there is none.
func TestStatusShowsPressure(t *testing.T) {
	calm := console.Pool{Name: "calm", WaitMS: 0}
	full := console.Pool{
		Name: "full", Waiting: 7, Here: map[string]int64{"normal": 3, "high": 1}, WaitMS: 1250,
		Refused: map[string]int64{"queue_full": 2, "queue_timeout": 31},
	}
	gone := console.Pool{Name: "gone", WaitMS: -1, Refused: map[string]int64{"no_replicas": 1}}
	f := func(s console.Status, want []string, not ...string) {
		t.Helper()
		var b bytes.Buffer
		if err := printStatus(&b, &s, false); err != nil {
			t.Fatal(err)
		}
		for _, x := range want {
			if !strings.Contains(b.String(), x) {
				t.Errorf("lacks %q:\n%s", x, b.String())
			}
		}
		for _, x := range not {
			if strings.Contains(b.String(), x) {
				t.Errorf("has %q:\n%s", x, b.String())
			}
		}
	}
	f(console.Status{Pools: []console.Pool{calm}}, []string{"ACTUATOR\n"}, "WAITING", "REFUSED", "refused")
	f(console.Status{Pools: []console.Pool{calm, full, gone}}, []string{
		"WAITING                    EST. WAIT   REFUSED/MIN\n", "7 (here 1 high, 3 normal)  1.25s       31 queue_timeout, 2 queue_full\n",
		"no replica  1 no_replicas\n", "0                          -           -\n",
	})
	f(console.Status{Refused: map[string]int64{"body_budget": 4}}, []string{"refused  in the last minute, before the pool was known: 4 body_budget\n"})

	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/pools") {
			_ = json.NewEncoder(w).Encode([]console.Pool{calm, full})
			return
		}
		_ = json.NewEncoder(w).Encode([]console.Replica{{ID: "a:1", Pool: "full", State: "ready"}})
	}))
	defer srv.Close()
	t.Setenv("HEARSAY_SERVER", srv.URL)
	call(t, "replicas").wants(t, 0, "full  7 (here 1 high, 3 normal)  1.25s      31 queue_timeout, 2 queue_full\n")
	if x := call(t, "replicas", "--pool", "calm"); strings.Contains(x.out, "EST. WAIT") {
		t.Errorf("of another pool:\n%s", x.out)
	}
}

// Why a request was refused is said in words, with what each replica had.
func TestExplainARefusal(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`[{"request_id":"x","pool":"chat","model":"m","band":"normal","prompt_tokens":12,"attempt":0,"queued_ns":5000000000,
			"refusal":{"status":429,"reason":"queue_timeout","words":["it waited 5s","to change: more replicas"]},
			"candidates":[{"replica":"a:1","excluded":"saturated","terms":{"queue":5100},"had":{"in_flight":4,"max_inflight":4,"waiting":2,"kv_usage":0.97}}]}]`))
	}))
	defer srv.Close()
	t.Setenv("HEARSAY_SERVER", srv.URL)
	call(t, "explain", "x").wants(t, 0, "request x was refused with 429 (queue_timeout)\n", "about 12 prompt tokens", "it waited 5s\nto change: more replicas\n",
		"a:1      4          4     5100.0    2               97%  0            saturated (has no room")
}
