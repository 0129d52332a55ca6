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
	"github.com/hearsay-llm/hearsay/test/harness"
)

// scaled is the pool whose Deployment of the same name the leader sizes.
const scaled = "scaled"

// scaledWithin bounds a step: Pods that start, or drain and stop.
const scaledWithin = 90 * time.Second

func (t *trial) scalingChecks() []check {
	return []check{
		{"scaling without rights says which it lacks", t.scaleWithoutRights, true},
		{"scale up: the Deployment is sized, its Pods are replicas", t.scaleUp, true},
		{"scale down: the Pods that were named go, their streams end whole", t.scaleDown, true},
		{"somebody else sets the replicas: the target wins, and it is said", t.foreignEdit, false},
		{"somebody else writes to the Deployment all the time", t.churn, false},
		{"the leader is killed in the middle of a step: the next one finishes it", t.leaderKilled, false},
		{"a leader that was paused does not undo its successor's step", t.leaderPaused, false},
		{"a Deployment that an autoscaler sizes is left alone", t.autoscaled, false},
		{"the manifests in deploy/kubernetes are taken", t.manifestsTaken, false},
		{"routers have used no more rights than deploy/kubernetes gives", t.rightsUsed, false},
	}
}

// target asks a router for a pool's size, as an operator does.
func target(ctx context.Context, r *harness.Proc, n int) error {
	c := client{server: r.Admin, http: clients}
	if err := c.do(ctx, http.MethodPut, "/admin/v1/pools/"+scaled+"/target", plainJSON, fmt.Appendf(nil, `{"to":%d}`, n), nil); err != nil {
		return fmt.Errorf("set target at %s: %w", r.Name, err)
	}
	return nil
}

// decisions of the pool, the newest first.
func decisions(ctx context.Context, r *harness.Proc) (out []console.Decision, err error) {
	var all []console.Decision
	err = r.GetAdmin(ctx, "decisions", &all)
	for _, d := range all {
		if d.Pool == scaled {
			out = append(out, d)
		}
	}
	return out, err
}

// replicasAsked is what the Deployment is to have.
func (t *trial) replicasAsked(ctx context.Context) (int, error) {
	var s struct {
		Spec struct {
			Replicas int `json:"replicas"`
		} `json:"spec"`
	}
	err := t.plane.admin.get(ctx, deployments+scaled+"/scale", &s)
	return s.Spec.Replicas, err
}

// step sets a target and waits until it is reached, everywhere, and the decision is over.
func (t *trial) step(ctx context.Context, r *harness.Proc, n int) (d console.Decision, pods []pod, err error) {
	if err := target(ctx, r, n); err != nil {
		return d, nil, err
	}
	return t.reached(ctx, r, n)
}

func (t *trial) reached(ctx context.Context, r *harness.Proc, n int) (d console.Decision, pods []pod, err error) {
	if _, err := until(ctx, scaledWithin, fmt.Sprintf("the target %d is reached", n), func() (bool, string) {
		asked, askErr := t.replicasAsked(ctx)
		list, err := decisions(ctx, r)
		if err == nil && len(list) > 0 {
			d = list[0]
		}
		return err == nil && askErr == nil && asked == n && d.To == n && d.Outcome != "", fmt.Sprintf("%d replicas asked for, decision %+v %v %v", asked, d, err, askErr)
	}); err != nil {
		return d, nil, err
	}
	if d.Outcome != "done" {
		return d, nil, fmt.Errorf("decision %s: %s, %s", d.ID, d.Outcome, d.Detail)
	}
	pods, _, err = t.agree(ctx, scaledWithin, scaled, n)
	return d, pods, err
}

func (t *trial) scaleUp(ctx context.Context) (string, error) {
	begin := time.Now()
	d, _, err := t.step(ctx, t.cluster.Routers[1], 5)
	return fmt.Sprintf("%d to %d in %.1f s, decision %s", d.From, d.To, time.Since(begin).Seconds(), d.Outcome), err
}

// scaleDown steps down while a stream runs at every replica.
func (t *trial) scaleDown(ctx context.Context) (string, error) {
	before, err := t.podsOf(ctx, scaled, 5)
	if err != nil {
		return "", err
	}
	var streams []*answer
	defer func() {
		for _, a := range streams {
			_ = a.body.Close()
		}
	}()
	for _, p := range before {
		a, err := t.streamAt(ctx, t.cluster.Routers[len(streams)%3].API, scaled, p.Metadata.UID)
		if err != nil {
			return "", err
		}
		streams = append(streams, a)
	}
	patched, err := t.patched()
	if err != nil {
		return "", err
	}
	if err := target(ctx, t.cluster.Routers[2], 3); err != nil {
		return "", err
	}
	drained, err := t.drained(ctx, 2)
	if err != nil {
		return "", err
	}
	for _, a := range streams {
		if err := a.rest(); err != nil {
			return "", err
		}
	}
	_, after, err := t.reached(ctx, t.cluster.Routers[2], 3)
	if err != nil {
		return "", err
	}
	gone := missing(before, after)
	if !slices.Equal(gone, drained) {
		return "", fmt.Errorf("%q went, %q were drained", gone, drained)
	}
	now, err := t.patched()
	if err != nil {
		return "", err
	}
	if cost := uids(before, now[len(patched):]); !slices.Equal(cost, gone) {
		return "", fmt.Errorf("%q got a cost, %q went", cost, gone)
	}
	return fmt.Sprintf("the %d drained and named by pod-deletion-cost went, %d streams whole", len(gone), len(streams)), nil
}

// drained waits until all routers drain the same n replicas for a step down, and says
// which, in order.
func (t *trial) drained(ctx context.Context, n int) (ids []string, err error) {
	_, err = until(ctx, scaledWithin, fmt.Sprintf("all routers drain %d replicas", n), func() (bool, string) {
		for i, r := range t.cluster.Routers {
			list, err := replicas(ctx, r, scaled)
			var own []string
			for _, x := range list {
				if x.State == "draining" && strings.Contains(x.Reason, "scale down") {
					own = append(own, x.ID)
				}
			}
			if slices.Sort(own); i == 0 {
				ids = own
			}
			if err != nil || len(own) != n || !slices.Equal(own, ids) {
				return false, fmt.Sprintf("%s: %s %v", r.Name, said(list), err)
			}
		}
		return true, ""
	})
	return ids, err
}

// patched are the names of Pods that routers have written to.
func (t *trial) patched() (names []string, err error) {
	all, err := audit(t.plane.secrets.path("audit.log"))
	for _, a := range all {
		if a.what() == "patch pods" && a.Response.Code == http.StatusOK {
			names = append(names, a.Object.Name)
		}
	}
	return names, err
}

// uids are those of the Pods with these names, in order, each once.
func uids(pods []pod, names []string) (out []string) {
	for _, p := range pods {
		if slices.Contains(names, p.Metadata.Name) {
			out = append(out, p.Metadata.UID)
		}
	}
	slices.Sort(out)
	return out
}

// missing are the UIDs of before that are none of after's, in order.
func missing(before, after []pod) (out []string) {
	for _, b := range before {
		if !slices.ContainsFunc(after, func(a pod) bool { return a.Metadata.UID == b.Metadata.UID }) {
			out = append(out, b.Metadata.UID)
		}
	}
	slices.Sort(out)
	return out
}

// foreignEdit sets the replicas as a person does who knows nothing of the leader.
func (t *trial) foreignEdit(ctx context.Context) (string, error) {
	r := t.cluster.Routers[0]
	before, err := decisions(ctx, r)
	if err != nil {
		return "", err
	}
	if err := t.plane.admin.scale(ctx, scaled, 4); err != nil {
		return "", err
	}
	took, err := until(ctx, scaledWithin, "the target wins", func() (bool, string) {
		n, err := t.replicasAsked(ctx)
		return n == 3, fmt.Sprint(n, err)
	})
	if err != nil {
		return "", err
	}
	if _, _, err := t.agree(ctx, scaledWithin, scaled, 3); err != nil {
		return "", err
	}
	after, err := decisions(ctx, r)
	if err == nil && len(after) != len(before) {
		err = fmt.Errorf("it was decided anew: %+v", after[0])
	}
	if err != nil {
		return "", err
	}
	said := strings.Contains(t.logs(), "somebody else set")
	if !said {
		return "", errors.New("no router says so")
	}
	return fmt.Sprintf("after %.1f s", took.Seconds()), nil
}

// logs are the routers', all of them.
func (t *trial) logs() string {
	var b strings.Builder
	for _, r := range t.cluster.Routers {
		b.WriteString(r.Log())
	}
	return b.String()
}

// noise is how often somebody writes to the Deployment: far more than its controller does.
const noise = 50 * time.Millisecond

// churn makes the Deployment's version change while the leader reads and writes, until
// that is written. Then it ends: the Deployment's own controller copies annotations to the
// ReplicaSet, and comes to nothing while they change faster than it reads.
func (t *trial) churn(ctx context.Context) (string, error) {
	before, err := t.conflicts()
	if err != nil {
		return "", err
	}
	noisy, stop := context.WithCancel(ctx)
	defer stop()
	writes := make(chan int, 1)
	go func() {
		n := 0
		for tick(noisy, noise) {
			if t.plane.admin.merge(noisy, deployments+scaled, fmt.Sprintf(`{"metadata":{"annotations":{"e2e/noise":"%d"}}}`, n)) == nil {
				n++
			}
		}
		writes <- n
	}()
	err = target(ctx, t.cluster.Routers[0], 4)
	if err == nil {
		_, err = until(ctx, scaledWithin, "4 replicas are asked for", func() (bool, string) {
			asked, err := t.replicasAsked(ctx)
			return err == nil && asked == 4, fmt.Sprintf("%d replicas asked for, %v", asked, err)
		})
	}
	stop()
	n := <-writes
	if err == nil {
		_, _, err = t.reached(ctx, t.cluster.Routers[0], 4)
	}
	if err != nil {
		return "", err
	}
	after, err := t.conflicts()
	return fmt.Sprintf("%d writes, %d of the leader's refused as conflicts, the target written meanwhile", n, after-before), err
}

// conflicts counts the routers' writes that the API server refused as such.
func (t *trial) conflicts() (n int, err error) {
	all, err := audit(t.plane.secrets.path("audit.log"))
	for _, a := range all {
		if a.Response.Code == http.StatusConflict {
			n++
		}
	}
	return n, err
}

// hpa is an autoscaler of the Deployment.
const hpa = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: other}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: ` + scaled + `}
  minReplicas: 1
  maxReplicas: 9
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
`

// autoscaled gives the Deployment an autoscaler, and takes it away.
func (t *trial) autoscaled(ctx context.Context) (string, error) {
	path := "/apis/autoscaling/v2/namespaces/" + namespace + "/horizontalpodautoscalers/other"
	before, err := t.replicasAsked(ctx)
	if err != nil {
		return "", err
	}
	if err := t.plane.admin.apply(ctx, path, hpa); err != nil {
		return "", err
	}
	if err := target(ctx, t.cluster.Routers[0], before+1); err != nil {
		return "", err
	}
	refused := ""
	took, err := until(ctx, scaledWithin, "the decision fails and says whose the Deployment is", func() (bool, string) {
		list, err := decisions(ctx, t.cluster.Routers[0])
		if err != nil || len(list) == 0 || list[0].To != before+1 {
			return false, fmt.Sprint("no decision ", err)
		}
		refused = list[0].Detail
		return list[0].Outcome == "failed" && strings.Contains(refused, "HorizontalPodAutoscaler other"), fmt.Sprintf("%+v", list[0])
	})
	if err != nil {
		return "", err
	}
	if n, err := t.replicasAsked(ctx); err != nil || n != before {
		return "", fmt.Errorf("%d replicas are asked for, %d before %w", n, before, err)
	}
	if err := t.plane.admin.do(ctx, http.MethodDelete, path, "", nil, nil); err != nil {
		return "", err
	}
	_, _, err = t.step(ctx, t.cluster.Routers[0], before+2)
	return fmt.Sprintf("refused after %.1f s, until the autoscaler is gone: %s", took.Seconds(), refused), err
}
