package actuator

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

func TestDeadReplicaIsStartedAgainAtItsAddress(t *testing.T) {
	m := onMachine(t)
	p := m.actuator("good")
	a := m.reach(p, want(1, 1, 1), "ready", ready(1))
	r := m.records()[0]
	syscall.Kill(-r.PID, syscall.SIGKILL)
	m.reach(p, want(1, 1, 1), "seen dead", func(a state.Actual) bool {
		return !a.Instances[0].Ready && strings.Contains(a.Instances[0].Problem, "ended 1 times")
	})
	b := m.reach(p, want(1, 1, 1), "ready again", ready(1))
	if b.Instances[0].Replica != a.Instances[0].Replica {
		t.Errorf("%+v became %+v", a.Instances[0].Replica, b.Instances[0].Replica)
	}
	if n := m.records()[0]; n.PID == r.PID || n.StartedAt.Sub(r.StartedAt) < firstBackOff {
		t.Errorf("back-off of %v, pid %d after %d", n.StartedAt.Sub(r.StartedAt), n.PID, r.PID)
	}
}

func TestBrokenEngineIsRetriedWithBackOffAndLogged(t *testing.T) {
	m := onMachine(t)
	p := m.actuator("broken")
	a := m.reach(p, want(1, 1, 1), "two ends", func(a state.Actual) bool {
		return strings.Contains(a.Instances[0].Problem, `ended 2 times, last said "no such model"`)
	})
	r := m.records()[0]
	if wait := time.Until(r.NotBefore); wait < firstBackOff || wait > 2*firstBackOff {
		t.Errorf("the next start is in %v", wait)
	}
	log, err := os.ReadFile(p.logFile(r))
	if err != nil || strings.Count(string(log), "no such model") != 2 {
		t.Errorf("log %q, %v", log, err)
	}
	m.reach(p, want(1, 2, 0, a.Instances[0].Replica.ID), "gone", ready(0))
}

// What can't be started at all says with what command, and why.
func TestCommandThatCanNotBeStartedSaysWhy(t *testing.T) {
	f := func(program string, parts ...string) {
		t.Helper()
		m := onMachine(t)
		p, err := NewProcess(ProcessConfig{Dir: m.dir, Host: "h1", Command: []string{program, "--port", "{port}"}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Ensure(t.Context(), want(1, 1, 1))
		a, lerr := p.List(t.Context(), chat)
		if err == nil || lerr != nil || len(a.Instances) != 1 {
			t.Fatalf("%v, %v, %+v", err, lerr, a)
		}
		for _, said := range []string{err.Error(), a.Instances[0].Problem} {
			for _, part := range append(parts, "start engine: "+program+" --port ") {
				if !strings.Contains(said, part) {
					t.Errorf("%q is not in %s", part, said)
				}
			}
			if strings.Contains(said, "{port}") || strings.Contains(said, "fork/exec") {
				t.Errorf("not the command as it was started: %s", said)
			}
		}
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	f("bin/no-such-engine", "no such file or directory", "(from "+here+")")
	f("/no/such/engine", "no such file or directory")
	f("no-such-engine-in-the-path", "not found in $PATH")
}

func TestLoadingEngineIsNotReady(t *testing.T) {
	m := onMachine(t)
	p := m.actuator("loading")
	for range 30 {
		if a := m.ensure(p, want(1, 1, 1)); ready(1)(a) {
			t.Fatal("ready while loading")
		}
		pause()
	}
	if len(m.records()) != 1 {
		t.Error("another was started meanwhile")
	}
}

func TestStubbornEngineIsKilledAfterTheGrace(t *testing.T) {
	m := onMachine(t)
	p := m.actuator("stubborn")
	a := m.reach(p, want(1, 1, 1), "ready", ready(1))
	pid := m.records()[0].PID
	id := a.Instances[0].Replica.ID
	t0 := time.Now()
	b := m.ensure(p, want(1, 2, 0, id))
	if len(b.Instances) != 1 || !b.Instances[0].Stopping {
		t.Fatalf("%+v", b)
	}
	m.reach(p, want(1, 2, 0, id), "gone", ready(0))
	if d := time.Since(t0); d < 300*time.Millisecond {
		t.Errorf("killed after %v", d)
	}
	if started(pid) != "" {
		t.Error("it still runs")
	}
}

func TestTwoRoutersOfOneMachineDoNotStartTwice(t *testing.T) {
	m := onMachine(t)
	var wg sync.WaitGroup
	for range 4 {
		p := m.actuator("good")
		wg.Go(func() {
			for range 10 {
				if _, err := p.Ensure(context.Background(), want(1, 1, 3)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(m.records()); n != 3 {
		t.Errorf("%d processes", n)
	}
}

func TestHeldLockIsWaitedForWithinTheContext(t *testing.T) {
	m := onMachine(t)
	p := m.actuator("good")
	err := p.locked(context.Background(), func(*book) error {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err := m.actuator("good").List(ctx, chat)
		return err
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
