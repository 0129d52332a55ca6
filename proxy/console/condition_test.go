package console

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

const tested = "127.0.0.1:8000"

// sensed gives the fake's replica a reading at now.
func (f *fake) sensed(now time.Time, change func(*state.Reading)) {
	r := state.UnknownReading(tested)
	r.Reader, r.OK, r.At = "r1", true, f.store.Clock().Stamp(now)
	change(&r)
	f.store.ApplyReading(r)
}

// What is said of a replica, in words and, for programs, as codes.
func TestReplicaInWords(t *testing.T) {
	now := time.Now()
	until := now.Add(7800 * time.Millisecond)
	f := func(name string, is state.Condition, reason, words string, reading func(*state.Reading), weight *state.Weight) {
		t.Helper()
		n := newFake()
		n.sensed(now, reading)
		if weight != nil {
			n.store.SetWeights(&state.Weights{At: now, Replicas: map[state.ReplicaID]state.Weight{tested: *weight}})
		}
		v := n.View()
		if c, code, text := condition(v, v.Pools[0], v.Replica(tested), now); c != is || code != reason || text != words {
			t.Errorf("%s: %s, reason %q, words %q", name, c, code, text)
		}
	}
	ok := func(*state.Reading) {}
	away := func(r *state.Reading) { r.OK, r.Refused, r.Err = false, true, "connection refused" }
	ejected := func(w state.Weight) *state.Weight {
		w.Ejected, w.Until, w.Slow = true, until, 1
		return &w
	}
	const unknown = "it answers like no known engine: if it has no metrics, set its pool's engine to openai"
	nonsense := func(r *state.Reading) { r.OK, r.Answered, r.Err = false, true, unknown }

	f("well", state.Ready, "", "", ok, nil)
	f("slow start", state.SlowStart, "", "new or recovered, at 40 % of its weight", ok, &state.Weight{Slow: 0.4})
	f("busy", state.Busy, "", "answered 429 or 503: others are preferred for 8s", ok, &state.Weight{Slow: 1, BusyUntil: until})
	f("away", state.Unreachable, "connection refused", "connection refused", away, nil)
	f("it answers nonsense", state.Unreadable, unknown, unknown, nonsense, nil)
	f("another model", state.WrongModel, `does not serve "m", it serves llama-3.1-8b`, `does not serve "m", it serves llama-3.1-8b`,
		func(r *state.Reading) { r.Models, r.WrongModel = []string{"llama-3.1-8b"}, "m" }, nil)
	f("another model, says another router", state.WrongModel, `does not serve "m"`, `does not serve "m"`,
		func(r *state.Reading) { r.WrongModel = "m" }, nil)
	f("failures", state.Ejected, "failures", "5 failures in a row, tried again in 8s", ok,
		ejected(state.Weight{Reason: state.ReasonFailures, Failures: 5}))
	f("failures of one that is away", state.Unreachable, "connection refused", "connection refused; ejected after 5 failures in a row", away,
		ejected(state.Weight{Reason: state.ReasonFailures, Failures: 5}))
	f("failures of one that can't be read", state.Ejected, "failures", "5 failures in a row, tried again in 8s; unreadable: "+unknown, nonsense,
		ejected(state.Weight{Reason: state.ReasonFailures, Failures: 5}))
	f("too many of the recent ones", state.Ejected, "failure_rate", "60 % of its recent requests failed, tried again in 8s", ok,
		ejected(state.Weight{Reason: state.ReasonFailureRate, FailedShare: 0.6}))
	f("others saw it", state.Ejected, "others_failures", "other routers saw it fail, tried again in 8s", ok,
		ejected(state.Weight{Reason: state.ReasonOthersFailures}))
	f("all saw it", state.Ejected, "others_failures", "this router and others saw it fail, tried again in 8s", ok,
		ejected(state.Weight{Reason: state.ReasonOthersFailures, Failures: 2}))
	f("the trial failed", state.Ejected, "trial_failed", "its trial request failed, tried again in 8s", ok,
		ejected(state.Weight{Reason: state.ReasonTrialFailed, Failures: 6}))
	trials := &state.Trials{}
	half := &state.Weight{Ejected: true, Trial: true, Trials: trials, Slow: 1, Reason: state.ReasonFailures, Failures: 5}
	f("on trial", state.HalfOpen, "failures", "its trial request is under way after 5 failures in a row", ok, half)
	trials.Grant(1)
	f("to be tried", state.HalfOpen, "failures", "waits for a trial request after 5 failures in a row; unreadable: "+unknown, nonsense, half)
	f("to be tried, and away", state.Unreachable, "connection refused", "connection refused; ejected after 5 failures in a row", away, half)
	f("failing alone", state.Failing, "ejection_limit", "fails too often (5 since its last success), and no more replicas of the pool may be ejected", ok,
		&state.Weight{Slow: 1, Reason: state.ReasonEjectionLimit, Failures: 5})
}

// status warns of a replica once, by the word that replicas shows, and counts it
// among the ready ones only where it takes requests.
func TestStatusWarnsOfAReplicaOnce(t *testing.T) {
	f := func(name, want string, ready int, change func(*state.Reading)) {
		t.Helper()
		n := newFake()
		url := start(t, n, "")
		n.sensed(time.Now(), change)
		var st Status
		if _, body := do(t, "GET", url+"/admin/v1/status", ""); json.Unmarshal([]byte(body), &st) != nil {
			t.Fatal(body)
		}
		about := slices.DeleteFunc(st.Warn, func(w string) bool { return !strings.Contains(w, tested) })
		if strings.Join(about, "|") != want || st.Pools[0].Ready != ready {
			t.Errorf("%s: %q, %d ready", name, about, st.Pools[0].Ready)
		}
	}
	f("well", "", 1, func(r *state.Reading) { r.Models = []string{"llama-3.1-8b", "m"} })
	f("another model", "replica "+tested+` is wrong_model: does not serve "m", it serves llama-3.1-8b`, 0, func(r *state.Reading) {
		r.Models, r.WrongModel = []string{"llama-3.1-8b"}, "m"
	})
	f("loading", "replica "+tested+" is loading: status 503", 0, func(r *state.Reading) { r.OK, r.Loading, r.Err = false, true, "status 503" })
}

// The served document lists the conditions that there are.
func TestOpenAPIListsConditions(t *testing.T) {
	var names []string
	for _, c := range state.Conditions() {
		names = append(names, string(c))
	}
	if list := strings.Join(names, " | "); !strings.Contains(string(openapi), `"description": "`+list+`"`) {
		t.Errorf("openapi.json does not say %q", list)
	}
}
