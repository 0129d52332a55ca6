package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hearsay-llm/hearsay/test/replay"
)

func TestReplay(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "report.json")
	x := call(t, "replay", "--trace", "agents", "--requests", "20", "--speed", "20", "--target", r.api, "--quiet", "--json", file, "--plot", dir)
	x.wants(t, 0, "TTFT", "hit rate", r.api)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report replay.Report
	if err := json.Unmarshal(b, &report); err != nil {
		t.Fatal(err)
	}
	if report.Sent != 20 || report.OK != 20 || report.Errors != 0 || report.HitRate == nil || len(report.Replicas) == 0 {
		t.Errorf("report %s", b)
	}
	if plots, _ := filepath.Glob(filepath.Join(dir, "*.svg")); len(plots) == 0 || !strings.Contains(x.errOut, plots[0]) {
		t.Errorf("plots %v, told: %s", plots, x.errOut)
	}

	only := isJSON[replay.Report](t, call(t, "replay", "--trace", "mooncake-conversation", "--requests", "3", "--rate", "20", "--speed", "20", "--target", strings.TrimPrefix(r.api, "http://"), "--json", "-"))
	if only.OK != 3 {
		t.Errorf("report %+v", only)
	}
}

func TestReplayThatCannotBe(t *testing.T) {
	bad := writeTemp(t, "bad.jsonl", "{\"timestamp\": \"soon\"}\n")
	call(t, "replay", "--trace", bad, "--target", "http://127.0.0.1:1").wants(t, 1, "bad.jsonl")
	x := call(t, "replay", "--trace", "agents", "--requests", "2", "--target", "http://127.0.0.1:1", "--quiet")
	if x.code != 1 || x.out != "" || !strings.Contains(x.errOut, "nothing was sent: target http://127.0.0.1:1 can't be reached: ") {
		t.Errorf("exit code %d\n%s\n%s", x.code, x.out, x.errOut)
	}
	broken := httptest.NewServer(http.NotFoundHandler())
	defer broken.Close()
	x = call(t, "replay", "--trace", "agents", "--requests", "2", "--rate", "1000", "--target", broken.URL, "--quiet")
	if x.code != 1 || !strings.Contains(x.errOut, "no request succeeded") {
		t.Errorf("exit code %d\n%s\n%s", x.code, x.out, x.errOut)
	}

	r := newRig(t)
	one := []string{"replay", "--trace", "agents", "--requests", "1", "--speed", "20", "--quiet", "--target", r.api}
	call(t, append(one, "--model", "llama")...).wants(t, 1, "nothing was sent: target "+r.api+` does not serve "llama": it has sim-70b, default`)
	call(t, append(one, "--json", "/nonexistent/x")...).wants(t, 1, "--json: ", "/nonexistent/x")
	call(t, append(one, "--plot", bad)...).wants(t, 1, "--plot: ", bad)
	call(t, "replay", "--trace", writeTemp(t, "empty.jsonl", ""), "--target", r.api).wants(t, 1, "empty.jsonl", "it is empty")
}

// A replay all of which is warm-up blames no target.
func TestReplayOfWarmupAlone(t *testing.T) {
	broken := httptest.NewServer(http.NotFoundHandler())
	defer broken.Close()
	x := call(t, "replay", "--trace", "agents", "--requests", "2", "--rate", "1000", "--warmup", "1h", "--target", broken.URL, "--quiet")
	if x.code != 1 || !strings.Contains(x.errOut, "all 2 requests were due within --warmup") {
		t.Errorf("exit code %d\n%s", x.code, x.errOut)
	}
}

// Ctrl-C while the trace is still read through ends that.
func TestReplayInterruptedBeforeItBegins(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	f := replayFlags{trace: agentsTrace, rate: 1, requests: maxRequests}
	if _, _, err := openTrace(ctx, &f); !errors.Is(err, errInterrupted) {
		t.Errorf("%v", err)
	}
}

// Ctrl-C ends a replay with what it has, says so, and tells scripts by its code.
func TestInterruptedReplayReportsWhatItHas(t *testing.T) {
	r := newRig(t)
	var first sync.Once
	ahead := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		u, err := url.Parse(r.api)
		if err != nil {
			t.Error(err)
			return
		}
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return // interrupted while it was sent
		}
		q.Body = io.NopCloser(bytes.NewReader(body))
		(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(u) }}).ServeHTTP(w, q)
		if !bytes.Contains(body, []byte(`"assistant"`)) {
			return // no answer is known to have been read yet
		}
		first.Do(func() {
			if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
				t.Error(err)
			}
		})
	}))
	defer ahead.Close()
	file := filepath.Join(t.TempDir(), "report.json")
	x := call(t, "replay", "--trace", "agents", "--requests", "500", "--speed", "20", "--target", ahead.URL, "--quiet", "--json", file)
	if x.code != 130 || !strings.Contains(x.out, "INTERRUPTED") || !strings.Contains(x.out, "TTFT") ||
		!strings.Contains(x.errOut, "interrupted after ") || !strings.Contains(x.errOut, " of ") {
		t.Errorf("exit code %d\n%s\n%s", x.code, x.out, x.errOut)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report replay.Report
	if err := json.Unmarshal(b, &report); err != nil || !report.Interrupted || report.OK == 0 {
		t.Errorf("report: %v, %s", err, b)
	}
}
