package discovery_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/discovery"
)

// succeed gives a rig in the place of another one.
func succeed(old *rig, cfg discovery.Config, kinds ...string) *rig {
	old.t.Helper()
	r := newRig(old.t, cfg, kinds...)
	r.now, r.list = old.now, old.list
	r.Succeed(old.Pool)
	r.Step(r.now)
	return r
}

// A source that both have does not have to be asked again, another one has to, before
// anything is let go.
func TestSuccessorKeepsReplicasUntilItKnows(t *testing.T) {
	cfg := discovery.Config{Grace: time.Minute}
	a := newRig(t, cfg, discovery.KindDNS, discovery.KindFile)
	a.hear(0, urls("d"))
	a.hear(1, urls("f", "g", "h"))
	a.hear(1, urls("f", "g"))
	a.want("d:8000", "f:8000", "g:8000", "h:8000 draining")

	b := succeed(a, cfg, discovery.KindKubernetes, discovery.KindFile)
	b.want("d:8000", "f:8000", "g:8000", "h:8000 draining")
	a.hear(1, urls("x"))
	a.pass(time.Hour)
	a.want("d:8000", "f:8000", "g:8000", "h:8000 draining") // what it applied before
	b.hear(1, discovery.Snapshot{Err: errAway})
	b.pass(time.Hour)
	b.want("d:8000", "f:8000", "g:8000") // its file fails, Kubernetes has not answered
	b.hear(1, urls("f"))
	b.want("d:8000", "f:8000", "g:8000")
	b.hear(0, urls("k"))
	b.want("d:8000 draining", "f:8000", "g:8000 draining", "k:8000")

	c := succeed(b, cfg)
	c.want("d:8000 draining", "f:8000 draining", "g:8000 draining", "k:8000 draining")
	c.pass(time.Minute)
	c.want()
}

// What may not be there any more is not waited for.
func TestSuccessorWithAnotherAllowList(t *testing.T) {
	a := newRig(t, discovery.Config{}, discovery.KindFile, discovery.KindDNS)
	a.hear(0, urls("10.0.0.1", "10.0.0.2"))
	a.hear(1, urls("10.0.0.3"))
	allow, err := discovery.ParseAllow([]string{"10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	b := succeed(a, discovery.Config{Allow: allow}, discovery.KindFile, discovery.KindKubernetes)
	b.want("10.0.0.1:8000", "10.0.0.2:8000 draining", "10.0.0.3:8000 draining")
}

// One that is only to let go does so without news.
func TestSuccessorRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRig(t, discovery.Config{}, discovery.KindFile)
		a.hear(0, urls("a"))
		b := newRig(t, discovery.Config{Grace: time.Minute})
		b.Succeed(a.Pool)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.Run(ctx) }()
		time.Sleep(time.Second)
		b.want("a:8000 draining")
		time.Sleep(2 * time.Minute)
		b.want()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestReplicaOfAnotherPoolIsRefused(t *testing.T) {
	others := map[string]string{"b:8000": "code"}
	r := newRig(t, discovery.Config{Others: func() map[string]string { return others }}, discovery.KindFile)
	r.hear(0, urls("a", "b", "c"))
	r.want("a:8000", "c:8000")
	if s := r.Status()[0].Refused; len(s) != 1 || !strings.Contains(s[0].Why, "pool code") {
		t.Errorf("%+v", s)
	}
	others = map[string]string{"c:8000": "code"}
	r.Recheck()
	r.Step(r.now)
	r.want("a:8000", "b:8000") // c is there, in the other one
	if s := r.Status()[0].Refused; len(s) != 1 || s[0].URL != "http://c:8000" {
		t.Errorf("%+v", s)
	}
}

// The log names each refused replica once, and no more than some.
func TestRefusedReplicasAreLoggedOnce(t *testing.T) {
	r := newRig(t, discovery.Config{Others: func() map[string]string { return map[string]string{"a:8000": "code", "b:8000": "code"} }}, discovery.KindFile)
	count := func(text string, want int) {
		t.Helper()
		if n := strings.Count(r.log.String(), text); n != want {
			t.Errorf("%q stands %d times in the log, want %d", text, n, want)
		}
	}
	for range 10 {
		r.hear(0, urls("a", "b", "c"))
		r.hear(0, urls("b", "c"))
	}
	count("discovered replica refused", 2)
	for range 2 {
		var x discovery.Snapshot
		for i := range 500 {
			x.Replicas = append(x.Replicas, discovery.Found{URL: "http://h/" + strings.Repeat("x", i%190)})
		}
		r.hear(0, x)
	}
	count("discovered replica refused", 100)
	count("more discovered replicas refused", 1)
	if n := len(r.Status()[0].Refused); n < 100 {
		t.Errorf("%d are told of", n)
	}
}
