package actuator

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/kubesim"
)

// act is a call of a leader that waits for its turn.
type waiting struct {
	call kubesim.Call
	turn chan struct{}
}

// stepper lets the calls of two leaders happen one at a time, in an order that is
// chosen. Calls that read what neither of them writes are not held: where they happen
// makes no difference.
type stepper struct {
	r  *kubeRig
	mu sync.Mutex
	at map[string]*waiting // guarded by mu; by leader
}

func (x *stepper) gate(c kubesim.Call, q *http.Request) {
	if c.Resource == "horizontalpodautoscalers" || c.Verb == "list" {
		return
	}
	host, _, _ := net.SplitHostPort(q.RemoteAddr)
	who := "new"
	if host == x.r.net.Host("old").IP().String() {
		who = "old"
	}
	w := &waiting{c, make(chan struct{})}
	x.mu.Lock()
	x.at[who] = w
	x.mu.Unlock()
	<-w.turn
}

// next waits until nothing moves any more, and lists who could be let on.
func (x *stepper) next() (who []string) {
	time.Sleep(20 * time.Millisecond) // calls and answers that are on their way arrive
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	for w := range x.at {
		who = append(who, w)
	}
	slices.Sort(who)
	return who
}

func (x *stepper) let(who string) kubesim.Call {
	x.mu.Lock()
	w := x.at[who]
	delete(x.at, who)
	x.mu.Unlock()
	close(w.turn)
	time.Sleep(20 * time.Millisecond)
	synctest.Wait()
	return w.call
}

// An old leader and a new one act at the same time, in every order of their calls: once
// the new one's fence is written, nothing that the old one writes has an effect, so that
// it does not matter where the old one was paused, or died.
func TestKubernetesFenceInEveryOrder(t *testing.T) {
	f := func(name string, old, young func(r *kubeRig) state.Desired, end int) {
		t.Run(name, func(t *testing.T) {
			runs := 0
			for prefix := []int{}; prefix != nil; runs++ {
				inKube(t, "", func(r *kubeRig) {
					r.s.Deployment("vllm", 3)
					prefix = oneOrder(r, old(r), young(r), end, prefix)
				})
				if t.Failed() {
					return
				}
			}
			t.Logf("%d orders", runs)
			if runs < 50 {
				t.Errorf("only %d orders", runs)
			}
		})
	}
	up := func(epoch, decision uint64, want int) func(r *kubeRig) state.Desired {
		return func(r *kubeRig) state.Desired { return r.desired(epoch, decision, want) }
	}
	down := func(epoch, decision uint64, victim int) func(r *kubeRig) state.Desired {
		return func(r *kubeRig) state.Desired { return r.desired(epoch, decision, 2, r.pods()[victim]) }
	}
	f("both up", up(5, 6, 6), up(7, 8, 4), 4)
	f("down, then up", down(5, 6, 0), up(7, 8, 4), 4)
	f("up, then down", up(5, 6, 6), down(7, 8, 0), 2)
	f("an older decision of one term", up(7, 8, 6), up(7, 9, 4), 4)
	f("the same decision by the next leader", up(5, 6, 5), up(7, 6, 5), 5)
}

// oneOrder lets both leaders act in the order that prefix begins with, and returns the
// next prefix to try; nil after the last.
func oneOrder(r *kubeRig, old, young state.Desired, end int, prefix []int) []int {
	x := &stepper{r: r, at: map[string]*waiting{}}
	a, b := r.leader("old", ""), r.leader("new", "")
	r.s.SetGate(x.gate)
	var aerr, berr error
	var both sync.WaitGroup
	both.Go(func() { _, aerr = a.Ensure(r.t.Context(), old) })
	both.Go(func() { _, berr = b.Ensure(r.t.Context(), young) })
	var picks, options []int
	var log []string
	fenced := ""
	for who := x.next(); len(who) > 0; who = x.next() {
		pick := 0
		if len(picks) < len(prefix) {
			pick = prefix[len(picks)]
		}
		picks, options = append(picks, pick), append(options, len(who))
		was := r.state()
		c := x.let(who[pick])
		now := r.state()
		log = append(log, who[pick]+" "+c.String())
		if who[pick] == "old" && fenced != "" && now != was {
			r.t.Errorf("fenced, the old leader changed %s to %s: %q", was, now, log)
		}
		if who[pick] == "new" && c.String() == marks && now != was {
			fenced = now
		}
	}
	both.Wait()
	a.Close()
	b.Close()
	r.s.SetGate(nil)
	if berr != nil && !strings.Contains(berr.Error(), "while it was to be changed") {
		r.t.Errorf("the new leader: %v: %q", berr, log)
	}
	if aerr != nil && !errors.Is(aerr, state.ErrFenced) {
		r.t.Errorf("the old leader: %v: %q", aerr, log)
	}
	if n := r.s.Replicas("vllm"); n != end && berr == nil {
		r.t.Errorf("%d replicas, want %d: %q", n, end, log)
	}
	for i := len(picks) - 1; i >= 0; i-- { // the last choice that has an alternative left
		if picks[i]+1 < options[i] {
			return append(slices.Clone(picks[:i]), picks[i]+1)
		}
	}
	return nil
}

// state is what a leader may change of the object.
func (r *kubeRig) state() string {
	return fmt.Sprint(r.s.Replicas("vllm"), r.s.Annotation("vllm", keyFence))
}

// A term that is over, and a decision that a later one replaced, are told so.
func TestKubernetesRefusesThePast(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 2)
		r.must(r.desired(7, 8, 3))
		b := r.leader("second", "")
		defer b.Close()
		for _, d := range []state.Desired{r.desired(6, 9, 5), r.desired(7, 7, 5)} {
			if _, err := r.round(b, d); !errors.Is(err, state.ErrFenced) {
				t.Errorf("%v", err)
			}
		}
		r.replicas(3)
		if _, err := r.round(b, r.desired(8, 8, 3)); err != nil {
			t.Error(err)
		}
		// The first one wakes up: nothing tells it but the object.
		if _, err := r.round(r.a, r.desired(7, 8, 4)); !errors.Is(err, state.ErrFenced) {
			t.Errorf("%v", err)
		}
		r.replicas(3)
	})
}

// Another cluster's object, another pool's, and one whose annotation somebody wrote by
// hand, are not touched.
func TestKubernetesObjectsOfOthers(t *testing.T) {
	inKube(t, "", func(r *kubeRig) {
		r.s.Deployment("vllm", 2)
		f := func(annotation, want string, ours bool) {
			t.Helper()
			r.s.Edit("apps", "deployments", "vllm", func(o kubesim.Obj) {
				o["metadata"].(kubesim.Obj)["annotations"] = kubesim.Obj{keyFence: annotation}
			})
			_, err := r.round(r.a, r.desired(7, 8, 3))
			r.fails(err, want, keyFence)
			if errors.Is(err, state.ErrNotOurs) == ours {
				t.Errorf("%v: not ours?", err)
			}
			r.replicas(2)
		}
		f(`{"cluster":"c2","pool":"chat","role":"both","epoch":1,"decision":2}`, "another cluster (c2)", false)
		f(`{"cluster":"c1","pool":"code","role":"both","epoch":1,"decision":2}`, "it is of pool code", false)
		f(`{"cluster":"c1","pool":"chat","role":"decode","epoch":1,"decision":2}`, "role decode", false)
		f(`3`, "is not understood", true)
		f(`{}`, "is not understood", true)
		f(`{"cluster":"c1","epoch":-1,"decision":2}`, "is not understood", true)
	})
}
