package actuator

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/kubesim"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

const kubeconfig = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u, namespace: llm}}]\n" +
	"clusters: [{name: k, cluster: {server: \"http://api:8001\"}}]\nusers: [{name: u, user: {}}]\n"

// kubeRig is an API server, and leaders that size the Deployment or StatefulSet vllm.
type kubeRig struct {
	t    *testing.T
	s    *kubesim.Server
	net  *simnet.Net
	file string
	a    *Kubernetes // the first leader's
}

// inKube runs f in a bubble with an API server. The resource is that of vllm.
func inKube(t *testing.T, resource string, f func(r *kubeRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &kubeRig{t: t, s: kubesim.New(), net: simnet.New(1), file: filepath.Join(t.TempDir(), "config")}
		r.net.SetDefault(simnet.Link{Delay: time.Millisecond})
		if err := os.WriteFile(r.file, []byte(kubeconfig), 0o600); err != nil {
			t.Fatal(err)
		}
		ln, err := r.net.Host("api").Listen("tcp", ":8001")
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: r.s}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = srv.Serve(ln)
		}()
		defer func() {
			_ = srv.Close()
			<-done
		}()
		r.a = r.leader("router", resource)
		defer r.a.Close()
		f(r)
	})
}

// leader is another router's actuator of the same object.
func (r *kubeRig) leader(host, resource string) *Kubernetes {
	r.t.Helper()
	a, err := NewKubernetes(KubernetesConfig{
		Resource: resource, Names: map[state.Role]string{state.RoleBoth: "vllm"}, Kubeconfig: r.file,
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return r.net.Host(host).DialContext(ctx, network, addr)
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

var vllm = state.TargetKey{Pool: "chat", Role: state.RoleBoth}

// desired is a wish of a decision; remove names Pods.
func (r *kubeRig) desired(epoch, decision uint64, want int, remove ...string) state.Desired {
	d := state.Desired{Epoch: epoch, Decision: decision, ID: "d", Target: vllm, Cluster: "c1", Want: want}
	for _, n := range remove {
		d.Remove = append(d.Remove, r.uid(n))
	}
	return d
}

func (r *kubeRig) uid(name string) state.ReplicaID {
	r.t.Helper()
	for _, p := range r.s.Pods() {
		if p.Name == name {
			return state.ReplicaID(p.UID)
		}
	}
	r.t.Fatalf("no pod %s in %+v", name, r.s.Pods())
	return ""
}

// pods are the names of those that do not end, or of all.
func (r *kubeRig) pods() (names []string) {
	for _, p := range r.s.Pods() {
		if !p.Ending {
			names = append(names, p.Name)
		}
	}
	return names
}

// round is what a leader does in a second: it lists, then ensures.
func (r *kubeRig) round(a *Kubernetes, d state.Desired) (state.Actual, error) {
	if _, err := a.List(r.t.Context(), vllm); err != nil {
		return state.Actual{}, err
	}
	return a.Ensure(r.t.Context(), d)
}

// must does a round without a fault.
func (r *kubeRig) must(d state.Desired) state.Actual {
	r.t.Helper()
	x, err := r.round(r.a, d)
	if err != nil {
		r.t.Fatal(err)
	}
	return x
}

func (r *kubeRig) replicas(want int) {
	r.t.Helper()
	if n := r.s.Replicas("vllm"); n != want {
		r.t.Errorf("%d replicas, want %d", n, want)
	}
}

// writes are the calls that change something, since the last Forget.
func (r *kubeRig) writes() (list []string) {
	for _, c := range r.s.Calls() {
		if c.Verb == "patch" || c.Verb == "update" {
			list = append(list, c.String())
		}
	}
	return list
}

func (r *kubeRig) wrote(want ...string) {
	r.t.Helper()
	if got := r.writes(); !slices.Equal(got, want) {
		r.t.Errorf("writes %q, want %q", got, want)
	}
	r.s.Forget()
}

// fails compares an error.
func (r *kubeRig) fails(err error, parts ...string) {
	r.t.Helper()
	for _, p := range parts {
		if err == nil || !strings.Contains(err.Error(), p) {
			r.t.Errorf("%v, want %q", err, p)
		}
	}
}

const (
	marks  = "patch deployments.apps"
	prices = "patch pods"
	sets   = "update deployments/scale.apps"
)
