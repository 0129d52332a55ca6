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
	s.wants(t, 0, "router   rig", "ready", "listens  api "+strings.TrimPrefix(r.api, "http://"), "raft     leader", "1 of 1 routers alive")
	rows := s.table(t, "POOL", "MODEL", "POLICY", "REPLICAS", "READY", "IN FLIGHT", "QUEUED TOKENS", "SKEW", "TARGET", "BOUNDS", "ACTUATOR")
	if len(rows) != 1 || rows[0][0] != "chat" || rows[0][1] != rigModel || rows[0][3] != "2" || rows[0][9] != "1-5" {
		t.Errorf("pools %q", rows)
	}
	if st := isJSON[console.Status](t, call(t, "status", "-o", "json")); st.Router.Name != "rig" || len(st.Pools) != 1 {
		t.Errorf("status %+v", st)
	}

	rows = call(t, "members").table(t, "NAME", "ID", "STATE", "RAFT", "API", "CLUSTER", "MESH", "HEARD", "DELAY", "IN FLIGHT", "FACTS", "NOTE")
	if len(rows) != 1 || rows[0][0] != "rig" || rows[0][2] != "alive" || rows[0][3] != "leader" || rows[0][7] != "self" {
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
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "REPLICA ") && strings.Contains(l, "SCORE MS") }) {
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
	call(t, "explain", id).wants(t, 0, "request "+id, "goes to")
	call(t, "explain", "no-such-request").wants(t, 1, "remembers no pick")
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
	call(t, "drain", id, "--reason", "test").wants(t, 0, id+" is draining", "committed at")
	within(t, "it drains", func() bool { return state(id) == "draining" })
	call(t, "undrain", id).wants(t, 0, "takes work again")
	within(t, "it is ready again", func() bool { return state(id) == "ready" })
	call(t, "drain", id, "--local").wants(t, 0, id+" is draining")
	within(t, "it drains here", func() bool { return state(id) == "draining" })
	call(t, "undrain", id, "--local").wants(t, 0, "takes work again")
	call(t, "drain", "10.9.9.9:1").wants(t, 1, "no replica 10.9.9.9:1", "hearsay replicas")

	call(t, "replica", "add", "http://127.0.0.1:1", "--pool", "chat").wants(t, 0, "was added")
	within(t, "it is there", func() bool { return state("127.0.0.1:1") != "absent" })
	call(t, "replica", "rm", "127.0.0.1:1").wants(t, 0, "was removed")
	within(t, "it is gone", func() bool { return state("127.0.0.1:1") == "absent" })
	call(t, "replica", "add", "http://127.0.0.1:1", "--pool", "nowhere").wants(t, 1, "no pool")
	call(t, "replica", "rm", "nobody:1").wants(t, 1, "no replica nobody:1")
	call(t, "replica", "add", "nowhere", "--pool", "chat").wants(t, 1, "not a URL")

	call(t, "scale", "log").wants(t, 0, "no decisions yet")
	call(t, "scale", "chat", "--to", "4").wants(t, 0, "target 4", "held")
	call(t, "scale", "none", "--to", "4").wants(t, 1, "no pool none")
	within(t, "the target is held", func() bool {
		p := isJSON[[]console.Pool](t, call(t, "scale", "chat", "-o", "json"))
		return len(p) == 1 && p[0].Target == 4 && p[0].Held
	})
	within(t, "the decision is settled", func() bool {
		d := isJSON[[]console.Decision](t, call(t, "scale", "log", "-o", "json"))
		return len(d) == 1 && d[0].Outcome != ""
	})
	rows := call(t, "scale", "log").table(t, "AT", "POOL", "ROLE", "FROM", "TO", "BY", "OUTCOME", "ID", "REASON", "DETAIL")
	if len(rows) != 1 || rows[0][1] != "chat" || rows[0][3] != "2" || rows[0][4] != "4" || rows[0][5] != "operator" {
		t.Errorf("decisions %q", rows)
	}
	call(t, "scale", "log", "none").wants(t, 1, "no pool none")
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
