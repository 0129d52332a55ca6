package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/test/whatif"
)

// record follows requests at a router into a file until so many have been told.
func record(t *testing.T, r *rig, n int, ask func(i int)) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "requests.jsonl")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		a := &admin{server: r.admin, output: outputJSON}
		err := a.follow(ctx, []string{console.KindRequest}, w)
		_ = w.Close()
		done <- err
	}()
	told := make(chan int, 1)
	go func() {
		b, err := io.ReadAll(io.TeeReader(lines, out))
		if err != nil {
			t.Error(err)
		}
		told <- strings.Count(string(b), "\n")
	}()
	i := 0
	within(t, "a recording", func() bool { // the first may come before it reads along
		ask(i)
		i++
		s, err := os.ReadFile(file)
		return err == nil && strings.Count(string(s), "\n") >= n
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := <-told; got < n {
		t.Errorf("%d lines", got)
	}
	return file
}

// What a router has recorded runs in simulation, beside what really came of it, in a
// cluster like the router's own; and nothing that was said is in the record.
func TestWhatIfOfRecordedRequests(t *testing.T) {
	r := newRig(t)
	secret := "the moon is made of green cheese "
	prompt := strings.Repeat(secret, 60)
	file := record(t, r, 6, func(i int) {
		body := fmt.Sprintf(`{"model":"sim-70b","stream":true,"messages":[{"role":"user","content":"%s%d"}],"max_tokens":3}`, prompt, i)
		resp, err := http.Post(r.api+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	})
	text, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(text), "cheese") {
		t.Fatalf("%v: the record quotes prompts:\n%s", err, text)
	}
	args := []string{"replay", "--trace", file, "--what-if", "policy=ttft,round_robin", "--target", r.admin}
	x := call(t, args...)
	x.wants(t, 0, "policy=ttft ", "policy=round_robin ", "as recorded ")
	if !strings.Contains(x.errOut, "as pool chat at "+r.admin+": 1 router, 2 replicas of ") {
		t.Errorf("adopted:\n%s", x.errOut)
	}
	list := isJSON[[]whatif.Outcome](t, call(t, append(args, "--quiet", "--json", "-")...))
	if len(list) != 3 || list[2].Name != recordedRow || list[2].Figures.TTFTMean <= 0 {
		t.Fatalf("outcomes %+v", list)
	}
	for _, o := range list {
		if o.Figures.HitRate < 0.3 || o.Figures.Failed > 0 {
			t.Errorf("%s: hit rate %.2f of prompts that are alike, %d failed", o.Name, o.Figures.HitRate, o.Figures.Failed)
		}
	}
	call(t, "replay", "--trace", file, "--what-if", "policy=ttft", "--pool", "none").wants(t, 1, "no request of pool none")
	call(t, "replay", "--trace", file, "--what-if", "policy=ttft", "--target", r.admin, "--pool", "none").wants(t, 1, "has no pool none, but chat")
	call(t, "replay", "--what-if", "policy=ttft", "--target", r.api).wants(t, 1, "is a client port", "--target")
}
