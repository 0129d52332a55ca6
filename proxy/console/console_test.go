package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/hearsay-llm/hearsay/state"
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
	return Info{ID: "r1", Name: "one", Raft: Raft{Leader: "r1", Voters: []string{"r1"}}, Uptime: time.Minute}
}
func (f *fake) Ready() (bool, []string) { return true, nil }
func (f *fake) Members() []Member {
	if f.members != nil {
		return f.members
	}
	return []Member{{ID: "r1", Name: "one", State: "alive", Self: true}, {ID: "r2", Name: "two", State: "dead", Degraded: "no stream"}}
}
func (f *fake) Figures() Figures { return Figures{Ratio: 0.9} }
func (f *fake) Hindrance(k state.TargetKey) string {
	if k.Pool == "chat" {
		return "start engine: nope: not found"
	}
	return ""
}
func (f *fake) Sketch(state.ReplicaID) Sketch { return Sketch{Entries: 7} }
func (f *fake) Speed(state.ReplicaID) Speed   { return Speed{Samples: 9} }
func (f *fake) Config() any                   { return map[string]string{"node": "one"} }

func (f *fake) Commit(_ context.Context, c state.Command) (uint64, bool, error) {
	if f.err != nil {
		return 0, false, f.err
	}
	f.commits = append(f.commits, c)
	return uint64(len(f.commits)), f.behind, nil
}

func (f *fake) Explain(_ context.Context, path string, body []byte) (any, error) {
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
	call("PUT", "/admin/v1/pools/chat/target", `{"release":true}`, 200)
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
	if out := call("DELETE", "/admin/v1/replicas/127.0.0.1:8000", "", 409); !strings.Contains(out, "configuration file") {
		t.Errorf("removing a static replica: %s", out)
	}
	call("DELETE", "/admin/v1/replicas/nobody", "", 404)
	facts := state.NewFacts()
	facts.Index, facts.Replicas["h:1"] = 9, state.Replica{ID: "h:1", Pool: "chat", URL: "http://h:1"}
	f.store.SetFacts(facts)
	call("DELETE", "/admin/v1/replicas/h:1", "", 200)
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
	if status != 200 || !strings.Contains(out, "is in the file already: nothing changed") {
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
	// What is under way says what hinders it, what is over how it went.
	if _, body := do(t, "GET", url+"/admin/v1/decisions", ""); !strings.Contains(body, `"detail": "start engine: nope: not found"`) || !strings.Contains(body, `"detail": "4 replicas"`) {
		t.Errorf("decisions: %s", body)
	}
	if _, body := do(t, "GET", url+"/admin/v1/decisions", ""); !strings.Contains(body, `"by_name": "one"`) || !strings.Contains(body, `"by_name": "operator"`) {
		t.Errorf("decisions: %s", body)
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
	if status != 202 || !f.drained["127.0.0.1:8000"] {
		t.Errorf("a drain without a leader: status %d, %s", status, body)
	}
}

// The served document and the routes are the same set, and its schemas name the
// fields that the types have.
func TestOpenAPIMatches(t *testing.T) {
	var doc struct {
		Paths      map[string]map[string]any
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(openapi, &doc); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Metrics: http.NotFoundHandler()}, nil, nil, nil, nil)
	n := 0
	for _, r := range s.routes {
		if doc.Paths[r.path][strings.ToLower(r.method)] == nil {
			t.Errorf("%s %s is not in openapi.json", r.method, r.path)
		}
	}
	for _, ops := range doc.Paths {
		n += len(ops)
	}
	if n != len(s.routes) {
		t.Errorf("openapi.json has %d operations, the server %d", n, len(s.routes))
	}
	for _, v := range []any{
		Info{},
		Raft{},
		Member{},
		Sketch{},
		Speed{},
		Status{},
		Figures{},
		Pool{},
		Replica{},
		Decision{},
		Model{},
		Done{},
		TargetRequest{},
		ReplicaRequest{},
		ReasonRequest{},
		ExplainRequest{},
		LevelRequest{},
	} {
		typ := reflect.TypeOf(v)
		props := doc.Components.Schemas[typ.Name()].Properties
		fields := 0
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			fields++
			if _, ok := props[name]; !ok {
				t.Errorf("schema %s lacks %s", typ.Name(), name)
			}
		}
		if fields != len(props) {
			t.Errorf("schema %s has %d properties, the type %d", typ.Name(), len(props), fields)
		}
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
	all := strings.Join(st.Warn, "\n")
	for _, want := range []string{"router two is dead: nothing came of it for 12s", "router four: no member any more"} {
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
}
