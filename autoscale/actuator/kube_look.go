package actuator

import (
	"context"
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

// Bounds of what is read.
const (
	podPage   = "250"    // Pods per page
	maxObject = 8 << 20  // bytes
	maxPage   = 64 << 20 // bytes of a list's page
)

// MaxPods bounds those of an object.
const MaxPods = 4096

type kubeMeta struct {
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Version     string            `json:"resourceVersion"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Deletion    *string           `json:"deletionTimestamp"`
	Owners      []struct {
		Kind       string `json:"kind"`
		UID        string `json:"uid"`
		Controller bool   `json:"controller"`
	} `json:"ownerReferences"`
}

// kubeObject is what is read of an object that has a scale.
type kubeObject struct {
	Kind     string   `json:"kind"`
	API      string   `json:"apiVersion"`
	Metadata kubeMeta `json:"metadata"`
	Spec     struct {
		Ordinals struct {
			Start int `json:"start"`
		} `json:"ordinals"` // of a StatefulSet
		Paused bool `json:"paused"` // of a Deployment: its roll-outs stand still
	} `json:"spec"`
	Status struct {
		Conditions []kubeCondition `json:"conditions"`
	} `json:"status"`
}

type kubeCondition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// kubeScale is a scale subresource. Its version is the object's.
type kubeScale struct {
	Metadata kubeMeta `json:"metadata"`
	Spec     struct {
		Replicas int `json:"replicas"`
	} `json:"spec"`
	Status struct {
		Replicas int    `json:"replicas"`
		Selector string `json:"selector"`
	} `json:"status"`
}

// look is what there was of a target at one time.
type look struct {
	scale   kubeScale
	object  kubeObject // where it was asked for: as of the scale's version
	pods    []*pod     // of the object, those that end included, in name order
	first   int        // ordinal of a StatefulSet's first Pod
	paused  bool       // a roll-out does not go on
	trouble string     // why Pods can't be made
}

// active are the Pods that count as replicas: they do not end.
func (l *look) active() (list []*pod) {
	for _, p := range l.pods {
		if !p.ending() {
			list = append(list, p)
		}
	}
	return list
}

// errMoved is a look in the middle of which the object changed.
var errMoved = &kube.Error{Code: http.StatusConflict, Text: "the object changes all the time"}

// read looks at an object. To act on it takes a full look: with the object itself, of
// one version, and with autoscalers as they are now. A target that an autoscaler sizes
// is not ours.
func (k *Kubernetes) read(ctx context.Context, t *kubeTarget, full bool) (*look, error) {
	l := &look{}
	if err := k.get(ctx, k.path(t)+"/scale", nil, maxObject, &l.scale); err != nil {
		return nil, err
	}
	if l.scale.Status.Selector == "" {
		return nil, errors.New("its scale has no selector: which Pods are its replicas can't be told")
	}
	if err := k.readPods(ctx, l); err != nil {
		return nil, err
	}
	k.mu.Lock()
	full = full || t.kind.Kind == "" || l.scale.Spec.Replicas > len(l.active())
	owner, stale := t.owner, full || time.Since(t.ownerAt) > ownersAge
	l.first, l.paused = t.kind.Spec.Ordinals.Start, t.kind.Spec.Paused
	k.mu.Unlock()
	if full {
		if err := k.get(ctx, k.path(t), nil, maxObject, &l.object); err != nil {
			return nil, err
		}
		if l.object.Metadata.Deletion != nil {
			return nil, errors.New("it is being deleted")
		}
		l.first, l.paused, l.trouble = l.object.Spec.Ordinals.Start, l.object.Spec.Paused, l.object.trouble()
	}
	if stale {
		var err error
		if owner, err = k.autoscaler(ctx, t, &l.object); err != nil {
			return nil, err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if full {
		t.kind = l.object
	}
	if t.owner = owner; stale {
		t.ownerAt = time.Now()
	}
	if owner != "" {
		return nil, fmt.Errorf("%s sizes it: %w", owner, state.ErrNotOurs)
	}
	return l, nil
}

func (k *Kubernetes) path(t *kubeTarget) string { return k.resource.path(k.cfg.Namespace, t.name) }

func (k *Kubernetes) get(ctx context.Context, path string, query url.Values, most int64, v any) error {
	body, err := k.access.Get(ctx, path, query)
	if err != nil {
		return err
	}
	return kube.Decode(ctx, body, most, v)
}

// readPods lists the object's Pods. What a selector finds and no controller has made
// is not the object's.
func (k *Kubernetes) readPods(ctx context.Context, l *look) error {
	query := url.Values{"labelSelector": {l.scale.Status.Selector}, "limit": {podPage}}
	for {
		var page struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []*pod `json:"items"`
		}
		if err := k.get(ctx, "/api/v1/namespaces/"+url.PathEscape(k.cfg.Namespace)+"/pods", query, maxPage, &page); err != nil {
			return err
		}
		if !isList(page.Kind) {
			return errNoList
		}
		for _, p := range page.Items {
			if p != nil && p.owner() != "" && !p.over() {
				l.pods = append(l.pods, p)
			}
		}
		if len(l.pods) > MaxPods {
			return fmt.Errorf("it has more than %d Pods", MaxPods)
		}
		if page.Metadata.Continue == "" {
			break
		}
		query.Set("continue", page.Metadata.Continue)
	}
	slices.SortFunc(l.pods, func(a, b *pod) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	return nil
}

// isList tells a list by its kind: what else is JSON would be an empty one.
func isList(kind string) bool { return strings.HasSuffix(kind, "List") }

var errNoList = &kube.Unreachable{Text: "what the API server answers is no list"}

// autoscaler names a HorizontalPodAutoscaler that sizes the object. KEDA makes such
// ones, too.
func (k *Kubernetes) autoscaler(ctx context.Context, t *kubeTarget, o *kubeObject) (string, error) {
	kind := o.Kind
	if kind == "" {
		k.mu.Lock()
		kind = t.kind.Kind
		k.mu.Unlock()
	}
	var list struct {
		Kind  string `json:"kind"`
		Items []struct {
			Metadata kubeMeta `json:"metadata"`
			Spec     struct {
				Target struct {
					API  string `json:"apiVersion"`
					Kind string `json:"kind"`
					Name string `json:"name"`
				} `json:"scaleTargetRef"`
			} `json:"spec"`
		} `json:"items"`
	}
	path := "/apis/autoscaling/v2/namespaces/" + url.PathEscape(k.cfg.Namespace) + "/horizontalpodautoscalers"
	if err := k.get(ctx, path, nil, maxPage, &list); err != nil {
		return "", err
	}
	if !isList(list.Kind) {
		return "", errNoList
	}
	for _, h := range list.Items {
		group, _, grouped := strings.Cut(h.Spec.Target.API, "/")
		if h.Spec.Target.Kind == kind && h.Spec.Target.Name == t.name && (!grouped || group == k.resource.Group) {
			return "the HorizontalPodAutoscaler " + kube.Clip(h.Metadata.Name), nil
		}
	}
	return "", nil
}

// trouble is why a controller can't make Pods: a quota, an admission that refuses.
func (o *kubeObject) trouble() string {
	for _, c := range o.Status.Conditions {
		if c.Type == "ReplicaFailure" && c.Status == "True" {
			return "Pods can't be made: " + kube.Clip(c.Message)
		}
	}
	return ""
}
