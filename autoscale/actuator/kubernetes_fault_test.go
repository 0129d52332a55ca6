package actuator

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/kubesim"
)

// on makes a fault of the first calls of a kind.
func on(kind string, times int, f kubesim.Fault) func(kubesim.Call) *kubesim.Fault {
	return func(c kubesim.Call) *kubesim.Fault {
		if times <= 0 || c.String() != kind {
			return nil
		}
		times--
		return &f
	}
}

// A right that the account lacks is named as a Role would give it.
func TestKubernetesSaysWhatIsForbidden(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 2)
		pods := r.pods()
		f := func(kind, want string) {
			t.Helper()
			r.s.SetFault(on(kind, 1, kubesim.Fault{Code: http.StatusForbidden, Text: "no rule"}))
			a := r.leader("second", "")
			defer a.Close()
			_, err := r.round(a, r.desired(7, 8, 1, pods[0]))
			r.fails(err, "forbids it (403), the account needs "+want+": no rule")
		}
		f("get deployments/scale.apps", "get on deployments/scale of apps in namespace llm")
		f("list pods", "list on pods in namespace llm")
		f("get deployments.apps", "get on deployments of apps in namespace llm")
		f("list horizontalpodautoscalers.autoscaling", "list on horizontalpodautoscalers of autoscaling in namespace llm")
		f(marks, "patch on deployments of apps in namespace llm")
		f(prices, "patch on pods in namespace llm")
		f(sets, "update on deployments/scale of apps in namespace llm")
		r.replicas(2)
		r.s.SetFault(on("get deployments/scale.apps", 1, kubesim.Fault{Code: http.StatusUnauthorized}))
		_, err := r.a.List(r.t.Context(), vllm)
		r.fails(err, "credentials (401)")
	})
}

func TestKubernetesObjectsThatAreNotThere(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		_, err := r.a.List(r.t.Context(), vllm)
		r.fails(err, "deployments.apps llm/vllm", "404", "not found")
		_, err = r.a.List(r.t.Context(), state.TargetKey{Pool: "chat", Role: state.RolePrefill})
		r.fails(err, "no deployments.apps is named for replicas of role prefill")
		r.s.Deployment("vllm", 2)
		r.s.Edit("apps", "deployments", "vllm", func(o kubesim.Obj) { o["metadata"].(kubesim.Obj)["deletionTimestamp"] = "2026" })
		_, err = r.a.List(r.t.Context(), vllm)
		r.fails(err, "is being deleted")
	})
}

// While the server is away a call ends in time, and the calls after it at once, for a
// while that grows; then it is asked again.
func TestKubernetesServerIsAway(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 2)
		r.must(r.desired(7, 8, 2))
		r.net.Isolate("api")
		slow := 0
		for range 120 {
			t0 := time.Now()
			_, err := r.a.List(r.t.Context(), vllm)
			r.fails(err, "API server")
			switch took := time.Since(t0); {
			case took > listWait:
				t.Fatalf("%v", took)
			case took > 0:
				slow++
			}
			time.Sleep(time.Second)
		}
		if slow < 3 || slow > 10 {
			t.Errorf("asked %d times", slow)
		}
		r.net.HealAll()
		time.Sleep(holdMost)
		r.must(r.desired(7, 8, 3))
		r.replicas(3)
	})
}

// A server that asks for patience gets it.
func TestKubernetesWaitsAsLongAsItIsTold(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 2)
		r.s.SetFault(on("get deployments/scale.apps", 1, kubesim.Fault{Code: http.StatusTooManyRequests, RetryAfter: "20", Text: "slow down"}))
		_, err := r.round(r.a, r.desired(7, 8, 3))
		r.fails(err, "429", "slow down")
		r.s.Forget()
		for range 19 {
			time.Sleep(time.Second)
			_, err := r.round(r.a, r.desired(7, 8, 3))
			r.fails(err, "429")
		}
		if n := len(r.s.Calls()); n != 0 {
			t.Errorf("%d calls", n)
		}
		time.Sleep(time.Second)
		r.must(r.desired(7, 8, 3))
		r.replicas(3)
	})
}

// A write without an answer was done or was not: the next look says which, and what was
// done is not done again.
func TestKubernetesLooksUpWhatItDoesNotKnow(t *testing.T) {
	f := func(name, kind string, done bool, again ...string) {
		t.Run(name, func(t *testing.T) {
			inKube(t, "", func(r *kubeRig) {
				r.s.Deployment("vllm", 2)
				r.must(r.desired(7, 8, 2))
				r.s.SetFault(on(kind, 1, kubesim.Fault{Hang: true, Do: done}))
				t0 := time.Now()
				_, err := r.round(r.a, r.desired(7, 8, 3))
				r.fails(err, "does not answer in time")
				if took := time.Since(t0); took > ensureWait+time.Second {
					t.Errorf("%v", took)
				}
				r.s.Forget()
				time.Sleep(2 * time.Second)
				x := r.must(r.desired(7, 8, 3))
				r.replicas(3)
				r.wrote(again...)
				if x.Note != "" {
					r.t.Errorf("it takes its own write for somebody else's: %q", x.Note)
				}
				r.must(r.desired(7, 8, 3))
				r.wrote()
			})
		})
	}
	f("the replicas were set", sets, true)
	f("they were not", sets, false, sets)
	f("the fence was written", marks, true, sets)
	f("it was not", marks, false, marks, sets)
}

// Others who write the object meanwhile are no fault, as long as they let one through.
func TestKubernetesConflicts(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 2)
		times := 3
		meddle := func(c kubesim.Call) *kubesim.Fault {
			if c.String() == sets && times > 0 {
				times--
				r.s.Edit("apps", "deployments", "vllm", func(o kubesim.Obj) {
					o["status"].(kubesim.Obj)["observedGeneration"] = times
				})
			}
			return nil
		}
		r.s.SetFault(meddle)
		r.must(r.desired(7, 8, 3))
		r.replicas(3)
		if n := r.s.Count(sets); n != 4 {
			t.Errorf("set %d times", n)
		}
		times = 1000
		_, err := r.round(r.a, r.desired(7, 8, 4))
		r.fails(err, "others changed it 5 times")
		times = 0
		r.must(r.desired(7, 8, 4))
		r.replicas(4)
	})
}

// A term that ends stops what it had under way, and nothing is said of the server.
func TestKubernetesTermEnds(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 2)
		r.s.SetFault(on("list pods", 1, kubesim.Fault{Hang: true}))
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
		defer cancel()
		if _, err := r.a.List(ctx, vllm); err == nil {
			t.Error("it listed")
		}
		r.must(r.desired(7, 8, 3)) // at once
		r.replicas(3)
	})
}

func TestParseResource(t *testing.T) {
	f := func(s, path string) {
		t.Helper()
		r, err := ParseResource(s)
		if err != nil || r.path("ns", "n") != path {
			t.Errorf("%s: %s, %v", s, r.path("ns", "n"), err)
		}
	}
	f("deployments.apps", "/apis/apps/v1/namespaces/ns/deployments/n")
	f("replicationcontrollers", "/api/v1/namespaces/ns/replicationcontrollers/n")
	f("leaderworkerset.x-k8s.io/v1/leaderworkersets", "/apis/leaderworkerset.x-k8s.io/v1/namespaces/ns/leaderworkersets/n")
	for _, s := range []string{"", "rollouts.argoproj.io", "a/b", "a/b/c/d", "a//c", "deployments"} {
		if _, err := ParseResource(s); err == nil || !strings.Contains(err.Error(), "group/version/plural") {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// Whatever stands in the annotation, the answer is a fence or a fault.
func FuzzKubernetesFence(f *testing.F) {
	for _, s := range []string{`{"cluster":"c1","pool":"chat","role":"both","epoch":7,"decision":8,"from":1,"to":2,"victims":["u"]}`, `{}`, `null`, `[]`, `{"epoch":1e99}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		o := &kubeObject{Metadata: kubeMeta{Annotations: map[string]string{keyFence: s}}}
		x, err := readFence(o)
		if s != "" && err == nil && (x.Cluster == "" || x.Decision == 0) {
			t.Errorf("%+v", x)
		}
		d := &state.Desired{Epoch: 7, Decision: 8, Cluster: "c1", Target: vllm}
		if err == nil && s != "" && x.admits(d) == nil {
			y, err := readFence(&kubeObject{Metadata: kubeMeta{Annotations: map[string]string{keyFence: x.String()}}})
			if err != nil || !x.equal(&y) {
				t.Errorf("%+v, %+v, %v", x, y, err)
			}
		}
		_ = errors.Is(err, state.ErrFenced)
	})
}
