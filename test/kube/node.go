package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// podNet are the addresses of Pods, all of them this network's own. The first is the node's.
var podNet = net.IPNet{IP: net.IPv4(10, 77, 0, 1).To4(), Mask: net.CIDRMask(16, 32)}

// The node that all Pods are scheduled to.
const (
	nodeName   = "e2e"
	enginePort = 8000
	look       = 100 * time.Millisecond // between two looks at Pods and engines
)

// node stands in for a kubelet: it runs a simulated engine for each Pod of its node, at
// an address that no Pod had before, tells the API server how the Pod is, and ends it as
// a kubelet does: the sleep before the stop, SIGTERM, the grace, SIGKILL. A Pod is ready
// while its engine's health says so.
type node struct {
	api      *client
	bin, dir string

	mu    sync.Mutex
	next  int                  // guarded by mu; addresses given out
	ready map[string]time.Time // guarded by mu; by UID, since when the API server knows it as ready
}

// join makes the node known, with room for all Pods.
func (n *node) join(ctx context.Context) error {
	manifest := fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q}}`, nodeName)
	path := "/api/v1/nodes/" + nodeName
	if err := n.api.apply(ctx, path, manifest); err != nil {
		return err
	}
	// Without its kubelet and controller the node would keep the taint that new ones get.
	if err := n.api.merge(ctx, path, `{"spec":{"taints":null}}`); err != nil {
		return err
	}
	return n.api.merge(ctx, path+"/status", `{"status":{"capacity":{"cpu":"64","memory":"64Gi","pods":"100"},"allocatable":{"cpu":"64","memory":"64Gi","pods":"100"},
		"conditions":[{"type":"Ready","status":"True","reason":"e2e","message":"","lastTransitionTime":null,"lastHeartbeatTime":null}]}}`)
}

// run follows the node's Pods until ctx ends, and returns when all engines have ended.
func (n *node) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	lives := map[string]chan pod{} // by UID; each gets its Pod as it is now
	for tick(ctx, look) {
		list, err := n.api.pods(ctx, "fieldSelector=spec.nodeName="+nodeName)
		if err != nil {
			continue // as it was, until the API server is back
		}
		there := map[string]bool{}
		for _, p := range list {
			uid := p.Metadata.UID
			there[uid] = true
			news := lives[uid]
			if news == nil {
				news = make(chan pod, 1)
				lives[uid] = news
				wg.Go(func() { n.live(ctx, p, news) })
			}
			select {
			case news <- p:
			default: // it has not taken the last one
			}
		}
		maps.DeleteFunc(lives, func(uid string, _ chan pod) bool { return !there[uid] })
	}
}

// tick waits, and reports whether to go on.
func tick(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// address gives out the next address.
func (n *node) address() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next++
	return net.IPv4(podNet.IP[0], podNet.IP[1], byte(1+n.next/250), byte(1+n.next%250)).String()
}

// live runs a Pod's engine until the Pod is deleted, or ctx ends.
func (n *node) live(ctx context.Context, p pod, news <-chan pod) {
	ip := n.address()
	listen := fmt.Sprintf("%s:%d", ip, enginePort)
	args := append([]string{n.bin, "engine-sim", "--listen", listen}, p.Spec.Containers[0].Args...)
	proc, err := harness.StartCommand(n.dir, p.Metadata.Name, args...)
	if err != nil {
		fmt.Fprintf(os.Stderr, "engine of %s: %v\n", p.Metadata.Name, err) // it is never ready
		return
	}
	defer proc.Kill()
	told, known := false, false // what the API server was told of readiness, if anything
	for tick(ctx, look) {
		select {
		case p = <-news:
		default:
		}
		if p.Metadata.Deletion != nil {
			n.end(ctx, &p, proc)
			return
		}
		ready := healthy(ctx, "http://"+listen)
		if !known && !ready || known && told == ready {
			continue
		}
		if err := n.tell(ctx, &p, ip, ready); err == nil {
			known, told = true, ready
		}
	}
}

// probes ask engines, as a kubelet does, one connection each.
var probes = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// healthy asks an engine how it is.
func healthy(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
	if err != nil {
		return false
	}
	resp, err := probes.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// tell tells the API server that the Pod runs, and whether it is ready.
func (n *node) tell(ctx context.Context, p *pod, ip string, ready bool) error {
	word := map[bool]string{true: "True", false: "False"}[ready]
	now := time.Now().UTC().Format(time.RFC3339)
	patch := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"phase":"Running","podIP":%q,"podIPs":[{"ip":%[2]q}],"startTime":%[3]q,"conditions":[
		{"type":"Initialized","status":"True","lastTransitionTime":%[3]q},{"type":"ContainersReady","status":%[4]q,"lastTransitionTime":%[3]q},
		{"type":"Ready","status":%[4]q,"lastTransitionTime":%[3]q}]}}`, p.Metadata.UID, ip, now, word)
	if err := n.api.do(ctx, http.MethodPatch, p.path()+"/status", strategicPatch, []byte(patch), nil); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ready == nil {
		n.ready = map[string]time.Time{}
	}
	delete(n.ready, p.Metadata.UID)
	if ready {
		n.ready[p.Metadata.UID] = time.Now()
	}
	return nil
}

// readySince is when the API server got to know that a Pod is ready; zero: it does not.
func (n *node) readySince(uid string) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ready[uid]
}

// end ends a Pod whose deletion was asked for.
func (n *node) end(ctx context.Context, p *pod, engine *harness.Proc) {
	grace := 30
	if p.Metadata.Grace != nil {
		grace = *p.Metadata.Grace
	}
	sleep := min(p.Spec.Containers[0].Lifecycle.PreStop.Sleep.Seconds, grace)
	if !tick(ctx, time.Duration(sleep)*time.Second) {
		return
	}
	_ = engine.Signal(syscall.SIGTERM)
	_ = engine.Wait(time.Duration(max(2, grace-sleep)) * time.Second) // or it is killed
	last := fmt.Appendf(nil, `{"gracePeriodSeconds":0,"preconditions":{"uid":%q}}`, p.Metadata.UID)
	for {
		err := n.api.do(ctx, http.MethodDelete, p.path(), plainJSON, last, nil)
		if c := code(err); err == nil || c == http.StatusNotFound || c == http.StatusConflict || !tick(ctx, look) {
			return
		}
	}
}

// engineURL is where the engine of a Pod is.
func engineURL(p *pod) string { return fmt.Sprintf("http://%s:%d", p.Status.IP, enginePort) }

// fault makes a Pod's engine misbehave.
func fault(ctx context.Context, p *pod, body string) error {
	c := client{server: engineURL(p), http: probes}
	if err := c.do(ctx, http.MethodPost, "/sim/fault", plainJSON, []byte(body), nil); err != nil {
		return fmt.Errorf("fault at %s: %w", p.Metadata.Name, err)
	}
	return nil
}

// dirOf is where a node keeps its engines' logs.
func dirOf(dir string) string { return filepath.Join(dir, "engines") }
