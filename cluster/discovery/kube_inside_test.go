package discovery

import (
	"net/http"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/deploy/kube"
)

// Whatever a server sends, a follower goes on, and what it keeps stays bounded.
func FuzzKubeEvent(f *testing.F) {
	for _, s := range []string{
		`{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a","uid":"u","resourceVersion":"2"},"status":{"podIP":"10.0.0.1","conditions":[{"type":"Ready","status":"True"}]}}}`,
		`{"type":"DELETED","object":{"metadata":{"name":"a"}}}`, `{"type":"ERROR","object":{"code":410}}`, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}`,
		`{"type":"ADDED","object":{"addressType":"IPv4","metadata":{"name":"s"},"ports":[{"port":1}],"endpoints":[{"addresses":["a"],"conditions":{"ready":null}},{"addresses":[]}]}}`,
		`{"type":"ADDED","object":null}`, `null`, `[]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		k := &Kube{cfg: KubeConfig{Scheme: "http"}, ready: map[string]bool{}}
		x := follower{objects: map[string]kubeObject{}, version: "1"}
		if err := x.event(line); err != nil && x.version != "" && !kube.Is(err, http.StatusGone) {
			t.Errorf("%v, and no new list", err)
		}
		p := New(Config{Name: "p", Sources: []Source{k}})
		now := time.Now()
		for _, s := range []Snapshot{k.fromPods(x.objects, nil), k.fromPods(x.objects, []int{1, 2}), k.fromSlices(x.objects)} {
			p.Report(0, s, now)
			p.Step(now)
		}
		p.Status()
	})
}

// A failure of an InferencePool's own is said with what its Pods are, and is over as
// soon as it is over, whether or not there is news of Pods.
func TestFailureOfAPoolIsSaid(t *testing.T) {
	var have Snapshot
	tell := &poolTeller{report: func(x Snapshot) { have = x }}
	tell.pool(nil)
	tell.pods(Snapshot{Replicas: []Found{{URL: "http://a:1"}}})
	check := func(replicas int, err error, partial bool) {
		t.Helper()
		if len(have.Replicas) != replicas || have.Err != err || have.Partial != partial {
			t.Errorf("%+v, want %d replicas, %v", have, replicas, err)
		}
	}
	check(1, nil, false)
	tell.pool(errNoPool)
	check(0, errNoPool, false)
	tell.pods(Snapshot{Replicas: []Found{{URL: "http://a:1"}, {URL: "http://b:1"}}})
	check(2, errNoPool, true)
	tell.pool(nil)
	check(2, nil, false)
}
