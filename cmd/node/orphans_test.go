package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/autoscale/actuator"
	"github.com/hearsay-llm/hearsay/state"
)

// A pool that a reload takes out leaves its processes running: the log and status name
// them, until the pool is back or they have ended.
func TestProcessesOfAPoolThatIsGoneAreNamed(t *testing.T) {
	data := t.TempDir()
	command := []string{"sh", "-c", "exec sleep 600 # {port}"}
	chat := PoolConfig{Name: "chat", Model: "m"}
	code := PoolConfig{Name: "code", Model: "n", Scale: ScaleConfig{Max: 2, Actuator: "process", Command: command}}
	cfg := Defaults()
	cfg.Node.DataDir, cfg.Pools = data, []PoolConfig{chat, code}
	n := newOnFreePorts(t, cfg)
	defer n.Close()
	var log bytes.Buffer
	n.log = zerolog.New(&log)
	reload := func(pools ...PoolConfig) {
		t.Helper()
		n.deps.Load = func() (Config, error) {
			next := *n.now()
			next.Pools = pools
			next.Finish()
			return next, nil
		}
		if _, err := n.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	p, err := actuator.NewProcess(actuator.ProcessConfig{Dir: n.processDir(&code), Command: command, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.StopAll(context.Background(), 0) }()
	k := state.TargetKey{Pool: "code", Role: state.RoleBoth}
	if _, err := p.Ensure(t.Context(), state.Desired{Epoch: 1, Decision: 1, ID: "d1", Target: k, Want: 1}); err != nil {
		t.Fatal(err)
	}
	list, err := actuator.RunningIn(n.processDir(&code))
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	name := fmt.Sprintf("%s (pid %d, port %d)", list[0].ID, list[0].PID, list[0].Port)
	warned := func(want string) {
		t.Helper()
		if got := strings.Join(n.orphanWarnings(), "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	warned("")
	reload(chat)
	warned("pool code is not in the configuration any more, and what was started for it runs on, looked after by nobody: " + name)
	if !strings.Contains(strings.Join(n.warnings(), "\n"), name) {
		t.Error("status does not say so")
	}
	if said := log.String(); strings.Count(said, "its processes run on") != 1 || !strings.Contains(said, name) {
		t.Errorf("logged: %s", said)
	}
	reload(chat) // it is said once
	if strings.Count(log.String(), "its processes run on") != 1 {
		t.Errorf("logged: %s", log.String())
	}
	reload(chat, code)
	warned("")

	// Status reads the records now and then only; what a reload changes is seen at once.
	reload(chat)
	warned(name)
	away := filepath.Join(t.TempDir(), "away")
	if err := os.Rename(n.processDir(&code), away); err != nil {
		t.Fatal(err)
	}
	n.orphansTold.Load().at = time.Now().Add(time.Hour) // it is fresh for long
	warned(name)
	n.orphansTold.Load().at = time.Now().Add(-orphansFor)
	warned("")
	if err := os.Rename(away, n.processDir(&code)); err != nil {
		t.Fatal(err)
	}
	reload(chat, code)
	warned("")

	// After a restart without the pool, or with another actuator, the records tell.
	n.Close()
	code.Scale = ScaleConfig{Max: 2}
	cfg.Pools = []PoolConfig{chat, code}
	n = newOnFreePorts(t, cfg)
	defer n.Close()
	warned("pool code is not scaled by the process actuator any more")
	if err := p.StopAll(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	n.orphansTold.Store(nil)
	warned("")
}
