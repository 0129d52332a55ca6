package actuator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/kubesim"
)

// always makes a fault of every call of a kind.
func always(kind string, f kubesim.Fault) func(kubesim.Call) *kubesim.Fault {
	return on(kind, 1<<30, f)
}

// annotate writes the fence by hand; empty: takes it away.
func (r *kubeRig) annotate(fence string) {
	r.s.Edit("apps", "deployments", "vllm", func(o kubesim.Obj) {
		m := o["metadata"].(kubesim.Obj)
		delete(m, "annotations")
		if fence != "" {
			m["annotations"] = kubesim.Obj{keyFence: fence}
		}
	})
}

// An object that is deleted and made anew between any two calls, under the same name, is
// sized like the first: what was seen of the other one writes nothing to it.
func TestKubernetesObjectIsMadeAnew(t *testing.T) {
	for _, before := range []string{"list pods", "get deployments.apps", "list horizontalpodautoscalers.autoscaling", marks, sets} {
		t.Run(before, func(t *testing.T) {
			inKube(t, "", func(r *kubeRig) {
				r.s.Deployment("vllm", 2)
				done := false
				r.s.SetFault(func(c kubesim.Call) *kubesim.Fault {
					if c.String() == before && !done {
						done = true
						r.s.Delete("apps", "deployments", "vllm")
						r.s.Deployment("vllm", 1)
					}
					return nil
				})
				r.must(r.desired(7, 8, 4))
				r.replicas(4)
				if s := r.s.Annotation("vllm", keyFence); !strings.Contains(s, `"epoch":7,"decision":8,"id":"d","from":1,"to":4`) {
					t.Errorf("its fence: %s", s)
				}
				r.must(r.desired(7, 8, 4))
				r.replicas(4)
			})
		})
	}
}

// A fence that somebody takes away is put back while nothing else is to be done, so that
// an older leader that wakes up then is refused.
func TestKubernetesFenceIsTakenAway(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 2)
		r.must(r.desired(7, 8, 2))
		r.s.Forget()
		r.annotate("")
		time.Sleep(fenceAge + time.Second)
		r.must(r.desired(7, 8, 2))
		r.wrote(marks)
		old := r.leader("old", "")
		defer old.Close()
		if _, err := r.round(old, r.desired(5, 6, 5)); !errors.Is(err, state.ErrFenced) {
			t.Errorf("%v", err)
		}
		r.replicas(2)
		// One that is another's now is let go at once, though nothing was to be done.
		r.annotate(`{"cluster":"c2","pool":"chat","role":"both","epoch":1,"decision":2}`)
		time.Sleep(fenceAge + time.Second)
		_, err := r.round(r.a, r.desired(7, 8, 2))
		if r.fails(err, "another cluster (c2)"); !errors.Is(err, state.ErrNotOurs) {
			t.Error(err)
		}
		r.annotate(`{"cluster":"c1","pool":"chat","role":"both","epoch":18446744073709551615,"decision":9}`)
		_, err = r.round(r.a, r.desired(7, 8, 2))
		if r.fails(err, "its annotation hearsay/scale has 18446744073709551615, 9"); !errors.Is(err, state.ErrFenced) {
			t.Error(err)
		}
		for _, odd := range []string{`{"cluster":"c1","pool":"chat","role":"both","epoch":"9","decision":9}`, `{"cluster":"c1","epoch":1e30,"decision":9}`, `{"cluster":"c1","epoch":7.5,"decision":9}`, "{", "\x00"} {
			r.annotate(odd)
			_, err = r.round(r.a, r.desired(7, 8, 3))
			r.fails(err, "its annotation hearsay/scale is not understood", "take it away")
		}
		r.replicas(2)
		r.annotate("")
		r.must(r.desired(7, 8, 3))
		r.replicas(3)
	})
}

// An object that changes all the time, while nothing is to be done, is no trouble.
func TestKubernetesObjectThatChangesAtRest(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 2)
		r.must(r.desired(7, 8, 2))
		n := 0
		r.s.SetFault(func(c kubesim.Call) *kubesim.Fault {
			if c.String() == "list pods" {
				n++
				r.s.Edit("apps", "deployments", "vllm", func(o kubesim.Obj) { o["status"].(kubesim.Obj)["observedGeneration"] = n })
			}
			return nil
		})
		r.s.Forget()
		for range 30 {
			time.Sleep(time.Second)
			r.must(r.desired(7, 8, 2))
		}
		r.wrote()
	})
}

// One object that can't be read keeps the other role's from nothing.
func TestKubernetesOneObjectFails(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("p", 1)
		r.s.Deployment("d", 1)
		a, err := NewKubernetes(KubernetesConfig{
			Names: map[state.Role]string{state.RolePrefill: "p", state.RoleDecode: "d"}, Kubeconfig: r.file,
			Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return r.net.Host("second").DialContext(ctx, network, addr)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		for _, f := range []kubesim.Fault{{Code: 500, Text: "the spec replicas field does not exist"}, {Hang: true}, {Code: 200, Body: "<html>"}} {
			r.s.SetFault(func(c kubesim.Call) *kubesim.Fault {
				if c.Name == "d" {
					return &f
				}
				return nil
			})
			for range 20 {
				k := state.TargetKey{Pool: "chat", Role: state.RoleDecode}
				if _, err := a.List(r.t.Context(), k); err == nil || !strings.Contains(err.Error(), "deployments.apps llm/d: ") {
					t.Fatalf("%+v: %v", f, err)
				}
				k.Role = state.RolePrefill
				if _, err := a.List(r.t.Context(), k); err != nil {
					t.Fatalf("%+v: %v", f, err)
				}
				time.Sleep(time.Second)
			}
		}
		// A server that asks for patience has it from both.
		r.s.SetFault(on("get deployments/scale.apps", 1, kubesim.Fault{Code: http.StatusTooManyRequests, RetryAfter: "60", Text: "slow down"}))
		time.Sleep(holdMost)
		if _, err := a.List(r.t.Context(), state.TargetKey{Pool: "chat", Role: state.RoleDecode}); err == nil {
			t.Error("not refused")
		}
		r.s.Forget()
		if _, err := a.List(r.t.Context(), state.TargetKey{Pool: "chat", Role: state.RolePrefill}); err == nil || len(r.s.Calls()) != 0 {
			t.Errorf("%v, %v", err, r.s.Calls())
		}
	})
}

// Writes that hang, as behind an admission webhook that is away, slow the loop seldom,
// though what is read in between answers.
func TestKubernetesWritesThatHang(t *testing.T) {
	for _, kind := range []string{marks, sets} {
		inKube(t, "", func(r *kubeRig) {
			r.s.Deployment("vllm", 2)
			r.s.SetFault(always(kind, kubesim.Fault{Hang: true}))
			slow := 0
			for range 120 {
				t0 := time.Now()
				_, err := r.round(r.a, r.desired(7, 8, 3))
				r.fails(err, "does not answer in time")
				if time.Since(t0) > listWait {
					slow++
				}
				time.Sleep(time.Second)
			}
			if slow < 3 || slow > 10 {
				t.Errorf("%s: slow %d times", kind, slow)
			}
			r.replicas(2)
			r.s.SetFault(nil)
			time.Sleep(holdMost)
			r.must(r.desired(7, 8, 3))
			r.replicas(3)
		})
	}
}

// Answers that are JSON and not what was asked for: nothing is concluded from what they
// do not say. A server without versions fences nothing, so nothing is written to it.
func TestKubernetesAnswersThatAreNone(t *testing.T) {
	f := func(kind, body, want string) {
		t.Helper()
		inKube(t, "", func(r *kubeRig) {
			r.s.Deployment("vllm", 3)
			r.s.SetFault(always(kind, kubesim.Fault{Code: 200, Body: body}))
			_, err := r.round(r.a, r.desired(7, 8, 1))
			r.fails(err, want)
			r.replicas(3)
			if n := r.s.Count(sets); n != 0 {
				t.Errorf("%s %s: set %d times", kind, body, n)
			}
		})
	}
	f("list pods", `{}`, "is no list")
	f("list pods", `{"kind":"Status","status":"Success"}`, "is no list")
	f("list horizontalpodautoscalers.autoscaling", `{}`, "is no list")
	f("get deployments/scale.apps", `{}`, "no selector")
	f("get deployments/scale.apps", `null`, "no selector")
	f("get deployments/scale.apps", `{"spec":{"replicas":null},"status":{"selector":"app=vllm"}}`, "others changed it")
	f("get deployments.apps", `{"kind":"Deployment"}`, "others changed it")

	inKube(t, "", func(r *kubeRig) { // versions are nowhere
		r.s.Deployment("vllm", 2)
		r.s.SetFault(func(c kubesim.Call) *kubesim.Fault {
			switch c.String() {
			case "get deployments/scale.apps":
				return &kubesim.Fault{Code: 200, Body: `{"spec":{"replicas":2},"status":{"selector":"app=vllm"}}`}
			case "get deployments.apps":
				return &kubesim.Fault{Code: 200, Body: `{"kind":"Deployment"}`}
			}
			return nil
		})
		_, err := r.round(r.a, r.desired(7, 8, 3))
		r.fails(err, "no resourceVersion")
		r.wrote()
		r.s.SetFault(on(marks, 1, kubesim.Fault{Code: 200, Body: `{}`}))
		_, err = r.round(r.a, r.desired(7, 8, 3))
		r.fails(err, "no resourceVersion")
		r.wrote(marks)
		r.replicas(2)
	})
}

// A right that is taken away in the middle of a step stops there, writes nothing again
// and again, and the step is finished once the right is back.
func TestKubernetesRightsAreTakenAway(t *testing.T) {
	for _, kind := range []string{prices, sets} {
		inKube(t, "", func(r *kubeRig) {
			r.s.Deployment("vllm", 3)
			pods := r.pods()
			r.s.SetFault(always(kind, kubesim.Fault{Code: http.StatusForbidden, Text: "no rule"}))
			for range 5 {
				_, err := r.round(r.a, r.desired(7, 8, 2, pods[0]))
				r.fails(err, "403", "needs")
				time.Sleep(time.Second)
			}
			r.replicas(3)
			if n := r.s.Count(marks); n != 1 {
				t.Errorf("%s: fenced %d times", kind, n)
			}
			r.s.SetFault(nil)
			x := r.must(r.desired(7, 8, 2, pods[0]))
			r.replicas(2)
			if r.s.Settle(); x.Note != "" || strings.Contains(strings.Join(r.pods(), " "), pods[0]) {
				t.Errorf("%s: %q, %v are left", kind, x.Note, r.pods())
			}
		})
	}
}

// What an admission webhook makes of the replicas is told as what it is.
func TestKubernetesReplicasAreBoundByAWebhook(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 2)
		r.s.SetFault(func(c kubesim.Call) *kubesim.Fault {
			if c.String() != sets {
				return nil
			}
			r.s.SetReplicas("vllm", 5)
			return &kubesim.Fault{Code: 200, Body: `{"kind":"Scale","spec":{"replicas":5},"status":{"selector":"app=vllm"}}`}
		})
		for range 5 {
			_, err := r.round(r.a, r.desired(7, 8, 8))
			r.fails(err, "8 replicas were asked for, and the API server made it 5: see which admission webhook")
			time.Sleep(time.Second)
		}
		r.replicas(5)
		r.s.SetFault(nil)
		r.must(r.desired(7, 8, 8))
		r.replicas(8)
	})
}

// Something that sets the replicas back each time is no person: it is said what to do,
// and not each time.
func TestKubernetesManifestIsAppliedAgainAndAgain(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		var log bytes.Buffer
		r.a.log = zerolog.New(&log).Level(zerolog.WarnLevel)
		r.s.Deployment("vllm", 2)
		r.must(r.desired(7, 8, 4))
		for i := range 20 {
			time.Sleep(5 * time.Second)
			r.s.SetReplicas("vllm", 2)
			x := r.must(r.desired(7, 8, 4))
			r.replicas(4)
			want := "somebody else set vllm from 4 to 2 replicas"
			if i > 1 {
				want += fmt.Sprintf(", %d times in a row: take replicas out of the manifest that is applied", i+1)
			}
			if !strings.HasPrefix(x.Note, want) || i < 2 && x.Note != want {
				t.Errorf("%d: %q", i, x.Note)
			}
		}
		if n := strings.Count(log.String(), "somebody else"); n != 6 { // 1, 2, 3, 4, 8, 16
			t.Errorf("warned %d times: %s", n, log.String())
		}
		time.Sleep(editsApart + time.Second)
		r.s.SetReplicas("vllm", 2)
		if x := r.must(r.desired(7, 8, 4)); x.Note != "somebody else set vllm from 4 to 2 replicas" {
			t.Errorf("%q", x.Note)
		}
	})
}

// A roll-out that is paused keeps what is drained, and it is said why for as long.
func TestKubernetesPausedRollOut(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 3)
		pods := r.pods()
		r.s.Edit("", "pods", pods[2], func(o kubesim.Obj) {
			o["metadata"].(kubesim.Obj)["ownerReferences"] = []any{kubesim.Obj{"kind": "ReplicaSet", "uid": "new", "controller": true}}
		})
		r.s.Edit("apps", "deployments", "vllm", func(o kubesim.Obj) { o["spec"].(kubesim.Obj)["paused"] = true })
		for range 3 {
			if x := r.must(r.desired(7, 8, 2, pods[0])); !strings.Contains(x.Note, "a roll-out is under way, and paused") {
				t.Errorf("%q", x.Note)
			}
		}
		r.replicas(3)
		r.must(r.desired(7, 9, 5)) // more are made all the same
		r.replicas(5)
	})
}

// An object of a kind whose scale has no status can't be sized, and says so; nothing is
// written to it.
func TestKubernetesScaleWithoutStatus(t *testing.T) {
	inKube(t, "example.org/v1/engines", func(r *kubeRig) {
		r.s.Scalable("engines.example.org")
		r.s.Put("example.org", "engines", kubesim.Obj{"kind": "Engine", "apiVersion": "example.org/v1", "metadata": kubesim.Obj{"name": "vllm"}, "spec": kubesim.Obj{}})
		r.must(r.desired(7, 8, 0)) // replicas are not named: there are none
		r.s.SetFault(always("get engines/scale.example.org", kubesim.Fault{Code: 200, Body: `{"kind":"Scale","spec":{"replicas":2}}`}))
		r.s.Forget()
		_, err := r.round(r.a, r.desired(7, 9, 3))
		r.fails(err, "engines.example.org llm/vllm: its scale has no selector")
		r.wrote()
	})
}
