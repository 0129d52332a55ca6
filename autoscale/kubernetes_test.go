package autoscale

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

	"github.com/hearsay-llm/hearsay/autoscale/actuator"
	"github.com/hearsay-llm/hearsay/cluster/discovery"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/kubesim"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// kubeWorld is a world whose pool is the Deployment vllm: the loop, the actuator and
// discovery are the real ones, the API server and its controllers are played.
type kubeWorld struct {
	*world
	s       *kubesim.Server
	starts  time.Duration            // of a Pod; 0: never
	born    map[string]time.Time     // Pods that are not ready yet
	ended   map[string]bool          // Pods that were told to end, by UID
	undrain map[string]state.Outcome // ended without a drain
	hold    bool                     // the controllers stand still
}

const kubeconfig = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u, namespace: llm}}]\n" +
	"clusters: [{name: k, cluster: {server: \"http://api:8001\"}}]\nusers: [{name: u, user: {}}]\n"

func inKubeWorld(t *testing.T, spec state.PoolSpec, replicas int, f func(w *kubeWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &kubeWorld{
			world: newWorld(t, spec), s: kubesim.New(), starts: 20 * time.Second,
			born: map[string]time.Time{}, ended: map[string]bool{}, undrain: map[string]state.Outcome{},
		}
		network, file := simnet.New(1), filepath.Join(t.TempDir(), "config")
		network.SetDefault(simnet.Link{Delay: time.Millisecond})
		if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
			t.Fatal(err)
		}
		ln, err := network.Host("api").Listen("tcp", ":8001")
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: w.s}
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = srv.Serve(ln)
		}()
		dial := func(ctx context.Context, kind, addr string) (net.Conn, error) {
			return network.Host("router").DialContext(ctx, kind, addr)
		}
		w.s.Deployment("vllm", replicas)
		a, err := actuator.NewKubernetes(actuator.KubernetesConfig{Names: map[state.Role]string{state.RoleBoth: "vllm"}, Kubeconfig: file, Dial: dial})
		if err != nil {
			t.Fatal(err)
		}
		src, err := discovery.NewKube(discovery.KubeConfig{Selector: "app=vllm", Kubeconfig: file, Dial: dial})
		if err != nil {
			t.Fatal(err)
		}
		pool := discovery.New(discovery.Config{
			Name: "chat", Sources: []discovery.Source{src},
			Apply: func(list []state.Replica) { w.store.SetReplicas(state.SourceDiscovery, "chat", list) },
		})
		ctx, cancel := context.WithCancel(t.Context())
		found := make(chan error, 1)
		go func() { found <- pool.Run(ctx) }()
		w.real = a
		w.facts = w.facts.Clone()
		w.facts.ClusterID = "c1"
		w.elect()
		defer func() {
			cancel()
			if err := <-found; err != nil {
				t.Error(err)
			}
			a.Close()
			_ = srv.Close()
			<-served
		}()
		f(w)
	})
}

// second lets one pass: the controllers work, Pods start, the leader acts.
func (w *kubeWorld) second() {
	w.t.Helper()
	if !w.hold {
		w.s.Settle()
	}
	for _, p := range w.s.Pods() {
		id := state.ReplicaID(p.UID)
		if at, ok := w.born[p.UID]; !ok {
			w.born[p.UID] = w.now
		} else if !p.Ready && !p.Ending && w.starts > 0 && w.now.Sub(at) >= w.starts {
			w.s.Ready(p.Name, true)
		}
		if p.Ending && !w.ended[p.UID] {
			w.ended[p.UID] = true
			if _, drained := w.facts.Draining[id]; !drained && p.Ready {
				w.undrain[p.Name] = ""
			}
		} else if p.Ending {
			w.s.Delete("", "pods", p.Name)
		}
	}
	time.Sleep(time.Second)
	synctest.Wait()
	if err := w.run(time.Second); err != nil {
		w.t.Fatal(err)
	}
}

func (w *kubeWorld) wait(bound time.Duration, what string, ok func() bool) {
	w.t.Helper()
	for t0 := w.now; !ok(); w.second() {
		if w.now.Sub(t0) > bound {
			w.t.Fatalf("not within %v: %s; target %v, decisions %+v, reports %+v, pods %+v", bound, what, w.facts.Targets, w.facts.Decisions, w.loop.Reports(), w.s.Pods())
		}
	}
}

func (w *kubeWorld) last() *state.Decision { return w.facts.LastDecision(chat) }

// Load adds Pods and its end removes them, each after a drain.
func TestKubernetesPoolBreathes(t *testing.T) {
	inKubeWorld(t, spec(), 2, func(w *kubeWorld) {
		w.wait(10*time.Second, "found", func() bool { return len(poolOf(w.View(), "chat").Replicas) == 2 })
		w.spread(30)
		w.wait(3*time.Minute, "four", func() bool { return w.target() == 4 && w.settled() })
		if n := w.s.Replicas("vllm"); n != 4 || w.last().From != 2 || w.last().Outcome != state.OutcomeDone {
			t.Errorf("%d replicas, %+v", n, w.last())
		}
		w.spread(0)
		w.wait(40*time.Minute, "one", func() bool { return w.target() == 1 && w.settled() })
		w.wait(3*time.Minute, "forgotten", func() bool { return len(poolOf(w.View(), "chat").Replicas) == 1 })
		if n := w.s.Replicas("vllm"); n != 1 || len(w.s.Pods()) != 1 || len(w.undrain) != 0 || len(w.facts.Draining) != 0 {
			t.Errorf("%d replicas, pods %+v, not drained %v, draining %v", n, w.s.Pods(), w.undrain, w.facts.Draining)
		}
		if d := w.last(); d.Outcome != state.OutcomeDone || d.Detail != "1 replica" {
			t.Errorf("%+v", d)
		}
	})
}

// C43: an empty pool wakes for held requests, by one and not by one each, and again after
// it has slept.
func TestC43KubernetesFromZeroTwice(t *testing.T) {
	s := spec()
	s.ScaleMin = 0
	inKubeWorld(t, s, 0, func(w *kubeWorld) {
		w.starts = 8 * time.Second
		for range 2 {
			w.queue = 5
			w.wait(2*time.Minute, "awake", func() bool { return w.target() == 1 && w.settled() })
			w.queue = 0
			if n := w.s.Replicas("vllm"); n != 1 {
				t.Errorf("%d replicas", n)
			}
			w.wait(30*time.Minute, "asleep", func() bool { return w.target() == 0 && w.settled() })
			if n := w.s.Replicas("vllm"); n != 0 || len(w.s.Pods()) != 0 {
				t.Errorf("%d replicas, %+v", n, w.s.Pods())
			}
		}
		if n := len(w.facts.Decisions); n != 4 {
			t.Errorf("%d decisions", n)
		}
	})
}

// C42: Pods that find no node are not added to, are told of, and go first when the load
// has gone. What somebody changes by hand is seen, told and undone.
func TestC42KubernetesPodsThatStayPending(t *testing.T) {
	inKubeWorld(t, spec(), 2, func(w *kubeWorld) {
		w.wait(10*time.Second, "found", func() bool { return len(poolOf(w.View(), "chat").Replicas) == 2 })
		first := w.s.Pods()
		w.starts = 0
		w.spread(30)
		w.wait(time.Minute, "a decision", func() bool { return w.target() == 4 })
		w.spread(60)
		w.wait(10*time.Second, "two more", func() bool { return len(w.s.Pods()) == 4 })
		for _, p := range w.s.Pods() {
			if !p.Ready {
				w.s.Unschedulable(p.Name, "Insufficient nvidia.com/gpu")
			}
		}
		for range 100 {
			w.second()
		}
		if w.target() != 4 || w.s.Replicas("vllm") != 4 {
			t.Errorf("target %d, replicas %d", w.target(), w.s.Replicas("vllm"))
		}
		w.s.SetReplicas("vllm", 9)
		w.wait(30*time.Second, "undone", func() bool { return w.s.Replicas("vllm") == 4 && len(w.s.Pods()) == 4 })
		w.wait(3*time.Minute, "given up", w.settled)
		if d := w.last(); d.Outcome != state.OutcomeFailed || !strings.Contains(d.Detail, "Unschedulable: Insufficient nvidia.com/gpu") ||
			!strings.Contains(d.Detail, "somebody else set vllm from 4 to 9 replicas") {
			t.Errorf("%+v", d)
		}
		w.spread(0)
		w.wait(30*time.Minute, "two again", func() bool { return w.target() == 2 && w.settled() })
		for _, p := range first {
			if !slices.ContainsFunc(w.s.Pods(), func(q kubesim.Pod) bool { return q.UID == p.UID && !q.Ending }) {
				t.Errorf("%s went, which was ready: %+v", p.Name, w.s.Pods())
			}
		}
	})
}

// Another Pod than the drained one went: that one takes requests again, and the decision
// says so.
func TestKubernetesWrongPodGoes(t *testing.T) {
	inKubeWorld(t, spec(), 3, func(w *kubeWorld) {
		w.wait(10*time.Second, "found", func() bool { return len(poolOf(w.View(), "chat").Replicas) == 3 })
		w.wait(20*time.Minute, "a step down", func() bool { w.hold = w.target() == 2; return w.s.Replicas("vllm") == 2 })
		var victim, other string
		for _, p := range w.s.Pods() {
			if _, ok := w.facts.Draining[state.ReplicaID(p.UID)]; ok {
				victim = p.Name
			} else if other == "" {
				other = p.Name
			}
		}
		w.s.Ready(other, false) // and the controller takes it
		w.starts, w.hold = 0, false
		w.wait(2*time.Minute, "the end", w.settled)
		if d := w.last(); d.Outcome != state.OutcomeDone || d.Detail != "2 replicas; "+other+" went instead of "+victim+", which takes requests again" {
			t.Errorf("%+v", d)
		}
		if len(w.facts.Draining) != 0 || w.s.Replicas("vllm") != 2 {
			t.Errorf("%v, %d", w.facts.Draining, w.s.Replicas("vllm"))
		}
	})
}

// C40: an autoscaler that takes the target over is not fought.
func TestC40KubernetesTwoDeciders(t *testing.T) {
	inKubeWorld(t, spec(), 2, func(w *kubeWorld) {
		w.wait(10*time.Second, "found", func() bool { return len(poolOf(w.View(), "chat").Replicas) == 2 })
		w.spread(30)
		w.wait(3*time.Minute, "four", func() bool { return w.target() == 4 && w.settled() })
		w.s.Autoscaler("hpa", "Deployment", "vllm")
		for range 12 {
			w.second()
		}
		w.s.SetReplicas("vllm", 2) // as it does
		w.s.Forget()
		for range 600 {
			w.second()
		}
		if w.s.Replicas("vllm") != 2 || w.s.Count("update deployments/scale.apps")+w.s.Count("patch deployments.apps") != 0 {
			t.Errorf("%d replicas, calls %v", w.s.Replicas("vllm"), w.s.Calls()[:10])
		}
		if r := w.refusal(); r != refusedNotOurs && r != "" {
			t.Errorf("refused for %q", r)
		}
		if r := w.loop.Reports(); !strings.Contains(r[0].Problem, "the HorizontalPodAutoscaler hpa sizes it") {
			t.Errorf("%+v", r)
		}
		w.s.Delete("autoscaling", "horizontalpodautoscalers", "hpa")
		w.wait(time.Minute, "the target again", func() bool { return w.s.Replicas("vllm") == w.target() })
	})
}
