package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

const hello = `{"model":"sim-70b","messages":[{"role":"user","content":"hello there"}],"max_tokens":3}`

func TestLookAtARouter(t *testing.T) {
	r := newRig(t)

	s := call(t, "status")
	s.wants(t, 0, "router   rig, ready", "listens  api "+strings.TrimPrefix(r.api, "http://"), "raft     leader, leader rig, term", "voters rig\n",
		"1 of 1 routers alive", "accuracy last", "view     oldest engine reading")
	st := isJSON[console.Status](t, call(t, "status", "-o", "json"))
	if st.Router.Raft.LeaderName != "rig" || !slices.Equal(st.Router.Raft.VoterNames, []string{"rig"}) {
		t.Errorf("names %+v", st.Router.Raft)
	}
	for _, cmd := range []string{"status", "members", "replicas", "scale", "models"} {
		if x := call(t, cmd); strings.Contains(x.out, st.Router.ID) {
			t.Errorf("%s names a router by its id:\n%s", cmd, x.out)
		}
	}
	call(t, "status", "-o", "wide").wants(t, 0, "ids      router "+st.Router.ID)
	if rows := call(t, "members", "-o", "wide").table(t, "NAME", "STATE", "RAFT", "API", "CLUSTER", "MESH", "HEARD", "DELAY", "IN FLIGHT", "FACTS", "NOTE", "ID", "BOOT"); rows[0][11] != st.Router.ID {
		t.Errorf("members %q", rows)
	}
	if rows := call(t, "replicas", "-o", "wide").table(t, "REPLICA", "POOL", "ENGINE", "STATE", "IN FLIGHT", "OWN", "FOREIGN", "QUEUED TOK", "RUNNING", "WAITING", "KV", "CAPACITY",
		"SKETCH TOK", "C_EFF", "RHO", "READING", "REASON", "ROLE", "SOURCE", "URL", "READER", "ENTRIES", "HORIZON", "SKETCH MEM", "TRUST",
		"PREFILL TOK/S", "FIRST MS", "ITL MS", "SAMPLES"); rows[0][20] != "rig" {
		t.Errorf("replicas %q", rows)
	}
	rows := s.table(t, "POOL", "MODEL", "POLICY", "REPLICAS", "READY", "IN FLIGHT", "QUEUED TOKENS", "SKEW", "TARGET", "BOUNDS", "ACTUATOR")
	if len(rows) != 1 || rows[0][0] != "chat" || rows[0][1] != rigModel || rows[0][3] != "2" || rows[0][9] != "1-5" {
		t.Errorf("pools %q", rows)
	}
	if st.Router.Name != "rig" || len(st.Pools) != 1 {
		t.Errorf("status %+v", st)
	}

	rows = call(t, "members").table(t, "NAME", "STATE", "RAFT", "API", "CLUSTER", "MESH", "HEARD", "DELAY", "IN FLIGHT", "FACTS", "NOTE")
	if len(rows) != 1 || rows[0][0] != "rig" || rows[0][1] != "alive" || rows[0][2] != "leader" || rows[0][6] != "self" {
		t.Errorf("members %q", rows)
	}
	if m := isJSON[[]console.Member](t, call(t, "members", "-o", "json")); len(m) != 1 || !m[0].Self {
		t.Errorf("members %+v", m)
	}

	head := []string{
		"REPLICA", "POOL", "ENGINE", "STATE", "IN FLIGHT", "OWN", "FOREIGN", "QUEUED TOK", "RUNNING", "WAITING", "KV", "CAPACITY",
		"SKETCH TOK", "C_EFF", "RHO", "READING", "REASON",
	}
	rows = call(t, "replicas").table(t, head...)
	if len(rows) != 2 || !slices.ContainsFunc(rows, func(row []string) bool { return row[0] == r.engines[0] && row[1] == "chat" }) {
		t.Errorf("replicas %q", rows)
	}
	call(t, "replicas", "--pool", "other").wants(t, 1, "no pool other")
	if list := isJSON[[]console.Replica](t, call(t, "replicas", "-o", "json")); len(list) != 2 {
		t.Errorf("replicas %+v", list)
	}

	rows = call(t, "models").table(t, "NAME", "POOL", "KIND")
	if len(rows) != 2 || !slices.ContainsFunc(rows, func(row []string) bool { return row[0] == "default" && row[2] == "alias" }) {
		t.Errorf("models %q", rows)
	}
	if list := isJSON[[]console.Model](t, call(t, "models", "-o", "json")); len(list) != 2 {
		t.Errorf("models %+v", list)
	}

	rows = call(t, "scale").table(t, "POOL", "REPLICAS", "READY", "TARGET", "HELD", "BOUNDS", "ACTUATOR", "IN FLIGHT", "QUEUED TOKENS")
	if len(rows) != 1 || rows[0][0] != "chat" {
		t.Errorf("scale %q", rows)
	}
	isJSON[[]console.Pool](t, call(t, "scale", "-o", "json"))
	call(t, "scale", "chat").wants(t, 0, "chat")
	call(t, "scale", "none").wants(t, 1, "no pool none", "hearsay status")

	call(t, "config", "show").wants(t, 0, "name: rig", "model: sim-70b")
	isJSON[map[string]any](t, call(t, "config", "show", "-o", "json"))
}

func TestExplain(t *testing.T) {
	r := newRig(t)
	file := writeTemp(t, "request.json", hello)
	e := call(t, "explain", "-f", file)
	e.wants(t, 0, "pool chat, model sim-70b", "goes to 127.0.0.1:", "policy ttft")
	for _, x := range []result{e, callWith(t, hello, "explain", "-f", "-")} {
		lines := strings.Split(x.out, "\n")
		if !slices.ContainsFunc(lines, func(l string) bool {
			return strings.HasPrefix(l, "REPLICA ") && strings.Contains(l, "SCORE MS") && strings.Contains(l, "BUSY MS")
		}) {
			t.Errorf("no table of candidates:\n%s", x.out)
		}
		for _, id := range r.engines {
			if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, id+" ") }) {
				t.Errorf("candidate %s is missing:\n%s", id, x.out)
			}
		}
	}
	isJSON[map[string]any](t, call(t, "explain", "-f", file, "-o", "json"))
	call(t, "explain", "-f", file, "--path", "/v1/nothing").wants(t, 1, "nothing at this path")
	call(t, "explain", "-f", writeTemp(t, "bad.json", "{")).wants(t, 1, "is not JSON")
	call(t, "explain", "-f", file+".none").wants(t, 1, "no such file")
	call(t, "explain", "-f", writeTemp(t, "unknown.json", `{"model":"nope","messages":[]}`)).wants(t, 1, "nope")

	resp, err := http.Post(r.api+"/v1/chat/completions", "application/json", strings.NewReader(hello))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	id := resp.Header.Get("X-Request-Id")
	call(t, "explain", id).wants(t, 0, "request "+id, "went to", "first token expected after", "observed")
	call(t, "explain", "chatcmpl-"+id, "-o", "wide").wants(t, 0, "request "+id, "RATE TOK/S")
	call(t, "explain", "no-such-request").wants(t, 1, "remembers no pick", "only the router that served it", "1,024")
}

func TestChangeARouter(t *testing.T) {
	r := newRig(t)
	state := func(id string) string {
		for _, rep := range isJSON[[]console.Replica](t, call(t, "replicas", "-o", "json")) {
			if rep.ID == id {
				return rep.State
			}
		}
		return "absent"
	}
	id := r.engines[0]
	// What was done is seen by the very next question.
	sees := func(id, want string) {
		t.Helper()
		if got := state(id); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	call(t, "drain", id, "--reason", "test").wants(t, 0, id+" is draining", "committed at")
	sees(id, "draining")
	call(t, "undrain", id).wants(t, 0, "takes work again")
	sees(id, "ready")
	call(t, "drain", id, "--local").wants(t, 0, id+" is draining on this router alone")
	sees(id, "draining")
	call(t, "undrain", id, "--local").wants(t, 0, "takes work again on this router alone")
	sees(id, "ready")
	call(t, "drain", "10.9.9.9:1").wants(t, 1, "no replica 10.9.9.9:1", "hearsay replicas")

	call(t, "replica", "add", "http://127.0.0.1:1", "--pool", "chat").wants(t, 0, "was added")
	if state("127.0.0.1:1") == "absent" {
		t.Error("what was added is not there")
	}
	call(t, "replica", "rm", "127.0.0.1:1").wants(t, 0, "was removed")
	sees("127.0.0.1:1", "absent")
	call(t, "replica", "add", "http://127.0.0.1:1", "--pool", "nowhere").wants(t, 1, "no pool")
	call(t, "replica", "rm", "nobody:1").wants(t, 1, "no replica nobody:1")
	call(t, "replica", "add", "nowhere", "--pool", "chat").wants(t, 1, "not a URL")

	call(t, "scale", "log").wants(t, 0, "no decisions yet")
	call(t, "scale", "chat", "--to", "4").wants(t, 0, "target 4", "held")
	call(t, "scale", "none", "--to", "4").wants(t, 1, "no pool none")
	if p := isJSON[[]console.Pool](t, call(t, "scale", "chat", "-o", "json")); len(p) != 1 || p[0].Target != 4 || !p[0].Held {
		t.Errorf("the target that was set: %+v", p)
	}
	within(t, "the decision is settled", func() bool {
		d := isJSON[[]console.Decision](t, call(t, "scale", "log", "-o", "json"))
		return len(d) == 1 && d[0].Outcome != ""
	})
	rows := call(t, "scale", "log").table(t, "AT", "POOL", "ROLE", "FROM", "TO", "BY", "OUTCOME", "REASON", "DETAIL")
	if len(rows) != 1 || rows[0][1] != "chat" || rows[0][3] != "2" || rows[0][4] != "4" || rows[0][5] != "operator" {
		t.Errorf("decisions %q", rows)
	}
	call(t, "scale", "log", "none").wants(t, 1, "no pool none")
	call(t, "member", "remove", "nobody").wants(t, 1, "no voter nobody: the voters are rig")
	call(t, "scale", "chat", "--release").wants(t, 0, "the autoscaler has it again")

	level := zerolog.GlobalLevel()
	defer zerolog.SetGlobalLevel(level)
	call(t, "log-level", "debug").wants(t, 0, "log level is debug")
	if zerolog.GlobalLevel() != zerolog.DebugLevel {
		t.Errorf("level %v", zerolog.GlobalLevel())
	}
	call(t, "log-level", "loud").wants(t, 1, "debug, info, warn or error")
}

// What goes wrong on the way says what to do next.
func TestServersThatAreNone(t *testing.T) {
	ln := httptest.NewServer(http.NotFoundHandler())
	call(t, "status", "--server", ln.URL).wants(t, 1, "404", "is it a hearsay admin address?")
	call(t, "status", "--server", strings.Replace(ln.URL, "http:", "https:", 1)).wants(t, 1, "speaks plain HTTP: give it as --server "+ln.URL)
	gone := ln.URL
	ln.Close()
	call(t, "status", "--server", gone).wants(t, 1, "no router answers at "+gone, "hearsay serve", "--server")
	call(t, "drain", "x", "--server", gone).wants(t, 1, "no router answers")

	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	defer page.Close()
	call(t, "status", "--server", page.URL).wants(t, 1, "did not answer as a hearsay admin API")

	var token string
	locked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token = r.Header.Get("Authorization")
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"code": "unauthorized", "message": "an admin token is needed"}})
	}))
	defer locked.Close()
	t.Setenv("HEARSAY_SERVER", locked.URL)
	t.Setenv("HEARSAY_TOKEN", "from-env")
	call(t, "status").wants(t, 1, "an admin token is needed")
	if token != "Bearer from-env" {
		t.Errorf("token from the environment: %q", token)
	}
	call(t, "status", "--token", "from-flag").wants(t, 1, "an admin token is needed")
	if token != "Bearer from-flag" {
		t.Errorf("token from the flag: %q", token)
	}
	if r := call(t, "status", "--help"); strings.Contains(r.out, "from-env") {
		t.Errorf("help shows the token:\n%s", r.out)
	}
}
