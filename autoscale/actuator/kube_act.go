package actuator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/deploy/kube"
	"github.com/hearsay-llm/hearsay/state"
)

const mergePatch = "application/merge-patch+json"

// written are the parameters of all that is written.
var written = url.Values{"fieldManager": {"hearsay"}}

// act writes the step that is due. The fence is written first, under the version that
// was looked at; the replicas last, under the version that the fence's write returned.
// So a leader that was paused anywhere in between, and another one that has written its
// fence since, make this fail with a conflict. Whether a write that got no answer was
// done is found out by the next look.
func (k *Kubernetes) act(ctx context.Context, t *kubeTarget, l *look, d *state.Desired) (err error) {
	switch {
	case l.object.Metadata.Version != l.scale.Metadata.Version:
		return errMoved
	case l.object.Metadata.Version == "":
		return errUnfenced
	}
	f, err := readFence(&l.object)
	if err != nil {
		return err
	}
	if err := f.admits(d); err != nil {
		return err
	}
	s := plan(l, d)
	next := k.audit(t, l, f).next(d, l.scale.Spec.Replicas, &s)
	version := l.scale.Metadata.Version
	if !f.equal(&next) {
		if version, err = k.mark(ctx, t, l, &next); err != nil {
			return err
		}
	}
	for _, p := range s.price {
		if err := k.price(ctx, p, &lowest); err != nil {
			return err
		}
	}
	for _, p := range s.unprice {
		if err := k.price(ctx, p, nil); err != nil {
			return err
		}
	}
	if s.replicas != l.scale.Spec.Replicas {
		if err := k.put(ctx, t, l, version, s.replicas); err != nil {
			return err
		}
		k.log.Info().Str("object", t.where).Str("decision", d.ID).Int("from", l.scale.Spec.Replicas).Int("to", s.replicas).
			Strs("victims", podNames(s.victims)).Msg("replicas set")
		l.scale.Spec.Replicas = s.replicas
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	t.epoch, t.last, t.sureAt, t.names = d.Epoch, next, time.Now(), map[string]string{}
	for _, p := range l.active() {
		t.names[p.Metadata.UID] = p.Metadata.Name
	}
	l.explain(&s, d)
	return nil
}

// audit compares what is seen with what the last step was to be, by the fence where it
// is another leader's, and returns the fence without victims that are none any more.
func (k *Kubernetes) audit(t *kubeTarget, l *look, f kubeFence) kubeFence {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, others := l.scale.Spec.Replicas, t.epoch == 0 && f.Cluster != ""
	k.notice(t, l)
	if others && now != f.To && now != f.From {
		k.somebody(t, f.To, now)
	}
	if f.wronged(l) {
		if others {
			k.wrong(t, l, &f)
		}
		f.Victims = nil
	}
	t.epoch = 0 // until all of the step is done
	return f
}

// mark writes the fence and returns the object's new version.
func (k *Kubernetes) mark(ctx context.Context, t *kubeTarget, l *look, f *kubeFence) (version string, err error) {
	o := &l.object.Metadata
	var back kubeObject
	err = k.write(ctx, http.MethodPatch, k.path(t), map[string]any{"metadata": map[string]any{
		"uid": o.UID, "resourceVersion": o.Version, "annotations": map[string]string{keyFence: f.String()},
	}}, &back)
	if err == nil && back.Metadata.Version == "" {
		err = errUnfenced
	}
	return back.Metadata.Version, err
}

// errUnfenced is an object without a version: what is written then is written whatever
// others have written since.
var errUnfenced = errors.New("the API server names no resourceVersion of it: what is written could not be fenced")

// price gives a Pod a cost, or takes it away, if it is as it was seen.
func (k *Kubernetes) price(ctx context.Context, p *pod, cost *string) error {
	m := &p.Metadata
	path := "/api/v1/namespaces/" + url.PathEscape(k.cfg.Namespace) + "/pods/" + url.PathEscape(m.Name)
	err := k.write(ctx, http.MethodPatch, path, map[string]any{"metadata": map[string]any{
		"uid": m.UID, "resourceVersion": m.Version, "annotations": map[string]*string{keyCost: cost},
	}}, &kubeObject{})
	if kube.Is(err, http.StatusNotFound) {
		return errMoved
	}
	return err
}

// put writes the replicas, if the object is of that version still. What an admission
// webhook makes of them is not what was decided.
func (k *Kubernetes) put(ctx context.Context, t *kubeTarget, l *look, version string, replicas int) error {
	m := &l.scale.Metadata
	var back kubeScale
	err := k.write(ctx, http.MethodPut, k.path(t)+"/scale", map[string]any{
		"kind": "Scale", "apiVersion": "autoscaling/v1",
		"metadata": map[string]any{"name": t.name, "namespace": k.cfg.Namespace, "uid": m.UID, "resourceVersion": version},
		"spec":     map[string]any{"replicas": replicas},
	}, &back)
	if err == nil && back.Spec.Replicas != replicas {
		return fmt.Errorf("%d replicas were asked for, and the API server made it %d: see which admission webhook or policy bounds them", replicas, back.Spec.Replicas)
	}
	return err
}

func (k *Kubernetes) write(ctx context.Context, method, path string, body, back any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r := kube.Request{Method: method, Path: path, Query: written, Type: mergePatch, Body: b}
	if method == http.MethodPut {
		r.Type = "application/json"
	}
	answer, err := k.access.Do(ctx, r)
	if err != nil {
		return err
	}
	return kube.Decode(ctx, answer, maxObject, back)
}

// missing names the Pods that there were at the last step down and that count no more.
func (t *kubeTarget) missing(l *look) string {
	left := map[string]bool{}
	for _, p := range l.active() {
		left[p.Metadata.UID] = true
	}
	var names []string
	for uid, name := range t.names {
		if !left[uid] {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "another Pod"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func podNames(pods []*pod) (names []string) {
	for _, p := range pods {
		names = append(names, p.Metadata.Name)
	}
	return names
}
