package actuator

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/discovery"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/kubesim"
)

func TestKubernetesAddsReplicas(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 2)
		r.must(r.desired(7, 8, 4))
		r.replicas(4)
		r.wrote(marks, sets)
		x := r.must(r.desired(7, 8, 4))
		if x.Asked != 4 || len(x.Instances) != 2 || !x.Discovered {
			t.Errorf("%+v", x)
		}
		r.wrote() // once is enough
		r.s.Settle()
		r.s.Unschedulable(r.pods()[3], "0/3 nodes have a GPU")
		x = r.must(r.desired(7, 8, 4))
		ready, told := 0, false
		for _, i := range x.Instances {
			if i.Ready {
				ready++
			}
			told = told || strings.Contains(i.Problem, "Unschedulable: 0/3 nodes have a GPU")
		}
		if ready != 2 || len(x.Instances) != 4 || !told {
			t.Errorf("%+v", x.Instances)
		}
		r.wrote()
		// What the annotation says is what was done.
		if s := r.s.Annotation("vllm", keyFence); !strings.Contains(s, `"epoch":7,"decision":8,"id":"d","from":2,"to":4`) {
			t.Error(s)
		}
	})
}

// The ids are discovery's, so that drains and rows of the one are the other's.
func TestKubernetesNamesPodsAsDiscoveryDoes(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 3)
		src, err := discovery.NewKube(discovery.KubeConfig{Selector: "app=vllm", Kubeconfig: r.file, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return r.net.Host("router").DialContext(ctx, network, addr)
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(r.t.Context())
		found := make(chan discovery.Snapshot, 1)
		done := make(chan error)
		go func() { done <- src.Run(ctx, func(x discovery.Snapshot) { found <- x; cancel() }) }()
		x := <-found
		<-done
		var ids, own []state.ReplicaID
		for _, f := range x.Replicas {
			ids = append(ids, f.ID)
		}
		a, err := r.a.List(r.t.Context(), vllm)
		for _, i := range a.Instances {
			own = append(own, i.Replica.ID)
		}
		slices.Sort(ids)
		if err != nil || len(own) != 3 || !slices.Equal(ids, own) {
			t.Errorf("%v, %v, %v", ids, own, err)
		}
	})
}

// The drained one goes, though it is the oldest; nobody else does, whatever is wanted.
func TestKubernetesRemovesTheDrained(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 4)
		pods := r.pods()
		r.must(r.desired(7, 8, 2)) // none is drained yet
		r.replicas(4)
		r.wrote(marks)
		r.must(r.desired(7, 8, 2, pods[1]))
		r.replicas(3)
		r.wrote(marks, prices, sets)
		r.s.Settle()
		if got := r.pods(); !slices.Equal(got, []string{pods[0], pods[2], pods[3]}) {
			t.Errorf("%v of %v are left", got, pods)
		}
		x := r.must(r.desired(7, 8, 2))
		r.wrote()
		if i := slices.IndexFunc(x.Instances, func(i state.Instance) bool { return i.Replica.ID == r.uid(pods[1]) }); i < 0 || !x.Instances[i].Stopping {
			t.Errorf("%+v", x.Instances)
		}
		r.s.Reap()
		if x := r.must(r.desired(7, 8, 2)); len(x.Instances) != 3 || x.Note != "" {
			t.Errorf("%+v", x)
		}
	})
}

// A price that is not asked for any more is taken away, the users' own are not.
func TestKubernetesTakesItsPriceBack(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 3)
		pods := r.pods()
		own := func(o kubesim.Obj) {
			o["metadata"].(kubesim.Obj)["annotations"] = kubesim.Obj{keyCost: "-5"}
		}
		r.s.Edit("", "pods", pods[2], own)
		r.s.SetFault(func(c kubesim.Call) *kubesim.Fault {
			if c.String() == sets {
				return &kubesim.Fault{Code: 500, Text: "no"}
			}
			return nil
		})
		_, err := r.round(r.a, r.desired(7, 8, 2, pods[0]))
		r.fails(err, "500")
		if c := r.s.Pods()[0].Cost; c != lowest {
			t.Fatalf("cost %q", c)
		}
		r.s.SetFault(nil)
		time.Sleep(2 * time.Second)
		r.must(r.desired(7, 9, 3)) // the target has risen, and the drain is lifted
		r.replicas(3)
		if p := r.s.Pods(); p[0].Cost != "" || p[2].Cost != "-5" {
			t.Errorf("%+v", p)
		}
	})
}

// Those that are not ready go first, whatever their cost. So one that is drained has to
// wait for them, and the list says whose turn it is.
func TestKubernetesKnowsWhoGoesFirst(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 3)
		pods := r.pods()
		r.must(r.desired(7, 8, 3))
		r.s.Ready(pods[2], false)
		x := r.must(r.desired(7, 8, 2, pods[0]))
		r.replicas(3)
		if !strings.Contains(x.Note, pods[2]+" would go first") {
			t.Errorf("%q", x.Note)
		}
		turns := func(want ...int) {
			t.Helper()
			x, err := r.a.List(r.t.Context(), vllm)
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range pods {
				for _, j := range x.Instances {
					if j.Replica.ID == r.uid(p) && j.Turn != want[i] {
						t.Errorf("turn %d of %s, want %d", j.Turn, p, want[i])
					}
				}
			}
		}
		turns(4, 4, 4) // a probe that fails for a moment says nothing
		time.Sleep(unreadyFor)
		turns(4, 4, 3)
		r.must(r.desired(7, 8, 2, pods[2]))
		r.replicas(2)
		r.s.Settle()
		if got := r.pods(); !slices.Equal(got, pods[:2]) {
			t.Errorf("%v of %v are left", got, pods)
		}
	})
}

// Of a StatefulSet the highest ordinal goes, and nothing can be done about it.
func TestKubernetesTakesAStatefulSetFromItsEnd(t *testing.T) {
	inKube(t, "statefulsets.apps", func(r *kubeRig) {
		r.s.StatefulSet("vllm", 4)
		x := r.must(r.desired(7, 8, 3, "vllm-1"))
		r.replicas(4)
		if !strings.Contains(x.Note, "vllm-3 would go first") {
			t.Errorf("%q", x.Note)
		}
		for _, i := range x.Instances {
			if want := map[string]int{"vllm-0": 4, "vllm-1": 3, "vllm-2": 2, "vllm-3": 1}[i.Replica.Name]; i.Turn != want {
				t.Errorf("turn %d of %s, want %d", i.Turn, i.Replica.Name, want)
			}
		}
		r.must(r.desired(7, 8, 1, "vllm-1", "vllm-3", "vllm-2"))
		r.replicas(1)
		r.s.Settle()
		if n := r.s.Count(prices); n != 0 {
			t.Errorf("%d prices", n)
		}
		if got := r.pods(); !slices.Equal(got, []string{"vllm-0"}) {
			t.Errorf("%v are left", got)
		}
	})
}

// A hole in a StatefulSet does not make the highest one go.
func TestKubernetesStatefulSetWithAHole(t *testing.T) {
	inKube(t, "statefulsets.apps", func(r *kubeRig) {
		r.s.StatefulSet("vllm", 3)
		r.s.Delete("", "pods", "vllm-1")
		r.must(r.desired(7, 8, 2))
		r.replicas(3)
		r.must(r.desired(7, 8, 2, "vllm-2"))
		r.replicas(2)
	})
}

// What a person changes is changed back, and said.
func TestKubernetesSomebodyElseScales(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 2)
		r.must(r.desired(7, 8, 4))
		r.s.Settle()
		r.s.SetReplicas("vllm", 1)
		x := r.must(r.desired(7, 8, 4))
		r.replicas(4)
		if x.Note != "somebody else set vllm from 4 to 1 replicas" {
			t.Errorf("%q", x.Note)
		}
		r.s.SetReplicas("vllm", 6)
		r.s.Settle()
		x = r.must(r.desired(7, 8, 4)) // two that are not ready: they have to be drained first
		r.replicas(6)
		if x.Note != "somebody else set vllm from 4 to 6 replicas" || len(x.Instances) != 6 || x.Asked != 6 {
			t.Errorf("%q, %d", x.Note, len(x.Instances))
		}
		// The next leader finds out by what the annotation says.
		r.s.SetReplicas("vllm", 3)
		b := r.leader("second", "")
		defer b.Close()
		x, err := r.round(b, r.desired(9, 8, 4))
		if err != nil || x.Note != "somebody else set vllm from 6 to 3 replicas" && x.Note != "somebody else set vllm from 4 to 3 replicas" {
			t.Errorf("%q, %v", x.Note, err)
		}
		r.replicas(4)
	})
}

// Who changed the replicas is told with the decision that met it, and with no later one.
func TestKubernetesTellsOfAnEditOnce(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 2)
		r.must(r.desired(7, 8, 4))
		r.s.Settle()
		r.s.SetReplicas("vllm", 1)
		const note = "somebody else set vllm from 4 to 1 replicas"
		if x, err := r.a.List(r.t.Context(), vllm); err != nil || x.Note != note {
			t.Errorf("%q, %v", x.Note, err)
		}
		for range 3 { // a decision that is under way says so until its end
			if x := r.must(r.desired(7, 9, 4)); x.Note != note {
				t.Errorf("%q", x.Note)
			}
			time.Sleep(time.Second)
		}
		if x := r.must(r.desired(7, 10, 5)); x.Note != "" {
			t.Errorf("told again: %q", x.Note)
		}
		if x, err := r.a.List(r.t.Context(), vllm); err != nil || x.Note != "" {
			t.Errorf("told again: %q, %v", x.Note, err)
		}
	})
}

// Replicas that were never made can go without a drain.
func TestKubernetesTakesBackWhatWasNotMade(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 2)
		r.must(r.desired(7, 8, 5))
		r.s.Edit("apps", "deployments", "vllm", func(o kubesim.Obj) {
			o["status"].(kubesim.Obj)["conditions"] = []any{kubesim.Obj{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: gpus"}}
		})
		if x := r.must(r.desired(7, 8, 5)); !strings.Contains(x.Note, "exceeded quota") {
			t.Errorf("%q", x.Note)
		}
		r.must(r.desired(7, 9, 3))
		r.replicas(3)
	})
}

// The wrong one went: the one that was to go is wanted again, and it is said.
func TestKubernetesWrongPodWent(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 3)
		pods := r.pods()
		r.must(r.desired(7, 8, 2, pods[0]))
		r.replicas(2)
		r.s.Ready(pods[1], false) // just before the controller looks
		r.s.Settle()
		if got := r.pods(); !slices.Equal(got, []string{pods[0], pods[2]}) {
			t.Fatalf("%v of %v are left", got, pods)
		}
		x := r.must(r.desired(7, 8, 2))
		if x.Note != pods[1]+" went instead of "+pods[0]+", which takes requests again" {
			t.Errorf("%q", x.Note)
		}
		r.replicas(2)
		if c := r.s.Pods()[0].Cost; c != "" {
			t.Errorf("it still bears the cost %q", c)
		}
		// Another leader, that had not seen who there was, says it too.
		b := r.leader("second", "")
		defer b.Close()
		victim := string(r.uid(pods[0]))
		r.s.Edit("apps", "deployments", "vllm", func(o kubesim.Obj) {
			m := o["metadata"].(kubesim.Obj)["annotations"].(kubesim.Obj)
			m[keyFence] = `{"cluster":"c1","pool":"chat","role":"both","epoch":7,"decision":8,"id":"d","from":3,"to":2,"victims":["` + victim + `"]}`
		})
		if x, err := r.round(b, r.desired(9, 8, 2)); err != nil || x.Note != "another Pod went instead of "+pods[0]+", which takes requests again" {
			t.Errorf("%q, %v", x.Note, err)
		}
	})
}

// During a roll-out each ReplicaSet chooses among its own: nobody is removed.
func TestKubernetesWaitsForARollOut(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 3)
		pods := r.pods()
		r.s.Edit("", "pods", pods[2], func(o kubesim.Obj) {
			o["metadata"].(kubesim.Obj)["ownerReferences"] = []any{kubesim.Obj{"kind": "ReplicaSet", "uid": "new", "controller": true}}
		})
		x := r.must(r.desired(7, 8, 2, pods[0]))
		r.replicas(3)
		if !strings.Contains(x.Note, "roll-out") {
			t.Errorf("%q", x.Note)
		}
	})
}

// Who is not the controller's is nobody's replica.
func TestKubernetesCountsItsOwnPodsOnly(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 2)
		r.s.Put("", "pods", kubesim.Obj{"kind": "Pod", "metadata": kubesim.Obj{"name": "debug", "labels": kubesim.Obj{"app": "vllm"}}})
		r.s.Edit("", "pods", r.pods()[1], func(o kubesim.Obj) { o["status"].(kubesim.Obj)["phase"] = "Failed" })
		if x := r.must(r.desired(7, 8, 2)); len(x.Instances) != 1 {
			t.Errorf("%+v", x.Instances)
		}
	})
}

// An object that an autoscaler sizes is left alone until that is gone. C40: never two
// deciders.
func TestKubernetesLeavesAnAutoscalersTarget(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 2)
		r.s.Autoscaler("other", "Deployment", "llama")
		r.must(r.desired(7, 8, 2))
		r.wrote(marks)
		r.s.Autoscaler("keda-hpa", "Deployment", "vllm")
		_, err := r.round(r.a, r.desired(7, 9, 4)) // just before a write it is looked for
		r.fails(err, "deployments.apps llm/vllm: the HorizontalPodAutoscaler keda-hpa sizes it")
		if !errors.Is(err, state.ErrNotOurs) {
			t.Error(err)
		}
		time.Sleep(ownersAge + time.Second)
		if _, err := r.a.List(r.t.Context(), vllm); !errors.Is(err, state.ErrNotOurs) {
			t.Error(err)
		}
		r.wrote()
		r.replicas(2)
		r.s.Delete("autoscaling", "horizontalpodautoscalers", "keda-hpa")
		time.Sleep(ownersAge + time.Second)
		r.must(r.desired(7, 9, 4))
		r.replicas(4)
	})
}
