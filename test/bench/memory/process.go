package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// usage is what a router uses at one instant, bytes.
type usage struct {
	RSS     float64 `json:"rss"`     // resident, from the kernel
	Heap    float64 `json:"heap"`    // objects not collected yet, garbage included
	Stack   float64 `json:"stack"`   // of goroutines
	Sys     float64 `json:"sys"`     // taken from the system, given back or not
	Entries float64 `json:"entries"` // of the sketch, a count
	Sketch  float64 `json:"sketch"`  // what the router takes its sketches and their journal to weigh
	Gossip  float64 `json:"gossip"`  // sent to other routers since the start
	Threads float64 `json:"goroutines"`
}

// live is heap and stacks: after a collection, what the process needs.
func (u usage) live() float64 { return u.Heap + u.Stack }

var client = &http.Client{Timeout: 30 * time.Second}

// read takes a router's usage as it is.
func read(ctx context.Context, p *harness.Proc) (u usage, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
	if err != nil {
		return u, fmt.Errorf("memory of %s: %w", p.Name, err)
	}
	if f := strings.Fields(string(b)); len(f) > 1 {
		pages, _ := strconv.ParseFloat(f[1], 64)
		u.RSS = pages * float64(os.Getpagesize())
	}
	body, err := get(ctx, p.Admin+"/metrics")
	if err != nil {
		return u, err
	}
	defer func() { _ = body.Close() }()
	for s := bufio.NewScanner(body); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), " ")
		v, _ := strconv.ParseFloat(value, 64)
		switch {
		case name == "go_memstats_heap_alloc_bytes":
			u.Heap = v
		case name == "go_memstats_stack_inuse_bytes":
			u.Stack = v
		case name == "go_memstats_sys_bytes":
			u.Sys = v
		case name == "hearsay_sketch_entries":
			u.Entries = v
		case name == "hearsay_sketch_bytes":
			u.Sketch = v
		case name == "go_goroutines":
			u.Threads = v
		case name == `hearsay_mesh_bytes_total{direction="out"}`:
			u.Gossip = v
		}
	}
	return u, nil
}

// collect lets a router collect its garbage, twice: what a finaliser or a pool
// holds goes with the second.
func collect(ctx context.Context, p *harness.Proc) error {
	for range 2 {
		body, err := get(ctx, p.Admin+"/debug/pprof/heap?gc=1")
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, body)
		_ = body.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// profile writes a router's heap profile into the directory for results.
func profile(ctx context.Context, o *options, p *harness.Proc, name string) error {
	body, err := get(ctx, p.Admin+"/debug/pprof/heap")
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	f, err := os.Create(filepath.Join(o.out, "memory_"+name+".pprof"))
	if err != nil {
		return err
	}
	_, err = io.Copy(f, body)
	return errors.Join(err, f.Close())
}

// settled is the usage after a collection.
func settled(ctx context.Context, p *harness.Proc) (usage, error) {
	if err := collect(ctx, p); err != nil {
		return usage{}, err
	}
	return read(ctx, p)
}

func get(ctx context.Context, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s: status %d", url, resp.StatusCode)
	}
	return resp.Body, nil
}

// wait sleeps unless ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cluster starts routers in front of new upstreams, which become replicas by the
// admin API, so that they can be removed again. done ends all.
func cluster(ctx context.Context, o *options, routers, replicas int) (p *harness.Procs, up *upstreams, done func(), err error) {
	if up, err = newUpstreams(replicas, o.kvTokens); err != nil {
		return nil, nil, nil, err
	}
	c, err := procs.Start(ctx, harness.ProcsConfig{
		Bin: o.bin, Routers: routers, Model: model, PoolYAML: "    engine: vllm\n    timeouts: {idle: 10m}\n",
	})
	if err != nil {
		up.close()
		return nil, nil, nil, err
	}
	done = func() {
		c.Close()
		up.close()
	}
	if err = introduce(ctx, c.Procs, up); err != nil {
		done()
		return nil, nil, nil, err
	}
	return c.Procs, up, done, nil
}

// introduce makes the upstreams replicas, and waits until every router knows all of
// them and has read them.
func introduce(ctx context.Context, p *harness.Procs, up *upstreams) error {
	for _, r := range up.replicas {
		if err := admin(ctx, p, http.MethodPost, "/admin/v1/replicas", fmt.Sprintf(`{"pool":"chat","url":%q}`, r.url)); err != nil {
			return err
		}
	}
	for _, r := range p.Routers {
		for end := time.Now().Add(20 * time.Second); ; {
			var list []struct {
				ID string `json:"id"`
			}
			err := r.GetAdmin(ctx, "replicas", &list)
			if err == nil && len(list) == len(up.replicas) {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("%s knows %d of %d replicas: %w", r.Name, len(list), len(up.replicas), err)
			}
			if err := wait(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return wait(ctx, 2*time.Second)
}

// admin writes through any router that takes it.
func admin(ctx context.Context, p *harness.Procs, method, path, body string) error {
	var last error
	for range 50 {
		for _, r := range p.Routers {
			req, err := http.NewRequestWithContext(ctx, method, r.Admin+path, strings.NewReader(body))
			if err != nil {
				return err
			}
			resp, err := client.Do(req)
			if err != nil {
				last = err
				continue
			}
			text, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			last = fmt.Errorf("%s %s: status %d: %s", method, path, resp.StatusCode, text)
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return last
}
