package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

// What docs/operate.md promises, and what a request's way and this machine may add.
const (
	seenWithin    = 1 * time.Second // a change at the API server
	cutWithin     = 5 * time.Second // a change, when the watch was cut
	retriedWithin = 30 * time.Second
	slowStart     = 10 * time.Second // a new replica has less than its share
	slack         = 2 * time.Second
)

func (t *trial) discoveryChecks() []check {
	return []check{
		{"the API server is the one that was built", t.versions, true},
		{"routers without rights say which they lack", t.withoutRights, true},
		{"Pods by selector, by Service, by InferencePool: found once rights are given", t.found, true},
		{"every router answers for each pool", t.answers, false},
		{"a new Pod gets requests of every router", t.newPod, false},
		{"a Pod that is not ready drains, and is back", t.unready, false},
		{"a deleted Pod drains: its streams end whole, no new ones come", t.deleted, false},
		{"an InferencePool's new selector is followed", t.selector, false},
		{"a watch that is cut goes on where it was, without a list", t.cut, false},
		{"etcd compacted: 410 Gone, and a list", t.gone, false},
		{"the API server away: requests go on", t.away, false},
	}
}

func (t *trial) versions(ctx context.Context) (string, error) {
	var v struct {
		Version string `json:"gitVersion"`
	}
	if err := t.plane.admin.get(ctx, "/version", &v); err != nil {
		return "", err
	}
	if v.Version != version {
		return "", fmt.Errorf("it is %s, not %s", v.Version, version)
	}
	return v.Version, nil
}

func (t *trial) withoutRights(ctx context.Context) (string, error) {
	return t.warned(ctx, 10*time.Second, false, "403", "needs list on pods in namespace "+namespace)
}

// found gives the account its rights and makes the Pods.
func (t *trial) found(ctx context.Context) (string, error) {
	admin := t.plane.admin
	if err := admin.applyAll(ctx, slices.Concat(rights, followed)...); err != nil {
		return "", err
	}
	begin := time.Now()
	for _, pool := range pools {
		if err := admin.applyAll(ctx, deployment(pool, 2)); err != nil {
			return "", err
		}
	}
	for _, pool := range pools {
		if _, _, err := t.agree(ctx, retriedWithin+slack, pool, 2); err != nil {
			return "", err
		}
	}
	took := time.Since(begin)
	if _, err := t.warned(ctx, 2*slack, true, "403", ", kubernetes "+namespace); err != nil {
		return "", err
	}
	return fmt.Sprintf("2 replicas in each of %d pools after %.1f s", len(pools), took.Seconds()), nil
}

func (t *trial) answers(ctx context.Context) (string, error) {
	for _, pool := range pools {
		pods, err := t.podsOf(ctx, pool, 2)
		if err != nil {
			return "", err
		}
		for _, r := range t.cluster.Routers {
			replica, err := ask(ctx, r.API, pool, "hello")
			if err != nil {
				return "", err
			}
			if !slices.ContainsFunc(pods, func(p pod) bool { return p.Metadata.UID == replica }) {
				return "", fmt.Errorf("%s has the answer of %q, which is no Pod of %s", r.Name, replica, pool)
			}
		}
	}
	return "", nil
}

// fresh is the Pod of after that is none of before.
func fresh(before, after []pod) (pod, error) {
	for _, p := range after {
		if !slices.ContainsFunc(before, func(b pod) bool { return b.Metadata.UID == p.Metadata.UID }) {
			return p, nil
		}
	}
	return pod{}, errors.New("no Pod is new")
}

func (t *trial) newPod(ctx context.Context) (string, error) {
	before, err := t.podsOf(ctx, "chat", 2)
	if err != nil {
		return "", err
	}
	if err := t.plane.admin.scale(ctx, "chat", 3); err != nil {
		return "", err
	}
	after, err := t.podsOf(ctx, "chat", 3)
	if err != nil {
		return "", err
	}
	p, err := fresh(before, after)
	if err != nil {
		return "", err
	}
	if _, err := t.is(ctx, seenWithin+slack, "it takes requests", "chat", p.Metadata.UID, takes); err != nil {
		return "", err
	}
	took := time.Since(t.node.readySince(p.Metadata.UID))
	if took > seenWithin+slack {
		return "", fmt.Errorf("it took %v", took)
	}
	begin := time.Now()
	for _, r := range t.cluster.Routers {
		if _, err := until(ctx, slowStart+slack, r.Name+" sends to "+p.Metadata.Name, func() (bool, string) {
			by, err := burst(ctx, r.API, "chat", 9)
			return by[p.Metadata.UID] > 0, fmt.Sprint(by, err)
		}); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("known %.2f s after it was ready, all have sent requests %.2f s later", took.Seconds(), time.Since(begin).Seconds()), nil
}

// is waits until all routers see one replica so.
func (t *trial) is(ctx context.Context, bound time.Duration, what, pool, uid string, see func(*console.Replica) bool) (time.Duration, error) {
	return t.everywhere(ctx, bound, what, pool, func(list []console.Replica) bool {
		i := slices.IndexFunc(list, func(r console.Replica) bool { return r.ID == uid })
		return i >= 0 && see(&list[i])
	})
}

func drains(why string) func(*console.Replica) bool {
	return func(r *console.Replica) bool {
		return r.State == "draining" && strings.Contains(r.Trouble+r.Reason, why)
	}
}

func (t *trial) unready(ctx context.Context) (string, error) {
	pods, err := t.podsOf(ctx, "chat", 3)
	if err != nil {
		return "", err
	}
	p := &pods[0]
	if err := fault(ctx, p, `{"kind":"health","status":503}`); err != nil {
		return "", err
	}
	if _, err := t.podsOf(ctx, "chat", 2); err != nil {
		return "", err
	}
	off, err := t.is(ctx, seenWithin+slack, "it drains", "chat", p.Metadata.UID, drains("not ready"))
	if err != nil {
		return "", err
	}
	if err := fault(ctx, p, `{"kind":"none"}`); err != nil {
		return "", err
	}
	_, on, err := t.agree(ctx, seenWithin+slack, "chat", 3)
	return fmt.Sprintf("drains after %.2f s, back after %.2f s", off.Seconds(), on.Seconds()), err
}

// deleted deletes a Pod on which a stream of every router runs.
func (t *trial) deleted(ctx context.Context) (string, error) {
	pods, err := t.podsOf(ctx, "chat", 3)
	if err != nil {
		return "", err
	}
	p := pods[0]
	var streams []*answer
	defer func() {
		for _, a := range streams {
			_ = a.body.Close()
		}
	}()
	for _, r := range t.cluster.Routers {
		a, err := t.streamAt(ctx, r.API, "chat", p.Metadata.UID)
		if err != nil {
			return "", err
		}
		streams = append(streams, a)
	}
	if err := t.plane.admin.do(ctx, http.MethodDelete, p.path(), "", nil, nil); err != nil {
		return "", err
	}
	took, err := t.is(ctx, seenWithin+slack, "it drains", "chat", p.Metadata.UID, drains("terminates"))
	if err != nil {
		return "", err
	}
	for _, r := range t.cluster.Routers {
		by, err := burst(ctx, r.API, "chat", 9)
		if err != nil || by[p.Metadata.UID] > 0 {
			return "", fmt.Errorf("%s still sends there, or requests fail: %v %w", r.Name, by, err)
		}
	}
	for _, a := range streams {
		if err := a.rest(); err != nil {
			return "", err
		}
	}
	after, _, err := t.agree(ctx, 20*time.Second, "chat", 3)
	if err != nil {
		return "", err
	}
	if _, err := fresh(pods, after); err != nil {
		return "", err
	}
	left, err := t.everywhere(ctx, 20*time.Second, "it is removed", "chat", func(list []console.Replica) bool { return len(list) == 3 })
	return fmt.Sprintf("drains after %.2f s, %d streams whole, its successor is another replica, removed %.1f s after that took over", took.Seconds(), len(streams), left.Seconds()), err
}

// streamAt opens a stream of some 4 s that a replica answers. Those that others answer
// run until it is found, so that the router sends elsewhere.
func (t *trial) streamAt(ctx context.Context, api, pool, uid string) (*answer, error) {
	for i := range 60 {
		a, err := open(ctx, api, pool, fmt.Sprintf("%d %d", time.Now().UnixNano(), i)+strings.Repeat(" a long way", 100), 600)
		if err != nil {
			return nil, err
		}
		if a.replica == uid {
			return a, nil
		}
		defer func() { _ = a.body.Close() }()
	}
	return nil, fmt.Errorf("%s sends nothing to %s", api, uid)
}

// selector lets the InferencePool select nobody, and its own Pods again.
func (t *trial) selector(ctx context.Context) (string, error) {
	var took []time.Duration
	for _, to := range []struct {
		app string
		n   int
	}{{"nobody", 0}, {"inference", 2}} {
		if err := t.plane.admin.merge(ctx, inference+"inference", fmt.Sprintf(`{"spec":{"selector":{"matchLabels":{"app":%q}}}}`, to.app)); err != nil {
			return "", err
		}
		pods, err := t.podsOf(ctx, to.app, to.n)
		if err != nil {
			return "", err
		}
		d, err := t.everywhere(ctx, seenWithin+slack, "replicas are the Pods of "+to.app, "inference", func(list []console.Replica) bool { return sees(list, pods) })
		if err != nil {
			return "", err
		}
		took = append(took, d)
	}
	return fmt.Sprintf("none after %.2f s, its own again after %.2f s", took[0].Seconds(), took[1].Seconds()), nil
}
