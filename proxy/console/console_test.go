package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a node with one pool and one replica.
type fake struct {
	store   *state.Store
	commits []state.Command
	err     error
	drained map[state.ReplicaID]bool
	level   string
	behind  bool
	members []Member
	voters  []string

	partings []prefix.Parting
	queue    Queue
	refused  map[string]int64

	refusals   []Refusal
	leaderless bool
}

func newFake() *fake {
	s := state.NewStore(state.Config{
		Self: "r1", Clock: state.NewClock(1, time.Now()),
		Pools: []state.PoolSpec{{Name: "chat", Model: "m", Aliases: []string{"default"}, ScaleMax: 4}},
	})
	s.SetReplicas(state.SourceStatic, "chat", []state.Replica{{ID: "127.0.0.1:8000", URL: "http://127.0.0.1:8000", Role: state.RoleBoth}})
	return &fake{store: s, drained: map[state.ReplicaID]bool{}}
}

func (f *fake) View() *state.View { return f.store.View() }
func (f *fake) Info() Info {
	voters := []string{"r1"}
	if f.voters != nil {
		voters = f.voters
	}
	info := Info{ID: "r1", Name: "one", Raft: Raft{ClusterID: "c", Leader: "r1", Voters: voters}, Uptime: time.Minute}
	if f.leaderless {
		info.Raft.Leader = ""
	}
	return info
}
func (f *fake) Ready() (bool, []string) { return true, nil }
func (f *fake) Members() []Member {
	if f.members != nil {
		return f.members
	}
	return []Member{{ID: "r1", Name: "one", State: "alive", Self: true}, {ID: "r2", Name: "two", State: "dead", Degraded: "no stream"}}
}
func (f *fake) Figures() Figures    { return Figures{Ratio: 0.9} }
func (f *fake) Refusals() []Refusal { return f.refusals }

func (f *fake) Hindrance(k state.TargetKey) string {
	if k.Pool == "chat" {
		return "start engine: nope: not found"
	}
	return ""
}
func (f *fake) Sketch(state.ReplicaID) Sketch { return Sketch{Entries: 7} }
func (f *fake) Speed(state.ReplicaID) Speed   { return Speed{Samples: 9} }
func (f *fake) Queue(*state.View, *state.PoolView) Queue {
	return f.queue
}
func (f *fake) Refused() map[string]int64        { return f.refused }
func (f *fake) Partings(string) []prefix.Parting { return f.partings }
func (f *fake) Config() any                      { return map[string]string{"node": "one"} }

func (f *fake) Commit(_ context.Context, c state.Command) (uint64, bool, error) {
	if f.err != nil {
		return 0, false, f.err
	}
	f.commits = append(f.commits, c)
	return uint64(len(f.commits)), f.behind, nil
}

func (f *fake) Explain(_ context.Context, _, path string, body []byte) (any, error) {
	if !json.Valid(body) {
		return nil, errors.New("the body is not JSON")
	}
	return map[string]string{"path": path}, nil
}

func (f *fake) Past(id string) (any, bool) {
	if id != "known" {
		return nil, false
	}
	return map[string]string{"id": id}, true
}

func (f *fake) Drain(id state.ReplicaID, on bool, _ string) { f.drained[id] = on }
func (f *fake) Flush(state.ReplicaID)                       {}
func (f *fake) LogLevel(l string) error                     { f.level = l; return nil }
func (f *fake) Replica(pool, url string) (state.Replica, error) {
	if !strings.HasPrefix(url, "http://") || pool == "" {
		return state.Replica{}, errors.New("not a URL such as http://10.0.0.1:8000")
	}
	host := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/")
	return state.Replica{ID: state.ReplicaID(host), Pool: pool, URL: "http://" + host}, nil
}

// start serves f until the test ends and returns the base URL.
func start(t *testing.T, f *fake, token string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Listener: ln, Token: token, Metrics: http.NotFoundHandler(), Log: zerolog.Nop()}, f, f, f, f)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String()
}

func do(t *testing.T, method, url, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b.String()
}

func TestReads(t *testing.T) {
	url := start(t, newFake(), "")
	f := func(path string, want ...string) {
		t.Helper()
		code, body := do(t, "GET", url+path, "")
		if code != 200 {
			t.Errorf("%s: status %d: %s", path, code, body)
		}
		for _, w := range want {
			if !strings.Contains(body, w) {
				t.Errorf("%s lacks %s:\n%s", path, w, body)
			}
		}
	}
	f("/livez", "ok")
	f("/readyz", "ready")
	f("/admin/v1/status", `"alive": 1`, "router two: no stream", `"target": 0`, `"leader_name": "one"`, `"reported_over_predicted": 0.9`)
	f("/admin/v1/members", `"id": "r2"`)
	f("/admin/v1/replicas", `"id": "127.0.0.1:8000"`, `"entries": 7`, `"state": "unread"`, `"kv_usage": -1`)
	f("/readyz?verbose", `"ready": true`, `"name": "chat"`)
	f("/admin/v1/pools", `"max": 4`)
	f("/admin/v1/models", `"default"`, `"alias": true`)
	f("/admin/v1/decisions", "[]")
	f("/admin/v1/config", `"node": "one"`)
}

func TestTokenAndOrigin(t *testing.T) {
	url := start(t, newFake(), "secret")
	f := func(path string, want int, header ...string) {
		t.Helper()
		if code, body := do(t, "GET", url+path, "", header...); code != want {
			t.Errorf("%s %v: status %d, want %d: %s", path, header, code, want, body)
		}
	}
	f("/admin/v1/status", 401)
	f("/admin/v1/status", 401, "Authorization", "Bearer wrong")
	f("/admin/v1/status", 200, "Authorization", "Bearer secret")
	f("/debug/pprof/", 401)
	f("/livez", 200)
	f("/admin/v1/status", 403, "Authorization", "Bearer secret", "Origin", "http://evil.example")
	f("/nowhere", 404)
}

func TestWrites(t *testing.T) {
	f := newFake()
	url := start(t, f, "")
	call := func(method, path, body string, want int) string {
		t.Helper()
		code, out := do(t, method, url+path, body, "Idempotency-Key", "k1")
		if code != want {
			t.Errorf("%s %s %s: status %d, want %d: %s", method, path, body, code, want, out)
		}
		return out
	}
	last := func() state.Command { return f.commits[len(f.commits)-1] }

	call("PUT", "/admin/v1/pools/chat/target", `{"to":3}`, 200)
	if d := last().Decision; d == nil || d.From != 1 || d.To != 3 || !last().Hold {
		t.Errorf("target: %+v", last())
	}
	if last().ID != "set_target:k1" {
		t.Errorf("the idempotency key is not in the command id: %s", last().ID)
	}
	call("PUT", "/admin/v1/pools/chat/target", `{}`, 400)
	call("PUT", "/admin/v1/pools/chat/target", `{"to":-1}`, 400)
	call("PUT", "/admin/v1/pools/chat/target", `{"two":1}`, 400)
	call("PUT", "/admin/v1/pools/none/target", `{"to":1}`, 404)
	if out := call("PUT", "/admin/v1/pools/chat/target", `{"to":5}`, 400); !strings.Contains(out, "0 to 4") {
		t.Errorf("a target beyond the bounds: %s", out)
	}
	call("GET", "/admin/v1/replicas?pool=other", "", 404)
	call("POST", "/admin/v1/members/nobody/remove", "", 404)
	for _, given := range []string{"r1", "one", "one%2Fr1"} {
		call("POST", "/admin/v1/members/"+given+"/remove", "", 200)
		if c := last(); c.Kind != state.CommandRemoveMember || c.Router != "r1" {
			t.Errorf("removing %s: %+v", given, c)
		}
		f.err = &state.Refusal{Code: state.RefusedAlive, Reason: "it is alive"}
		if out := call("POST", "/admin/v1/members/"+given+"/remove", "", 409); !strings.Contains(out, given[:2]) || !strings.Contains(out, ": it is alive") {
			t.Errorf("removing one that is alive: %s", out)
		}
		f.err = nil
	}
	call("POST", "/admin/v1/replicas", `{"pool":"chat","url":"http://h:1/"}`, 200)
	if r := last().Replica; r == nil || r.ID != "h:1" {
		t.Errorf("replica: %+v", last())
	}
	call("POST", "/admin/v1/replicas", `{"pool":"chat","url":"file:///etc"}`, 400)
	call("POST", "/admin/v1/replicas/127.0.0.1:8000/drain", `{"reason":"why"}`, 200)
	if c := last(); c.Kind != state.CommandDrain || c.Of != "127.0.0.1:8000" || c.Drain.Reason != "why" {
		t.Errorf("drain: %+v", c)
	}
	call("POST", "/admin/v1/replicas/http:%2F%2F127.0.0.1:8000%2F/undrain", "", 200)
	if c := last(); c.Kind != state.CommandUndrain || c.Of != "127.0.0.1:8000" {
		t.Errorf("undrain by URL: %+v", c)
	}
	call("POST", "/admin/v1/replicas/nobody/drain", "", 404)
	if out := call("DELETE", "/admin/v1/replicas/127.0.0.1:8000", "", 409); !strings.Contains(out, "stands in the configuration") {
		t.Errorf("removing a static replica: %s", out)
	}
	call("DELETE", "/admin/v1/replicas/nobody", "", 404)
	facts := state.NewFacts()
	facts.Index, facts.Replicas["h:1"] = 9, state.Replica{ID: "h:1", Pool: "chat", URL: "http://h:1"}
	f.store.SetFacts(facts)
	call("DELETE", "/admin/v1/replicas/h:1", "", 200)
	facts = facts.Clone()
	facts.Index, facts.Draining["h:1"] = 10, state.Drain{Reason: "why"}
	f.store.SetFacts(facts)
	if out := call("POST", "/admin/v1/replicas/h:1/undrain", `{"local":true}`, 409); !strings.Contains(out, "without --local") {
		t.Errorf("undoing here what all routers know: %s", out)
	}
	call("GET", "/admin/v1/decisions?pool=other", "", 404)
	call("POST", "/admin/v1/replicas", `{"url":"http://h:2"}`, 200)
	call("PUT", "/admin/v1/log-level", `{"level":"debug"}`, 200)
	if f.level != "debug" {
		t.Errorf("level: %q", f.level)
	}
	call("POST", "/admin/v1/explain", `{"body":{"model":"m"}}`, 200)
	call("POST", "/admin/v1/explain", `{"request_id":"known"}`, 200)
	call("POST", "/admin/v1/explain", `{"request_id":"gone"}`, 404)
}

// Routers are shown by name, told apart by id where two share one.
func TestRoutersHaveNames(t *testing.T) {
	list := []Member{{ID: "a1", Name: "one"}, {ID: "b2", Name: "box"}, {ID: "c3", Name: "box"}, {ID: "d4"}}
	n := namesOf(list)
	for id, want := range map[string]string{"a1": "one", "b2": "box/b2", "c3": "box/c3", "d4": "d4", "gone": "gone", "operator": "operator", "": ""} {
		if got := n.of(id); got != want {
			t.Errorf("%q is called %q, want %q", id, got, want)
		}
	}
	find := func(given string, want ...string) {
		t.Helper()
		if got := findMember(list, given); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", given, got, want)
		}
	}
	find("one", "a1")
	find("One", "a1")
	find("box", "b2", "c3")
	find("box/c3", "c3")
	find("b2", "b2")
	find("nobody")

	f := newFake()
	f.members = append(list, Member{ID: "r1", Name: "box"})
	url := start(t, f, "")
	if code, body := do(t, "POST", url+"/admin/v1/members/box/remove", ""); code != 409 || !strings.Contains(body, "box/b2 or box/c3 or box/r1") {
		t.Errorf("an ambiguous name: %d, %s", code, body)
	}
	if code, body := do(t, "POST", url+"/admin/v1/members/one/remove", ""); code != 404 || !strings.Contains(body, "the voters are box/r1") {
		t.Errorf("no voter: %d, %s", code, body)
	}
	facts := state.NewFacts()
	facts.Index = 3
	facts.Decisions = []state.Decision{{ID: "d", Pool: "chat", By: "a1"}, {ID: "e", Pool: "chat", By: state.ByOperator, Outcome: state.OutcomeDone, Detail: "4 replicas"}}
	f.store.SetFacts(facts)
	facts = facts.Clone()
	facts.Index, facts.Targets = 4, map[state.TargetKey]int{{Pool: "chat", Role: state.RoleBoth}: 3}
	f.store.SetFacts(facts)
	if _, body := do(t, "GET", url+"/admin/v1/status", ""); !strings.Contains(body, "pool chat has 1 of 3 replicas: start engine: nope: not found") {
		t.Errorf("status: %s", body)
	}
	// Refusals stand between decisions, where asked for, and can be left out by time,
	// number and pool.
	at := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	k := state.TargetKey{Pool: "chat", Role: state.RoleBoth}
	f.refusals = []Refusal{
		{Key: k, First: at.Add(-time.Hour), Last: at, Count: 14, From: 3, To: 4, Reason: "cooldown", Text: "more is asked", After: "e"},
		{Key: k, First: at.Add(time.Minute), Last: at.Add(time.Minute), Count: 1, From: 3, To: 4, Reason: "hold"},
	}
	ids := func(query string) (got string) {
		var rows []Decision
		_, body := do(t, "GET", url+"/admin/v1/decisions?"+query, "")
		if err := json.Unmarshal([]byte(body), &rows); err != nil {
			t.Fatalf("%s: %v: %s", query, err, body)
		}
		for _, r := range rows {
			got += r.ID + r.Refused + " "
		}
		return got
	}
	for query, want := range map[string]string{
		"": "e d ", "refusals=true": "hold cooldown e d ", "refusals=true&pool=chat": "hold cooldown e d ", "refusals=true&n=3": "hold cooldown e ",
		"refusals=true&since=2026-01-02T12:00:30Z": "hold ", "refusals=true&since=2026-01-02T12:00:00Z": "hold cooldown ",
	} {
		if got := ids(query); got != want {
			t.Errorf("decisions?%s: %s, want %s", query, got, want)
		}
	}
	for _, bad := range []string{"since=yesterday", "n=-1", "n=many"} {
		if code, _ := do(t, "GET", url+"/admin/v1/decisions?"+bad, ""); code != 400 {
			t.Errorf("%s: %d", bad, code)
		}
	}
	// What is under way says what hinders it, what is over how it went.
	if _, body := do(t, "GET", url+"/admin/v1/decisions", ""); !strings.Contains(body, `"detail": "start engine: nope: not found"`) || !strings.Contains(body, `"detail": "4 replicas"`) {
		t.Errorf("decisions: %s", body)
	}
	if _, body := do(t, "GET", url+"/admin/v1/decisions", ""); !strings.Contains(body, `"by_name": "one"`) || !strings.Contains(body, `"by_name": "operator"`) {
		t.Errorf("decisions: %s", body)
	}
}

// A voter that was stopped in order is missed by status, too: nobody may be there to
// replace it. One that this router has not met is called by its id.
func TestStatusNamesVotersThatLeft(t *testing.T) {
	n := newFake()
	n.voters = []string{"r1", "r3", "r9"}
	n.members = []Member{
		{ID: "r1", Name: "one", State: "alive", Self: true},
		{ID: "r2", Name: "two", State: "left"},
		{ID: "r3", Name: "three", State: "left"},
	}
	url := start(t, n, "")
	var st Status
	if _, body := do(t, "GET", url+"/admin/v1/status", ""); json.Unmarshal([]byte(body), &st) != nil {
		t.Fatal(body)
	}
	warn := strings.Join(st.Warn, "\n")
	for _, want := range []string{"voter three has left", "hearsay member remove three", "voter r9 is not among the members", "hearsay member remove r9"} {
		if !strings.Contains(warn, want) {
			t.Errorf("no %q in %s", want, warn)
		}
	}
	if strings.Contains(warn, "voter two") || strings.Contains(warn, "voter one") || strings.Contains(warn, "no leader") {
		t.Errorf("%s", warn)
	}
	n.leaderless = true // then voters can't be removed
	st = Status{}
	if _, body := do(t, "GET", url+"/admin/v1/status", ""); json.Unmarshal([]byte(body), &st) != nil {
		t.Fatal(body)
	}
	for _, warn := range st.Warn {
		if strings.Contains(warn, "member remove") {
			t.Errorf("without a leader: %s", warn)
		}
	}
	if warn := strings.Join(st.Warn, "\n"); !strings.Contains(warn, "voter three has left, and there is no leader: start it again") || !strings.Contains(warn, "A quorum that is lost for good") {
		t.Errorf("without a leader: %s", warn)
	}
	n.leaderless = false
	if status, out := do(t, "POST", url+"/admin/v1/members/nine/remove", ""); status != 404 || !strings.Contains(out, "by its id: give that") {
		t.Errorf("removing an unmet one by name: status %d: %s", status, out)
	}
}

// A dead router is named, and others' load is nobody's when there are none.
func TestStatusNamesTheDead(t *testing.T) {
	n := newFake()
	n.members = []Member{
		{ID: "r1", Name: "one", State: "alive", Self: true},
		{ID: "r2", Name: "two", State: "dead", HeardMS: 12_300},
		{ID: "r3", Name: "three", State: "left"},
		{ID: "r4", Name: "four", State: "dead", Degraded: "not_member", Trouble: "no member any more"},
	}
	var st Status
	if _, body := do(t, "GET", start(t, n, "")+"/admin/v1/status", ""); json.Unmarshal([]byte(body), &st) != nil {
		t.Fatal(body)
	}
	if st.Alive != 1 || st.Members != 3 { // who left is not missed
		t.Errorf("%d of %d routers alive", st.Alive, st.Members)
	}
	all := strings.Join(st.Warn, "\n")
	for _, want := range []string{"router two is dead: nothing was heard of it for 12s", "router four: no member any more"} {
		if !strings.Contains(all, want) {
			t.Errorf("lacks %q:\n%s", want, all)
		}
	}
	if strings.Contains(all, "three") || strings.Contains(all, "four is dead") {
		t.Errorf("warnings:\n%s", all)
	}
	if st.Figures.RowsAgeMS >= 0 {
		t.Errorf("others' load is %v ms old, of nobody", st.Figures.RowsAgeMS)
	}
	if st.Figures.ReadingAgeMS < 0 {
		t.Errorf("the oldest reading of %d replicas is unknown", st.Pools[0].Replicas)
	}
}

func TestWithoutReplicasNoReadingIsOld(t *testing.T) {
	n := newFake()
	n.store.SetReplicas(state.SourceStatic, "chat", nil)
	var st Status
	if _, body := do(t, "GET", start(t, n, "")+"/admin/v1/status", ""); json.Unmarshal([]byte(body), &st) != nil {
		t.Fatal(body)
	}
	if len(st.Pools) == 0 || st.Figures.ReadingAgeMS >= 0 {
		t.Errorf("%d pools, oldest reading %v ms", len(st.Pools), st.Figures.ReadingAgeMS)
	}
}

// A dry run's decision is done on paper only, and says so.
func TestDecisionsOfADryRun(t *testing.T) {
	n := newFake()
	facts := state.NewFacts()
	facts.Index = 1
	facts.Decisions = []state.Decision{
		{ID: "paper", Pool: "chat", Outcome: state.OutcomeDone, Detail: state.DryRunDetail},
		{ID: "real", Pool: "chat", Outcome: state.OutcomeDone, Detail: "4 replicas"},
	}
	n.store.SetFacts(facts)
	var list []Decision
	if _, body := do(t, "GET", start(t, n, "")+"/admin/v1/decisions", ""); json.Unmarshal([]byte(body), &list) != nil || len(list) != 2 {
		t.Fatal(body)
	}
	for _, d := range list {
		if d.Outcome != "done" || d.DryRun != (d.ID == "paper") {
			t.Errorf("%+v", d)
		}
	}
}
