package discovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/hearsay-llm/hearsay/deploy/kube"
)

// KubeConfig says which objects of a Kubernetes cluster stand for a pool's replicas.
// One of Selector, Service and InferencePool is set.
type KubeConfig struct {
	Namespace     string // empty: the account's own
	Selector      string // of Pods' labels
	Service       string // whose EndpointSlices are followed
	InferencePool string // whose selector and target ports are followed
	Port          string // number or name; empty: the only one there is
	Scheme        string // default http
	Kubeconfig    string // file; empty: the Pod's service account
	Context       string // of the kubeconfig; empty: its current one

	Getenv  func(string) string
	Account string // directory of the service account; empty: kube.ServiceAccount
	Dial    func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Kube is what a Kubernetes API server says of a pool's replicas.
type Kube struct {
	cfg    KubeConfig
	access *kube.Access
	ready  map[string]bool // UIDs of Pods that were ready once
}

// NewKube makes a source of a Kubernetes cluster, which need not answer yet.
func NewKube(cfg KubeConfig) (k *Kube, err error) {
	k = &Kube{cfg: cfg, ready: map[string]bool{}}
	if k.cfg.Scheme == "" {
		k.cfg.Scheme = "http"
	}
	k.access, err = kube.New(kube.Config{Kubeconfig: cfg.Kubeconfig, Context: cfg.Context, Getenv: cfg.Getenv, Account: cfg.Account, Dial: cfg.Dial})
	if err != nil {
		return nil, err
	}
	if k.cfg.Namespace == "" {
		k.cfg.Namespace = k.access.Namespace()
	}
	if k.cfg.Namespace == "" {
		return nil, errors.New("namespace is missing: neither the configuration nor the account names one")
	}
	return k, nil
}

// CheckKubeconfig says what is wrong with a kubeconfig, by one of its contexts (empty:
// its current one), or with a file that it names; nil: nothing. It calls nobody.
func CheckKubeconfig(path, context string) error {
	a, err := kube.New(kube.Config{Kubeconfig: path, Context: context})
	if err != nil {
		return err
	}
	return a.Check()
}

// Kind is KindKubernetes.
func (k *Kube) Kind() string { return KindKubernetes }

// Where is the namespace and what is followed there.
func (k *Kube) Where() string {
	what := "pods " + k.cfg.Selector
	switch {
	case k.cfg.Service != "":
		what = "service " + k.cfg.Service
	case k.cfg.InferencePool != "":
		what = "inferencepool " + k.cfg.InferencePool
	}
	return k.cfg.Namespace + " " + what
}

// Doubtful is false: the API server lists what is, or fails.
func (k *Kube) Doubtful() bool { return false }

// Run follows until ctx ends.
func (k *Kube) Run(ctx context.Context, report func(Snapshot)) error {
	defer k.access.Close()
	failed := func(err error) { report(Snapshot{Err: err}) }
	switch {
	case k.cfg.InferencePool != "":
		k.followPool(ctx, report)
	case k.cfg.Service != "":
		f := k.follow("/apis/discovery.k8s.io/v1", "endpointslices", url.Values{"labelSelector": {"kubernetes.io/service-name=" + k.cfg.Service}})
		f.failed, f.changed = failed, func(o map[string]kubeObject) { report(k.fromSlices(o)) }
		f.run(ctx)
	default:
		f := k.follow("/api/v1", "pods", url.Values{"labelSelector": {k.cfg.Selector}})
		f.failed, f.changed = failed, func(o map[string]kubeObject) { report(k.fromPods(o, nil)) }
		f.run(ctx)
	}
	return nil
}

func (k *Kube) follow(api, kind string, query url.Values) *follower {
	return &follower{access: k.access, path: api + "/namespaces/" + url.PathEscape(k.cfg.Namespace) + "/" + kind, query: query}
}

// poolTeller reports what an InferencePool's Pods are, from whoever has news of one
// of the two. Its methods are safe for concurrent use.
type poolTeller struct {
	report func(Snapshot)

	mu    sync.Mutex
	last  *Snapshot // guarded by mu; the last good one of Pods
	fault error     // guarded by mu; of the InferencePool itself
}

// pods reports what Pods there are. While the InferencePool is not known as it is,
// that is said with it.
func (t *poolTeller) pods(x Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x.Err == nil {
		good := x
		if t.last = &good; t.fault != nil {
			x.Err, x.Partial = t.fault, true
		}
	}
	t.report(x)
}

// pool notes how the InferencePool stands.
func (t *poolTeller) pool(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	over := t.fault != nil && err == nil
	if t.fault = err; err != nil {
		t.report(Snapshot{Err: err})
	} else if over && t.last != nil {
		t.report(*t.last)
	}
}

// followPool follows an InferencePool, and the Pods that it selects now.
func (k *Kube) followPool(ctx context.Context, report func(Snapshot)) {
	tell := &poolTeller{report: report}
	spec, stop := "", func() {}
	defer func() { stop() }()
	f := k.follow("/apis/inference.networking.k8s.io/v1", "inferencepools", url.Values{"fieldSelector": {"metadata.name=" + k.cfg.InferencePool}})
	f.failed = tell.pool
	f.changed = func(objects map[string]kubeObject) {
		o, ok := objects[k.cfg.InferencePool]
		selector, ports := selected(&o)
		if !ok || selector == "" || len(ports) == 0 {
			stop() // what its Pods were stays
			spec, stop = "", func() {}
			tell.pool(errNoPool)
			return
		}
		tell.pool(nil)
		if now := fmt.Sprint(selector, ports); now != spec {
			stop()
			spec, stop = now, k.followPods(ctx, selector, ports, tell.pods)
		}
	}
	f.run(ctx)
}

var errNoPool = errors.New("there is no such InferencePool, or it selects nothing, or has no target ports")

// followPods follows Pods until stop is called, which waits for the end.
func (k *Kube) followPods(ctx context.Context, selector string, ports []int, say func(Snapshot)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	f := k.follow("/api/v1", "pods", url.Values{"labelSelector": {selector}})
	f.failed = func(err error) { say(Snapshot{Err: err}) }
	f.changed = func(o map[string]kubeObject) { say(k.fromPods(o, ports)) }
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// selected is an InferencePool's selector, as one is written in a query, and its ports.
func selected(o *kubeObject) (selector string, ports []int) {
	var parts []string
	for _, l := range slices.Sorted(maps.Keys(o.Spec.Selector.MatchLabels)) {
		parts = append(parts, l+"="+o.Spec.Selector.MatchLabels[l])
	}
	for _, p := range o.Spec.TargetPorts {
		ports = append(ports, p.Number)
	}
	return strings.Join(parts, ","), ports
}
