package actuator

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/deploy/kube"
)

// keyCost is the annotation by which a ReplicaSet chooses among Pods that are ready:
// the least one goes first. Those without it have 0.
const keyCost = "controller.kubernetes.io/pod-deletion-cost"

// lowest is the cost of a Pod that is to go.
var lowest = strconv.Itoa(math.MinInt32)

// pod is what is read of a Pod.
type pod struct {
	Metadata kubeMeta `json:"metadata"`
	Spec     struct {
		Node string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		Phase      string          `json:"phase"`
		Conditions []kubeCondition `json:"conditions"`
		Containers []struct {
			State struct {
				Waiting *struct {
					Reason  string `json:"reason"`
					Message string `json:"message"`
				} `json:"waiting"`
			} `json:"state"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

// podState is how far a Pod has come. A ReplicaSet removes those of a lower one first
// (Kubernetes, pkg/controller, ActivePodsWithRanks), whatever their cost.
type podState int

const (
	unscheduled podState = 1 + iota
	pending
	unready
	fine
)

// unreadyFor is how long a Pod may fail its probe before it counts as one that would
// go first: probes of busy engines fail for moments.
const unreadyFor = 30 * time.Second

func (p *pod) state() podState {
	switch {
	case p.Spec.Node == "":
		return unscheduled
	case p.Status.Phase != "Running":
		return pending
	case !p.ready():
		return unready
	}
	return fine
}

func (p *pod) ready() bool {
	c := p.condition("Ready")
	return c != nil && c.Status == "True"
}

func (p *pod) condition(kind string) *kubeCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

// ending reports whether it was told to stop.
func (p *pod) ending() bool { return p.Metadata.Deletion != nil }

// over reports whether it has stopped, or is none: nobody counts it.
func (p *pod) over() bool {
	return p.Metadata.UID == "" || p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed"
}

// owner is the UID of what made it.
func (p *pod) owner() string {
	for _, o := range p.Metadata.Owners {
		if o.Controller {
			return o.UID
		}
	}
	return ""
}

// ordinal is its place in a StatefulSet: the highest goes first, whatever is asked.
func (p *pod) ordinal() (n int, ok bool) {
	for _, o := range p.Metadata.Owners {
		if o.Controller && o.Kind == "StatefulSet" {
			n, err := strconv.Atoi(p.Metadata.Name[strings.LastIndexByte(p.Metadata.Name, '-')+1:])
			return n, err == nil
		}
	}
	return 0, false
}

// problem is why it is not ready, for people.
func (p *pod) problem() string {
	name := "pod " + p.Metadata.Name + ": "
	if p.ready() {
		return ""
	}
	if c := p.condition("PodScheduled"); c != nil && c.Status == "False" {
		return name + kube.Clip(c.Reason+": "+c.Message)
	}
	for _, c := range p.Status.Containers {
		if w := c.State.Waiting; w != nil && w.Reason != "" {
			return name + kube.Clip(strings.TrimSuffix(w.Reason+": "+w.Message, ": "))
		}
	}
	return name + "not ready yet"
}

// priced reports whether it bears our cost.
func (p *pod) priced() bool { return p.Metadata.Annotations[keyCost] == lowest }

// top is the highest ordinal of Pods that do not end; 0 without any.
func (l *look) top() (top int) {
	for _, p := range l.pods {
		if n, ok := p.ordinal(); ok && !p.ending() {
			top = max(top, n)
		}
	}
	return top
}

// rank is a Pod's place in the order in which the controller removes them; top is the
// look's.
func (p *pod) rank(top int) int {
	if n, ok := p.ordinal(); ok {
		return 1 + max(top, n) - n
	}
	return int(p.state())
}

// turn is rank, but for Pods that are not ready for a moment.
func (p *pod) turn(top int, unreadySince time.Duration) int {
	if _, ok := p.ordinal(); !ok && p.state() == unready && unreadySince < unreadyFor {
		return int(fine)
	}
	return p.rank(top)
}
