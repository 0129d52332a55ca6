package actuator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hearsay-llm/hearsay/state"
)

// TestMain doubles as the engine: started again with a mode and a port, the test
// binary serves /health until it is told to stop.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "engine" {
		os.Exit(engine(os.Args[2], os.Args[3]))
	}
	goleak.VerifyTestMain(m)
}

func engine(mode, port string) int {
	if mode == "broken" {
		fmt.Println("no such model")
		return 3
	}
	if mode == "parent" { // of a worker that heeds no signal
		signal.Ignore(syscall.SIGTERM) // which it inherits
		if err := exec.Command("sleep", "600").Start(); err != nil {
			return 5
		}
	}
	if mode == "chatty" {
		go func() {
			for i := 0; ; i++ {
				fmt.Println("a line of no interest, number", i)
				<-time.After(time.Millisecond)
			}
		}()
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		for range term {
			if mode != "stubborn" {
				os.Exit(0)
			}
		}
	}()
	health := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if mode == "loading" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	if err := http.ListenAndServe("127.0.0.1:"+port, health); err != nil {
		fmt.Println(err)
	}
	return 4
}

var chat = state.TargetKey{Pool: "chat", Role: state.RoleBoth}

type machine struct {
	t   *testing.T
	dir string
}

func onMachine(t *testing.T) *machine {
	m := &machine{t, t.TempDir()}
	t.Cleanup(m.clean)
	return m
}

// clean kills what a test has left, and reports leaks of processes it should not
// have left.
func (m *machine) clean() {
	for _, r := range m.records() {
		if r.PID != 0 { // its workers may outlive it
			syscall.Kill(-r.PID, syscall.SIGKILL)
			for range 500 {
				reap(r.PID)
				if !r.alive() && len(workers(m.t, r.Marker)) == 0 {
					break
				}
				pause()
			}
		}
	}
}

func pause() { <-time.After(10 * time.Millisecond) }

func (m *machine) records() []*record {
	b, err := readBook(filepath.Join(m.dir, "processes.json"))
	if err != nil {
		m.t.Fatal(err)
	}
	return b.Processes
}

func (m *machine) actuator(mode string) *Process {
	m.t.Helper()
	p, err := NewProcess(ProcessConfig{Dir: m.dir, Host: "h1", Command: []string{os.Args[0], "engine", mode, "{port}"}})
	if err != nil {
		m.t.Fatal(err)
	}
	return p
}

func want(epoch, decision uint64, n int, remove ...state.ReplicaID) state.Desired {
	return state.Desired{
		Epoch: epoch, Decision: decision, ID: fmt.Sprint("d", decision), Target: chat, Want: n, Remove: remove,
		Pool: state.PoolSpec{Name: "chat", Model: "m"}, Grace: 300 * time.Millisecond,
	}
}

func (m *machine) ensure(p *Process, d state.Desired) state.Actual {
	m.t.Helper()
	a, err := p.Ensure(context.Background(), d)
	if err != nil {
		m.t.Fatal(err)
	}
	return a
}

// reach repeats a wish until the outcome is as wanted.
func (m *machine) reach(p *Process, d state.Desired, what string, ok func(state.Actual) bool) state.Actual {
	m.t.Helper()
	var a state.Actual
	for range 1500 {
		if a = m.ensure(p, d); ok(a) {
			return a
		}
		pause()
	}
	m.t.Fatalf("not reached: %s; there is %+v", what, a)
	return a
}

func ready(n int) func(state.Actual) bool {
	return func(a state.Actual) bool {
		if len(a.Instances) != n {
			return false
		}
		for _, i := range a.Instances {
			if !i.Ready || i.Stopping {
				return false
			}
		}
		return true
	}
}

func TestReplicasAreStartedOnceAndStoppedWhenNamed(t *testing.T) {
	m := onMachine(t)
	p := m.actuator("good")
	a := m.reach(p, want(5, 7, 2), "two ready", ready(2))
	pids := map[int]bool{}
	for _, r := range m.records() {
		pids[r.PID] = true
		if r.Epoch != 5 || r.Decision != "d7" || r.Started == "" {
			t.Errorf("record %+v", r)
		}
	}
	for range 5 {
		m.ensure(p, want(5, 7, 2))
	}
	for _, r := range m.records() {
		if !pids[r.PID] {
			t.Errorf("the same wish again started pid %d", r.PID)
		}
	}
	// Fewer wanted, none named: nobody is stopped.
	if a := m.ensure(p, want(5, 8, 1)); !ready(2)(a) {
		t.Errorf("stopped without being named: %+v", a)
	}
	victim := a.Instances[0].Replica
	if !strings.HasPrefix(string(victim.ID), a.Prefix) || victim.Pool != "chat" || victim.Source != state.SourceCommitted {
		t.Errorf("replica %+v", victim)
	}
	b := m.reach(p, want(5, 8, 1, victim.ID), "one left", ready(1))
	if b.Instances[0].Replica.ID == victim.ID {
		t.Error("the other one was stopped")
	}
	m.reach(p, want(5, 9, 0, b.Instances[0].Replica.ID), "none", ready(0))
	for pid := range pids {
		if started(pid) != "" {
			t.Errorf("pid %d still runs", pid)
		}
	}
}

func TestLeaderOfThePastIsRefused(t *testing.T) {
	m := onMachine(t)
	p := m.actuator("good")
	m.ensure(p, want(9, 20, 0))
	f := func(epoch, decision uint64, fenced bool) {
		t.Helper()
		before := len(m.records())
		_, err := p.Ensure(context.Background(), want(epoch, decision, before+1))
		if errors.Is(err, state.ErrFenced) != fenced {
			t.Errorf("epoch %d decision %d: %v", epoch, decision, err)
		}
		if (len(m.records()) != before) == fenced {
			t.Errorf("epoch %d decision %d: %d records after %d", epoch, decision, len(m.records()), before)
		}
	}
	f(8, 21, true)
	f(8, 20, true)
	f(9, 19, true)
	// Another router of the same machine, with no memory of its own.
	p = m.actuator("good")
	f(8, 30, true)
	f(9, 20, false)
	f(10, 21, false)
	f(9, 22, true)
}

func TestNewLeaderAdoptsWhatRuns(t *testing.T) {
	m := onMachine(t)
	m.reach(m.actuator("good"), want(1, 1, 2), "two ready", ready(2))
	before := m.records()
	// A second router on the machine takes over, in a later term.
	q := m.actuator("good")
	a, err := q.List(context.Background(), chat)
	if err != nil || !ready(2)(a) {
		t.Fatalf("%+v, %v", a, err)
	}
	m.ensure(q, want(2, 1, 2))
	for i, r := range m.records() {
		if r.PID != before[i].PID {
			t.Error("started again instead of adopted")
		}
	}
	var remove []state.ReplicaID
	for _, i := range a.Instances {
		remove = append(remove, i.Replica.ID)
	}
	m.reach(q, want(2, 2, 0, remove...), "none", ready(0))
}

func TestStartWhoseRecordWasLostIsFoundByItsMarker(t *testing.T) {
	m := onMachine(t)
	p := m.actuator("good")
	m.reach(p, want(1, 1, 1), "ready", ready(1))
	pid := m.records()[0].PID
	// As if the router had died between the start and its record.
	if err := p.locked(context.Background(), func(b *book) error {
		b.Processes[0].PID, b.Processes[0].Started = 0, ""
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	m.reach(p, want(2, 1, 1), "adopted", ready(1))
	if r := m.records()[0]; r.PID != pid {
		t.Errorf("pid %d instead of %d", r.PID, pid)
	}
}

func TestReusedPidIsNotOurs(t *testing.T) {
	m := onMachine(t)
	p := m.actuator("good")
	a := m.reach(p, want(1, 1, 1), "ready", ready(1))
	old := m.records()[0]
	// As if our process had ended and its pid now belonged to this test.
	if err := p.locked(context.Background(), func(b *book) error {
		b.Processes[0].PID = os.Getpid()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	b := m.ensure(p, want(1, 2, 0, a.Instances[0].Replica.ID)) // must not end the test
	if len(b.Instances) != 0 {
		t.Errorf("there is %+v", b)
	}
	if started(os.Getpid()) == "" {
		t.Error("unreachable")
	}
	syscall.Kill(-old.PID, syscall.SIGKILL)
	for old.alive() {
		reap(old.PID)
		pause()
	}
}

func TestParseStatSurvivesAnyName(t *testing.T) {
	rest := " S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 "
	f := func(line, want string) {
		t.Helper()
		if got, _ := parseStat([]byte(line)); got != want {
			t.Errorf("%q gives %q", line, got)
		}
	}
	f("7 (sh)"+rest+"4711 9 9", "4711")
	f("7 (a) Z (b)"+rest+"4711 9 9", "4711")
	f(strings.Replace("7 (sh)"+rest+"4711 9", " S ", " Z ", 1), "")
	f("7 (sh) S 1", "")
	f("", "")
	if started(os.Getpid()) == "" || started(1<<30) != "" {
		t.Error("own process not found, or one that can't be")
	}
}

func FuzzBook(f *testing.F) {
	f.Add([]byte(`{"v":1,"fence":{"epoch":3,"decisions":{"chat/both":4}},"processes":[{"id":"x","pid":77,"started":"1@b"}]}`))
	f.Add([]byte(`{"v":1,"processes":[null]}`))
	f.Add([]byte(`{"v":1,"processes":[{"id":"x","pid":1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := &book{}
		if b.decode(data) != nil {
			return
		}
		for _, r := range b.Processes {
			if r.PID == 1 || r.PID < 0 {
				t.Errorf("pid %s accepted", strconv.Itoa(r.PID))
			}
		}
	})
}
