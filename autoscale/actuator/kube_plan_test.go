package actuator

import (
	"fmt"
	"testing"

	"github.com/hearsay-llm/hearsay/state"
)

// A StatefulSet of thousands of Pods is looked through a few times for a plan, and not
// for each comparison.
func TestPlanOfALargeStatefulSetLooksAtEachPodAFewTimes(t *testing.T) {
	const n = 2000
	l := &look{}
	for i := range n {
		p := &pod{}
		p.Metadata.Name, p.Metadata.UID = fmt.Sprintf("engine-%d", i), fmt.Sprintf("uid-%d", i)
		p.Metadata.Owners = append(p.Metadata.Owners, struct {
			Kind       string `json:"kind"`
			UID        string `json:"uid"`
			Controller bool   `json:"controller"`
		}{"StatefulSet", "owner", true})
		l.pods = append(l.pods, p)
	}
	l.scale.Spec.Replicas = n
	d := &state.Desired{Want: n - 2, Remove: []state.ReplicaID{"uid-1999", "uid-1998"}}
	var s step
	allocs := testing.AllocsPerRun(1, func() { s = plan(l, d) })
	if s.replicas != n-2 || len(s.victims) != 2 || s.victims[0].Metadata.Name != "engine-1999" {
		t.Errorf("%d replicas, %d victims, held %q", s.replicas, len(s.victims), s.held)
	}
	if allocs > 100 { // the list of active Pods grows in a dozen steps
		t.Errorf("%.0f allocations", allocs)
	}
}
