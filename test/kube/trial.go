package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// pools of the routers, each found in another way. Each has a Deployment of its name,
// whose engines serve sim-NAME.
var pools = []string{"chat", "slices", "inference", scaled}

// trial is all that runs: a control plane, a node, and routers that reach the API server
// through a relay.
type trial struct {
	dir     string
	plane   *plane
	node    *node
	relay   *relay
	cluster *harness.Procs
	leave   func() // ends the node
	skipped bool   // a check that others build on has failed
}

// start starts it.
func start(ctx context.Context, o *options) (t *trial, err error) {
	t = &trial{dir: o.inside, leave: func() {}}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if err := os.Mkdir(dirOf(t.dir), 0o700); err != nil {
		return t, err
	}
	begin := time.Now()
	if t.plane, err = startPlane(ctx, o.dir, t.dir); err != nil {
		return t, err
	}
	fmt.Fprintf(os.Stderr, "the control plane runs after %.1f s\n", time.Since(begin).Seconds())
	if err := t.plane.admin.applyAll(ctx, world...); err != nil {
		return t, err
	}
	t.node = &node{api: t.plane.admin, bin: o.bin, dir: dirOf(t.dir)}
	if err := t.node.join(ctx); err != nil {
		return t, err
	}
	nodeCtx, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		t.node.run(nodeCtx)
	}()
	t.leave = func() { cancel(); <-gone }
	if t.relay, err = newRelay(apiAddr); err != nil {
		return t, err
	}
	t.cluster, err = t.routers(ctx, o.bin)
	return t, err
}

// routers starts three, with a kubeconfig of their account.
func (t *trial) routers(ctx context.Context, bin string) (*harness.Procs, error) {
	token, err := t.plane.admin.token(ctx)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(t.dir, "account.token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		return nil, err
	}
	config, err := t.plane.secrets.kubeconfig("account.kubeconfig", "https://"+t.relay.addr(), file)
	if err != nil {
		return nil, err
	}
	discover := func(how string) string {
		return fmt.Sprintf("    discover: {grace: 3s, kubernetes: {kubeconfig: %q, %s}}\n    drain: {deadline: 1m}\n", config, how)
	}
	return harness.StartProcs(ctx, harness.ProcsConfig{
		Bin: bin, Dir: t.dir, Routers: 3, Model: "sim-chat",
		PoolYAML: discover("selector: app=chat") +
			"  - name: slices\n    model: sim-slices\n" + discover("service: slices") +
			"  - name: inference\n    model: sim-inference\n" + discover("inference_pool: inference") +
			"  - name: " + scaled + "\n    model: sim-" + scaled + "\n" + discover("selector: app="+scaled) +
			"    scale: {min: 2, max: 6, actuator: kubernetes, cooldown: 1s, kubernetes: {name: " + scaled + "}}\n",
	})
}

// close ends all of it, in the reverse order.
func (t *trial) close() {
	if t.cluster != nil {
		t.cluster.Close()
	}
	if t.relay != nil {
		t.relay.close()
	}
	t.leave()
	if t.plane != nil {
		t.plane.close()
	}
}

// check is one thing that is tried. detail is for people.
type check struct {
	name string
	run  func(context.Context) (detail string, err error)
	base bool // what comes after it builds on it
}

// try makes the checks.
func (t *trial) try(ctx context.Context, only string) (out []result) {
	for _, c := range slices.Concat(t.discoveryChecks(), t.scalingChecks()) {
		if !c.base && !strings.Contains(c.name, only) || ctx.Err() != nil {
			continue
		}
		r := result{name: c.name}
		begin := time.Now()
		if t.skipped {
			r.err = errors.New("not tried: it builds on what failed")
		} else {
			r.detail, r.err = c.run(ctx)
		}
		r.took = time.Since(begin)
		t.skipped = t.skipped || c.base && r.err != nil
		out = append(out, r)
		word := "ok"
		if r.err != nil {
			word = "FAILED"
		}
		fmt.Fprintf(os.Stderr, "%5.1f s  %-6s  %s\n", r.took.Seconds(), word, r.name)
	}
	return out
}

// replicas is what a router says of a pool's replicas.
func replicas(ctx context.Context, r *harness.Proc, pool string) (out []console.Replica, err error) {
	var all []console.Replica
	err = r.GetAdmin(ctx, "replicas", &all)
	for _, x := range all {
		if x.Pool == pool {
			out = append(out, x)
		}
	}
	return out, err
}

// takes reports whether a replica gets requests.
func takes(r *console.Replica) bool { return r.State == "ready" || r.State == "slow_start" }

// everywhere waits until all routers see a pool as see wants it.
func (t *trial) everywhere(ctx context.Context, bound time.Duration, what, pool string, see func([]console.Replica) bool) (time.Duration, error) {
	return until(ctx, bound, what, func() (bool, string) {
		for _, r := range t.cluster.Routers {
			list, err := replicas(ctx, r, pool)
			if err != nil || !see(list) {
				return false, fmt.Sprintf("%s: %s %v", r.Name, said(list), err)
			}
		}
		return true, ""
	})
}

// said is a list in short, for people.
func said(list []console.Replica) string {
	var parts []string
	for _, r := range list {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Name, r.State, r.Trouble)))
	}
	return strings.Join(parts, "; ")
}

// sees reports whether these Pods, and no others, get requests.
func sees(list []console.Replica, pods []pod) bool {
	n := 0
	for i := range list {
		if !takes(&list[i]) {
			continue
		}
		n++
		if !slices.ContainsFunc(pods, func(p pod) bool {
			return p.Metadata.UID == list[i].ID && p.Metadata.Name == list[i].Name && engineURL(&p) == list[i].URL
		}) {
			return false
		}
	}
	return n == len(pods)
}

// podsOf are the ready Pods of a pool, when there are n of them.
func (t *trial) podsOf(ctx context.Context, pool string, n int) (ready []pod, err error) {
	_, err = until(ctx, time.Minute, fmt.Sprintf("%d Pods of %s are ready", n, pool), func() (bool, string) {
		all, err := t.plane.admin.pods(ctx, "labelSelector=app="+pool)
		ready = slices.DeleteFunc(all, func(p pod) bool { return !p.ready() })
		return err == nil && len(ready) == n, fmt.Sprintf("%d are %v", len(ready), err)
	})
	return ready, err
}

// agree waits until all routers send requests to the n ready Pods of a pool and to no
// others.
func (t *trial) agree(ctx context.Context, bound time.Duration, pool string, n int) ([]pod, time.Duration, error) {
	pods, err := t.podsOf(ctx, pool, n)
	if err != nil {
		return nil, 0, err
	}
	took, err := t.everywhere(ctx, bound, fmt.Sprintf("all routers use the %d Pods of %s", n, pool), pool, func(list []console.Replica) bool { return sees(list, pods) })
	return pods, took, err
}

// warned waits until every router's status has a warning with all of the words, or, with
// not set, until none has one, and returns the last that was seen.
func (t *trial) warned(ctx context.Context, bound time.Duration, not bool, words ...string) (last string, err error) {
	_, err = until(ctx, bound, fmt.Sprintf("warnings of %q", words), func() (bool, string) {
		all := []string{}
		for _, r := range t.cluster.Routers {
			var s console.Status
			if err := r.GetAdmin(ctx, "status", &s); err != nil {
				return false, err.Error()
			}
			all = append(all, s.Warn...)
			i := slices.IndexFunc(s.Warn, func(w string) bool {
				return !slices.ContainsFunc(words, func(x string) bool { return !strings.Contains(w, x) })
			})
			if i >= 0 {
				last = s.Warn[i]
			}
			if (i >= 0) == not {
				return false, r.Name + ": " + strings.Join(all, " | ")
			}
		}
		return true, ""
	})
	return last, err
}
