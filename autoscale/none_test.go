package autoscale

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// An actuator that lists none of several replicas is not believed at once: whom it asks
// may have just started, and know of nothing yet.
func TestAnEmptyListIsNotBelievedAtOnce(t *testing.T) {
	w := grown(t, 3)
	was := w.act.instances
	run := func(d time.Duration) {
		t.Helper()
		if err := w.run(d); err != nil && !strings.Contains(err.Error(), "lists none of 3 replicas") {
			t.Fatal(err)
		}
	}
	started := func() bool {
		return slices.ContainsFunc(w.log, func(s string) bool { return strings.HasPrefix(s, "start") })
	}
	for range 3 { // each time anew
		w.act.instances = nil
		run(noneBelieved - 2*time.Second)
		if len(w.facts.Replicas) != 3 || started() {
			t.Fatalf("%d replicas are left, %q", len(w.facts.Replicas), w.log)
		}
		w.act.instances = was
		run(2 * time.Second)
	}
	w.act.instances = nil
	run(noneBelieved + 2*time.Second)
	for id := range w.facts.Replicas {
		if slices.ContainsFunc(was, func(i *instance) bool { return i.Replica.ID == id }) {
			t.Errorf("%s is kept for ever", id)
		}
	}
	if !started() {
		t.Errorf("nothing takes their place: %q", w.log)
	}
}

// One of one may go at once.
func TestTheOnlyReplicaMayGo(t *testing.T) {
	w := grown(t, 1)
	w.act.instances = nil
	if err := w.run(2 * time.Second); err != nil {
		t.Fatal(err)
	}
	if _, there := w.facts.Replicas["fake:1"]; there {
		t.Error("it is kept")
	}
}
