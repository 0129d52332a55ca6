package actuator

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// workers lists the processes that a start has left running, the engine's own included.
func workers(t *testing.T, marker string) []int {
	t.Helper()
	if marker == "" {
		return nil
	}
	pids, err := marked(marker)
	if err != nil {
		t.Skip(err)
	}
	return pids
}

// An engine that dies leaves its workers, which hold what the next one needs.
func TestWorkersOfADeadEngineAreKilled(t *testing.T) {
	m := onMachine(t)
	p := m.actuator("parent")
	m.reach(p, want(1, 1, 1), "ready", ready(1))
	r := m.records()[0]
	if n := len(workers(t, r.Marker)); n != 2 {
		t.Fatalf("%d processes of the engine", n)
	}
	syscall.Kill(r.PID, syscall.SIGKILL)
	m.reach(p, want(1, 1, 1), "seen dead", func(state.Actual) bool { return m.records()[0].PID != r.PID })
	for range 500 {
		if len(workers(t, r.Marker)) == 0 {
			break
		}
		pause()
	}
	if left := workers(t, r.Marker); len(left) > 0 {
		t.Errorf("%v run on", left)
		syscall.Kill(-r.PID, syscall.SIGKILL)
	}
	m.reach(p, want(1, 1, 1), "ready again", ready(1))
}

// An engine that was asked to end is gone when its workers are; they have its time.
func TestWorkersHaveTheTimeToEnd(t *testing.T) {
	m := onMachine(t)
	p := m.actuator("parent")
	a := m.reach(p, want(1, 1, 1), "ready", ready(1))
	r := m.records()[0]
	stop := want(1, 2, 0, a.Instances[0].Replica.ID)
	stop.Grace = time.Hour
	m.reach(p, stop, "the engine has ended", func(a state.Actual) bool { return !r.alive() })
	if n := len(workers(t, r.Marker)); n != 1 {
		t.Errorf("%d workers have an hour to end", n)
	}
	m.change(p, func(r *record) { r.StopAt = time.Now() })
	m.reach(p, stop, "gone", ready(0))
	for range 500 {
		if len(workers(t, r.Marker)) == 0 {
			return
		}
		pause()
	}
	t.Errorf("%v run on", workers(t, r.Marker))
	syscall.Kill(-r.PID, syscall.SIGKILL)
}

// Two routers of one host, each with a directory of its own, take neither's replicas for
// their own that are gone.
func TestAnotherDirectorysReplicasAreForeign(t *testing.T) {
	here, there := onMachine(t), onMachine(t)
	a := here.reach(here.actuator("good"), want(1, 1, 1), "ready", ready(1))
	b := there.ensure(there.actuator("good"), want(2, 2, 0))
	if strings.HasPrefix(string(a.Instances[0].Replica.ID), b.Prefix) {
		t.Errorf("%s begins with %s, of another directory", a.Instances[0].Replica.ID, b.Prefix)
	}
	again := here.ensure(here.actuator("good"), want(2, 2, 1))
	if again.Prefix != a.Prefix || !strings.HasPrefix(string(again.Instances[0].Replica.ID), again.Prefix) {
		t.Errorf("%s of %s, then %s of %s", a.Instances[0].Replica.ID, a.Prefix, again.Instances[0].Replica.ID, again.Prefix)
	}
}

// Records that know no place keep the ids that they gave out.
func TestOlderRecordsKeepTheirIDs(t *testing.T) {
	m := onMachine(t)
	b := &book{path: filepath.Join(m.dir, "processes.json")}
	b.Processes = []*record{{ID: "process:h1:chat-both-a", Pool: "chat", Role: state.RoleBoth}}
	if err := b.write(); err != nil {
		t.Fatal(err)
	}
	a, err := m.actuator("good").List(t.Context(), chat)
	if err != nil || a.Prefix != "process:h1:" || len(a.Instances) != 1 {
		t.Errorf("%+v, %v", a, err)
	}
}
