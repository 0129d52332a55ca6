package console

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// A replica that the actuator runs has an id of its own: it is found by its URL or
// address too, can be drained, and is not removed while it would come back.
func TestReplicaOfTheAutoscaler(t *testing.T) {
	const id = "process:host:chat-both-a1"
	f := newFake()
	facts := state.NewFacts()
	facts.Index, facts.Replicas[id] = 9, state.Replica{ID: id, Pool: "chat", URL: "http://127.0.0.1:35619"}
	f.store.SetFacts(facts)
	url := start(t, f, "")
	for _, given := range []string{id, "127.0.0.1:35619", "http:%2F%2F127.0.0.1:35619", "http:%2F%2F127.0.0.1:35619%2F"} {
		for _, verb := range []string{"drain", "undrain"} {
			if status, out := do(t, "POST", url+"/admin/v1/replicas/"+given+"/"+verb, ""); status != 200 || f.commits[len(f.commits)-1].Of != id {
				t.Errorf("%s %s: status %d: %s", verb, given, status, out)
			}
		}
	}
	n := len(f.commits)
	now := time.Now()
	clock := state.NewClock(1, now)
	answers := func(ok bool) {
		now = now.Add(time.Second)
		f.store.ApplyReading(state.Reading{Replica: id, OK: ok, Refused: !ok, Reader: "r1", At: clock.Stamp(now)})
	}
	answers(true)
	status, out := do(t, "DELETE", url+"/admin/v1/replicas/127.0.0.1:35619", "")
	if status != 409 || !strings.Contains(out, "use drain, or scale chat --to N") || len(f.commits) != n {
		t.Errorf("removing it: status %d: %s", status, out)
	}
	status, out = do(t, "POST", url+"/admin/v1/replicas", `{"url":"http://127.0.0.1:35619"}`)
	if status != 200 || !strings.Contains(out, "as "+id+": nothing changed") || len(f.commits) != n {
		t.Errorf("adding it: status %d: %s", status, out)
	}
	answers(false) // its host may be gone for good
	if status, out := do(t, "DELETE", url+"/admin/v1/replicas/"+id, ""); status != 200 || len(f.commits) != n+1 {
		t.Errorf("removing it when it is unreachable: status %d: %s", status, out)
	}
}

// What stands in the file is not added beside it: it could not be removed again.
func TestReplicaOfTheFileIsNotAdded(t *testing.T) {
	f := newFake()
	f.store.SetPools([]state.PoolSpec{{Name: "chat", Model: "m"}, {Name: "other", Model: "n"}})
	url := start(t, f, "")
	status, out := do(t, "POST", url+"/admin/v1/replicas", `{"pool":"chat","url":"http://127.0.0.1:8000/"}`)
	if status != 200 || !strings.Contains(out, "is in the configuration already: nothing changed") {
		t.Errorf("status %d: %s", status, out)
	}
	status, out = do(t, "POST", url+"/admin/v1/replicas", `{"pool":"other","url":"http://127.0.0.1:8000/"}`)
	if status != 409 || !strings.Contains(out, "in pool chat") {
		t.Errorf("in another pool: status %d: %s", status, out)
	}
	if len(f.commits) != 0 {
		t.Errorf("committed: %+v", f.commits)
	}
}

// A write that this router has not seen itself yet says so.
func TestWriteThatIsNotSeenHereYet(t *testing.T) {
	f := newFake()
	url := start(t, f, "")
	if _, body := do(t, "PUT", url+"/admin/v1/pools/chat/target", `{"to":2}`); strings.Contains(body, "behind") {
		t.Errorf("seen: %s", body)
	}
	f.behind = true
	for _, c := range [][]string{{"PUT", "/pools/chat/target", `{"to":2}`}, {"POST", "/replicas/127.0.0.1:8000/drain", ""}} {
		if _, body := do(t, c[0], url+"/admin/v1"+c[1], c[2]); !strings.Contains(body, `"behind": true`) {
			t.Errorf("%s: %s", c[1], body)
		}
	}
}

func TestFailedWritesSayWhatToDo(t *testing.T) {
	f := newFake()
	url := start(t, f, "")
	try := func(err error, want int, code string) {
		t.Helper()
		f.err = err
		status, body := do(t, "PUT", url+"/admin/v1/pools/chat/target", `{"to":2}`)
		if status != want || !strings.Contains(body, code) {
			t.Errorf("%v: status %d, body %s", err, status, body)
		}
	}
	try(ErrNoLeader, 503, "no_leader")
	try(ErrUnknownOutcome, 504, "outcome_unknown")
	try(&state.Refusal{Code: state.RefusedOverlap, Reason: "still running"}, 409, "still running")
	try(&state.Refusal{Code: state.RefusedUnknown, Reason: "no such"}, 404, "no such")
	try(errors.New("disk"), 500, "internal")

	f.err = ErrNoLeader
	status, body := do(t, "POST", url+"/admin/v1/replicas/127.0.0.1:8000/drain", "")
	if status != 202 || !f.drained["127.0.0.1:8000"] || !strings.Contains(body, `"no leader: 127.0.0.1:8000 is draining on this router alone: repeat it`) {
		t.Errorf("a drain without a leader: status %d, %s", status, body)
	}
	f.store.SetDrain("127.0.0.1:8000", true, "why")
	status, body = do(t, "POST", url+"/admin/v1/replicas/127.0.0.1:8000/undrain", "")
	if status != 202 || f.drained["127.0.0.1:8000"] || !strings.Contains(body, "127.0.0.1:8000 takes work again on this router alone") {
		t.Errorf("an undrain without a leader: status %d, %s", status, body)
	}
	f.store.SetDrain("127.0.0.1:8000", false, "")
	status, body = do(t, "POST", url+"/admin/v1/replicas/127.0.0.1:8000/undrain", "")
	if status != 202 || !strings.Contains(body, "127.0.0.1:8000 is not draining here, nothing changed: repeat it on the others") {
		t.Errorf("an undrain of nothing without a leader: status %d, %s", status, body)
	}
	facts := state.NewFacts()
	facts.Index, facts.Draining["127.0.0.1:8000"] = 1, state.Drain{Reason: "why"}
	f.store.SetFacts(facts)
	status, body = do(t, "POST", url+"/admin/v1/replicas/127.0.0.1:8000/undrain", "")
	if status != 503 || !strings.Contains(body, "127.0.0.1:8000 stays drained") {
		t.Errorf("an undrain of what is committed without a leader: status %d, %s", status, body)
	}
	f.drained["127.0.0.1:8000"] = false
	status, body = do(t, "POST", url+"/admin/v1/replicas/127.0.0.1:8000/drain", "")
	if status != 200 || f.drained["127.0.0.1:8000"] || !strings.Contains(body, "is draining on all routers already: nothing changed") {
		t.Errorf("a drain of what is committed without a leader: status %d, %s", status, body)
	}
}

// A target that nobody acts on says so.
func TestTargetOfADryRun(t *testing.T) {
	f := newFake()
	f.store.SetPools([]state.PoolSpec{{Name: "chat", Model: "m", ScaleMax: 4, ScaleActuator: "dry_run"}})
	url := start(t, f, "")
	status, out := do(t, "PUT", url+"/admin/v1/pools/chat/target", `{"to":3}`)
	if status != 200 || !strings.Contains(out, "nothing is started or stopped") || len(f.commits) != 1 {
		t.Errorf("status %d, %d commits: %s", status, len(f.commits), out)
	}
}

// What is so already is said, not committed: it would be a decision of its own.
func TestWhatIsSoAlreadyIsNotCommitted(t *testing.T) {
	const id = "127.0.0.1:8000"
	k := state.TargetKey{Pool: "chat", Role: state.RoleBoth}
	f := newFake()
	url := start(t, f, "")
	index := uint64(0)
	edit := func(set func(*state.Facts)) {
		facts := f.store.View().Facts.Clone()
		index++
		facts.Index = index
		set(facts)
		f.store.SetFacts(facts)
	}
	call := func(method, path, body, want string) {
		t.Helper()
		before := len(f.commits)
		status, out := do(t, method, url+"/admin/v1/"+path, body)
		committed := len(f.commits) > before
		if status != http.StatusOK || committed != (want == "") || !strings.Contains(out, want) {
			t.Errorf("%s %s: status %d, committed %v, want %q: %s", path, body, status, committed, want, out)
		}
	}
	call("PUT", "pools/chat/target", `{"release":true}`, "no operator holds the target of pool chat: nothing changed")
	call("PUT", "pools/chat/target", `{"to":3}`, "")
	edit(func(x *state.Facts) { x.Targets[k] = 3 })
	call("PUT", "pools/chat/target", `{"to":3}`, "") // the autoscaler's so far
	edit(func(x *state.Facts) { x.Holds[k] = true })
	call("PUT", "pools/chat/target", `{"to":3}`, "pool chat: target 3, held already: nothing changed")
	call("PUT", "pools/chat/target", `{"to":2}`, "")
	edit(func(x *state.Facts) {
		x.Decisions = []state.Decision{{Pool: "chat", Role: state.RoleBoth, To: 3, Outcome: state.OutcomeFailed}}
	})
	call("PUT", "pools/chat/target", `{"to":3}`, "") // another try
	call("PUT", "pools/chat/target", `{"release":true}`, "")

	call("POST", "replicas/"+id+"/drain", `{"reason":"why"}`, "")
	edit(func(x *state.Facts) { x.Draining[id] = state.Drain{Reason: "why", By: state.ByOperator} })
	f.drained[id] = true
	call("POST", "replicas/"+id+"/drain", `{"reason":"why"}`, id+" is draining on all routers already: nothing changed")
	call("POST", "replicas/"+id+"/drain", "", "already: nothing changed")
	if f.drained[id] {
		t.Error("the committed word does not stand for the local one")
	}
	call("POST", "replicas/"+id+"/drain", `{"reason":"another"}`, "")
	edit(func(x *state.Facts) { x.Draining[id] = state.Drain{Reason: "scale down", By: "d1"} })
	call("POST", "replicas/"+id+"/drain", "", "") // from now on an operator's
}
