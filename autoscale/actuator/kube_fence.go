package actuator

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/hearsay-llm/hearsay/deploy/kube"
	"github.com/hearsay-llm/hearsay/state"
)

// keyFence is the annotation of an object that says who sized it last.
const keyFence = "hearsay/scale"

// kubeFence is the annotation's value. The object's resourceVersion ties it to the
// replicas: whoever writes them has seen the latest one.
type kubeFence struct {
	Cluster  string   `json:"cluster"`
	Pool     string   `json:"pool"`
	Role     string   `json:"role"`
	Epoch    uint64   `json:"epoch"`
	Decision uint64   `json:"decision"`
	ID       string   `json:"id"`
	From     int      `json:"from"` // replicas before the last step, and after it
	To       int      `json:"to"`
	Victims  []string `json:"victims,omitempty"` // UIDs of the Pods that the last step was to remove
}

// readFence reads an object's annotation. An object without one has the zero fence.
func readFence(o *kubeObject) (f kubeFence, err error) {
	s := o.Metadata.Annotations[keyFence]
	if s == "" {
		return f, nil
	}
	if err := json.Unmarshal([]byte(s), &f); err != nil || f.Cluster == "" || f.Decision == 0 {
		return f, fmt.Errorf("its annotation %s is not understood (%s): take it away", keyFence, kube.Clip(s))
	}
	return f, nil
}

// admits says why d must not be carried out on an object with fence f, or nil.
func (f *kubeFence) admits(d *state.Desired) error {
	switch {
	case f.Cluster == "":
		return nil
	case f.Cluster != d.Cluster:
		return fmt.Errorf("routers of another cluster (%s) scale it; to hand it over take away its annotation %s: %w", kube.Clip(f.Cluster), keyFence, state.ErrNotOurs)
	case f.Pool != d.Target.Pool || f.Role != string(d.Target.Role):
		return fmt.Errorf("it is of pool %s, role %s; to hand it over take away its annotation %s: %w", kube.Clip(f.Pool), kube.Clip(f.Role), keyFence, state.ErrNotOurs)
	case f.Epoch > d.Epoch || f.Decision > d.Decision:
		return fmt.Errorf("epoch %d, decision %d, and its annotation %s has %d, %d: %w", d.Epoch, d.Decision, keyFence, f.Epoch, f.Decision, state.ErrFenced)
	}
	return nil
}

// next is the fence to write with a step.
func (f kubeFence) next(d *state.Desired, now int, s *step) kubeFence {
	f.Cluster, f.Pool, f.Role = d.Cluster, d.Target.Pool, string(d.Target.Role)
	f.Epoch, f.Decision, f.ID = d.Epoch, d.Decision, d.ID
	switch {
	case s.replicas != now:
		f.From, f.To, f.Victims = now, s.replicas, nil
		for _, p := range s.victims {
			f.Victims = append(f.Victims, p.Metadata.UID)
		}
	case f.To != now:
		f.From, f.To, f.Victims = now, now, nil
	}
	return f
}

func (f *kubeFence) equal(g *kubeFence) bool {
	x, y := *f, *g
	x.Victims, y.Victims = nil, nil
	return fmt.Sprint(x) == fmt.Sprint(y) && slices.Equal(f.Victims, g.Victims)
}

func (f *kubeFence) String() string {
	b, err := json.Marshal(f)
	if err != nil {
		return "" // of strings and numbers it can't fail
	}
	return string(b)
}

// wronged reports whether the last step was taken, and not by those that it was to
// remove.
func (f *kubeFence) wronged(l *look) bool {
	return len(f.Victims) > 0 && len(l.active()) <= f.To && f.alive(l) != ""
}

// alive names the Pods that were to go and have not.
func (f *kubeFence) alive(l *look) string {
	var names []string
	for _, p := range l.active() {
		if slices.Contains(f.Victims, p.Metadata.UID) {
			names = append(names, p.Metadata.Name)
		}
	}
	return strings.Join(names, ", ")
}
