package deploy

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/autoscale/actuator"
	"github.com/hearsay-llm/hearsay/cluster/discovery"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/kubesim"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

const kubeconfig = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u, namespace: llm}}]\n" +
	"clusters: [{name: k, cluster: {server: \"http://api:8001\"}}]\nusers: [{name: u, user: {}}]\n"

// The Role gives what routers' calls take, and nothing else: discovery in each of its
// ways and scaling of each kind are run against an API server that notes the calls.
func TestRoleCoversWhatRoutersCall(t *testing.T) {
	m := read(t)
	var given []string
	for _, r := range m.roles[0].Rules {
		for _, g := range r.Groups {
			for _, res := range r.Resources {
				for _, v := range r.Verbs {
					given = append(given, (kubesim.Call{Verb: v, Group: g, Resource: res}).String())
				}
			}
		}
	}
	slices.Sort(given)
	called := calls(t)
	for _, c := range called {
		if !slices.Contains(given, c) {
			t.Errorf("routers call %q, which the Role does not allow", c)
		}
	}
	for _, g := range given {
		if !slices.Contains(called, g) {
			t.Errorf("the Role allows %q, which no router calls", g)
		}
	}
}

// calls are what routers call, each once, in order.
func calls(t *testing.T) (list []string) {
	synctest.Test(t, func(t *testing.T) {
		s, network := kubesim.New(), simnet.New(1)
		file := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
			t.Fatal(err)
		}
		ln, err := network.Host("api").Listen("tcp", ":8001")
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: s}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = srv.Serve(ln)
		}()
		dial := func(ctx context.Context, network_, addr string) (net.Conn, error) {
			return network.Host("router").DialContext(ctx, network_, addr)
		}
		s.Deployment("vllm", 3)
		s.StatefulSet("sglang", 3)
		s.Put("inference.networking.k8s.io", "inferencepools", kubesim.Obj{
			"metadata": kubesim.Obj{"name": "chat"},
			"spec":     kubesim.Obj{"selector": kubesim.Obj{"matchLabels": kubesim.Obj{"app": "vllm"}}, "targetPorts": []any{kubesim.Obj{"number": 8000}}},
		})
		for _, cfg := range []discovery.KubeConfig{{Selector: "app=vllm"}, {Service: "vllm"}, {InferencePool: "chat"}} {
			cfg.Kubeconfig, cfg.Dial = file, dial
			discover(t, cfg)
		}
		scale(t, s, "deployments.apps", "vllm", file, dial)
		scale(t, s, "statefulsets.apps", "sglang", file, dial)
		_ = srv.Close()
		<-done
		for _, c := range s.Calls() {
			list = append(list, c.String())
		}
	})
	slices.Sort(list)
	return slices.Compact(list)
}

// discover follows Pods for a while.
func discover(t *testing.T, cfg discovery.KubeConfig) {
	t.Helper()
	src, err := discovery.NewKube(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := src.Run(ctx, func(discovery.Snapshot) {}); err != nil {
		t.Error(err)
	}
}

// scale brings an object up, down, and back.
func scale(t *testing.T, s *kubesim.Server, resource, name, file string, dial func(context.Context, string, string) (net.Conn, error)) {
	t.Helper()
	a, err := actuator.NewKubernetes(actuator.KubernetesConfig{Resource: resource, Names: map[state.Role]string{state.RoleBoth: name}, Kubeconfig: file, Dial: dial})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	key := state.TargetKey{Pool: name, Role: state.RoleBoth}
	for decision, want := range []int{4, 3, 5} {
		d := state.Desired{Epoch: 7, Decision: 8 + uint64(decision), ID: "d", Target: key, Cluster: "c1", Want: want}
		x, err := a.List(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if want == 3 {
			for _, i := range x.Instances {
				if i.Turn == 1 || len(d.Remove) == 0 && i.Turn == 4 {
					d.Remove = append(d.Remove[:0], i.Replica.ID)
				}
			}
		}
		if _, err := a.Ensure(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		s.Settle()
		for _, p := range s.Pods() {
			s.Ready(p.Name, true)
		}
	}
	if n := s.Replicas(name); n != 5 {
		t.Errorf("%s has %d replicas", name, n)
	}
}
