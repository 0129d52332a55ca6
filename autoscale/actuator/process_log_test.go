package actuator

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

// lastNumber is the number on the last whole line of a chatty engine's log.
func lastNumber(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		return -1
	}
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	f := strings.Fields(string(b))
	if len(f) == 0 {
		return -1
	}
	n, err := strconv.Atoi(f[len(f)-1])
	if err != nil {
		t.Fatalf("%s ends with %q", path, f[len(f)-1])
	}
	return n
}

// An engine that writes without end has two files of bounded size, and goes on writing
// into the first.
func TestLogOfARunningProcessIsBounded(t *testing.T) {
	m := onMachine(t)
	p := m.actuator("chatty")
	p.maxLog = 8 << 10
	m.reach(p, want(1, 1, 1), "ready", ready(1))
	r := m.records()[0]
	path := p.logFile(r)
	cuts, before := 0, -1
	for range 3000 {
		s, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		m.ensure(p, want(1, 1, 1))
		if s.Size() > p.maxLog {
			cuts++
			if aside, err := os.Stat(path + ".1"); err != nil || aside.Size() != p.maxLog {
				t.Fatalf("set aside: %v, %v", aside, err)
			}
			before = max(before, lastNumber(t, path+".1"))
			if left, err := os.Stat(path); err != nil || left.Size() >= s.Size() {
				t.Fatalf("of %d bytes there are %v, %v", s.Size(), left.Size(), err)
			}
		}
		if cuts >= 3 && lastNumber(t, path) > before {
			return
		}
		pause()
	}
	t.Fatalf("the log was set aside %d times, the last line before was %d, it is %d now", cuts, before, lastNumber(t, path))
}

// change edits the only record, as time would.
func (m *machine) change(p *Process, f func(r *record)) {
	m.t.Helper()
	if err := p.locked(m.t.Context(), func(b *book) error {
		f(b.Processes[0])
		return nil
	}); err != nil {
		m.t.Fatal(err)
	}
}

// An engine that ends again and again is called that, also while it is tried once more.
func TestCrashLoopIsSaidAlsoWhileItStarts(t *testing.T) {
	m := onMachine(t)
	p := m.actuator("loading")
	a := m.ensure(p, want(1, 1, 1))
	if got := a.Instances[0].Problem; got != "not ready yet" {
		t.Errorf("at first: %q", got)
	}
	m.change(p, func(r *record) { r.Ends = crashLoop })
	if got := m.ensure(p, want(1, 1, 1)).Instances[0].Problem; !strings.Contains(got, "ended 3 times") {
		t.Errorf("in a loop: %q", got)
	}
}

// Ends are forgotten after a minute of service, not after a minute of loading.
func TestEndsAreForgottenAfterService(t *testing.T) {
	m := onMachine(t)
	p := m.actuator("loading")
	m.ensure(p, want(1, 1, 1))
	m.change(p, func(r *record) { r.Ends, r.StartedAt = 2, time.Now().Add(-time.Hour) })
	syscall.Kill(-m.records()[0].PID, syscall.SIGKILL)
	m.reach(p, want(1, 1, 1), "seen dead", func(state.Actual) bool { return m.records()[0].Ends == 3 })
	if wait := time.Until(m.records()[0].NotBefore); wait < 2*time.Second || wait > 4*time.Second {
		t.Errorf("the next start is in %v", wait)
	}

	m = onMachine(t)
	p = m.actuator("good")
	m.reach(p, want(1, 1, 1), "ready", ready(1))
	m.change(p, func(r *record) { r.Ends = 2 })
	if m.ensure(p, want(1, 1, 1)); m.records()[0].Ends != 2 {
		t.Error("forgotten at once")
	}
	m.change(p, func(r *record) { r.ReadyAt = time.Now().Add(-soundAfter) })
	if m.ensure(p, want(1, 1, 1)); m.records()[0].Ends != 0 {
		t.Error("not forgotten after a minute")
	}
}

// The log of a crash loop says which file holds the rest of what the engine wrote.
func TestCrashLoopSaysWhereItsLogIs(t *testing.T) {
	m := onMachine(t)
	p := m.actuator("broken")
	var b bytes.Buffer
	p.log = zerolog.New(&b)
	r := &record{ID: p.prefix(&book{}) + "1", Ends: crashLoop - 2}
	p.noteEnd(r, time.Now())
	if strings.Contains(b.String(), p.logFile(r)) {
		t.Errorf("before it is a loop: %s", &b)
	}
	p.noteEnd(r, time.Now())
	if !strings.Contains(b.String(), `"file":"`+p.logFile(r)+`"`) {
		t.Errorf("%s", &b)
	}
}
