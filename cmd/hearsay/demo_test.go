package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/state"
)

// Two demos that choose their places at one instant never share one.
func TestDemosTakePlacesOfTheirOwn(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]bool{}
	var all []*places
	var wg sync.WaitGroup
	for range 4 {
		p := newPlaces()
		all = append(all, p)
		wg.Go(func() {
			for i := range 3 {
				r, err := p.router(1000 + i)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, at := range []string{r.api, r.admin, r.cluster} {
					if seen[at] {
						t.Errorf("%s was taken twice", at)
					}
					seen[at] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, p := range all {
		p.close()
	}
	for at := range seen {
		ln, err := net.Listen("tcp", at)
		if err != nil {
			t.Errorf("not given back: %v", err)
			continue
		}
		_ = ln.Close()
	}
}

// What killed demos left goes; what a living one uses, or one that has just begun,
// stays.
func TestNextDemoCleansUpAfterAKilledOne(t *testing.T) {
	tmp := t.TempDir()
	mk := func(name string, age time.Duration) string {
		dir := filepath.Join(tmp, name)
		if err := os.MkdirAll(filepath.Join(dir, "r1"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	alive, begun, never, other := mk(demoPrefix+"alive", time.Hour), mk(demoPrefix+"begun", time.Second), mk(demoPrefix+"never", time.Hour), mk("other", time.Hour)
	killed := mk(demoPrefix+"killed", time.Second)
	release, err := claim(alive)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(killed, demoPIDFile), []byte("1234567\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := sweepDemos(tmp); len(got) != 2 {
		t.Errorf("removed %v", got)
	}
	for dir, want := range map[string]bool{alive: true, begun: true, never: false, other: true, killed: false} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: there %v, want %v", dir, err == nil, want)
		}
	}
	if _, err := claim(alive); err == nil || !strings.Contains(err.Error(), "is in use by another demo") {
		t.Errorf("a second demo in one directory: %v", err)
	}
	release()
	again, err := claim(alive)
	if err != nil {
		t.Errorf("after the first has ended: %v", err)
	} else {
		again()
	}
}

func TestEngineEndsWithItsParent(t *testing.T) {
	done := make(chan result, 1)
	go func() { done <- call(t, "engine-sim", "--listen", "127.0.0.1:0", "--parent", "2147483647") }()
	select {
	case r := <-done:
		r.wants(t, 0)
	case <-time.After(20 * time.Second):
		t.Fatal("it runs on without its parent")
	}
	ctx, cancel := withParent(t.Context(), os.Getppid())
	defer cancel()
	select {
	case <-ctx.Done():
		t.Error("ended although the parent lives")
	case <-time.After(500 * time.Millisecond):
	}
}

// Two demos run side by side, show commands as this program was called, and leave
// nothing behind.
func TestDemosSideBySide(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	name := os.Args[0]
	os.Args[0] = "./bin/hearsay"
	defer func() { os.Args[0] = name }()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	outs := [2]*locked{{}, {}}
	var wg sync.WaitGroup
	for _, out := range outs {
		wg.Go(func() {
			f := demoFlags{routers: 1, replicas: 1, rate: 1, policy: "ttft", kvTokens: 20_000}
			if err := runDemo(ctx, &f, out); err != nil {
				t.Error(err)
			}
		})
	}
	within(t, "both are ready", func() bool {
		return strings.Contains(outs[0].String(), "./bin/hearsay status") && strings.Contains(outs[1].String(), "./bin/hearsay status")
	})
	stop()
	wg.Wait()
	for _, out := range outs {
		if !strings.HasSuffix(out.String(), "stopped\n") {
			t.Errorf("its end: %s", out)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// However short a demo is, it says where its routers are: starting takes what it takes.
func TestDemoCountsItsDurationFromWhenItIsReady(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	out := &locked{}
	f := demoFlags{routers: 1, replicas: 1, rate: 1, policy: "ttft", kvTokens: 20_000, duration: 1}
	if err := runDemo(t.Context(), &f, out); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.Contains(s, "ROUTER") || !strings.HasSuffix(s, "stopped\n") {
		t.Errorf("said:\n%s", s)
	}
}

// Engines keep their places while others come and go.
func TestDemoNamesItsEngines(t *testing.T) {
	url := func(i int) string { return fmt.Sprintf("http://127.0.0.1:%d", 8500+i) }
	engines := newDemoEngines(node.PoolConfig{Replicas: []node.ReplicaConfig{{URL: url(2)}, {URL: url(1)}}})
	now := time.Now()
	f := func(after time.Duration, want, wantHere string, there ...int) {
		t.Helper()
		now = now.Add(after)
		pool := &state.PoolView{}
		for _, i := range there {
			pool.Replicas = append(pool.Replicas, &state.ReplicaView{
				Replica: state.Replica{URL: url(i)}, Cell: &state.Cell{}, Others: state.Load{InFlight: int64(10 * i)},
			})
		}
		if all, here := engines.load(&state.View{Pools: []*state.PoolView{pool}}, now); all != want || here != wantHere {
			t.Errorf("%q and %q, want %q and %q", all, here, want, wantHere)
		}
	}
	f(0, ":8502 20, :8501 10", ":8502 20, :8501 10", 1, 2)
	f(0, ":8502 20, :8501 10, :8500 0", ":8502 20, :8501 10, :8500 0", 0, 1, 2)
	f(time.Second, ":8502 -, :8501 10, :8500 0, :8503 30", ":8501 10, :8500 0, :8503 30", 0, 1, 3)
	f(time.Second, ":8502 20, :8501 10, :8500 -, :8503 30", ":8502 20, :8501 10, :8503 30", 1, 2, 3)
	f(goneShown-2*time.Second, ":8502 20, :8501 10, :8500 -, :8503 -", ":8502 20, :8501 10", 1, 2)
	f(time.Second, ":8502 20, :8501 10, :8503 -", ":8502 20, :8501 10", 1, 2)
}

// locked is a buffer for several goroutines.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
