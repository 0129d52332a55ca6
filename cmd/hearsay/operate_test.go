package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
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
		"1 of 1 router alive", "accuracy last", "view     oldest engine reading")
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
	if rows := call(t, "members", "-o", "wide").table(t, "NAME", "STATE", "RAFT", "API", "ADMIN", "CLUSTER", "MESH", "HEARD", "DELAY", "IN FLIGHT", "FACTS", "NOTE", "ID", "BOOT", "CONFIG"); rows[0][12] != st.Router.ID {
		t.Errorf("members %q", rows)
	}
	if rows := call(t, "replicas", "-o", "wide").table(t, "REPLICA", "POOL", "ENGINE", "STATE", "IN FLIGHT", "OWN", "FOREIGN", "QUEUED TOK", "RUNNING", "WAITING", "KV", "CAPACITY",
		"SKETCH TOK", "C_EFF", "RHO", "READING", "REASON", "ROLE", "SOURCE", "URL", "READER", "ENTRIES", "HORIZON", "SKETCH MEM", "TRUST",
		"PREFILL TOK/S", "FIRST MS", "ITL MS", "SAMPLES", "ADAPTERS"); rows[0][20] != "rig" {
		t.Errorf("replicas %q", rows)
	}
	rows := s.table(t, "POOL", "MODEL", "POLICY", "REPLICAS", "READY", "IN FLIGHT", "QUEUED TOKENS", "SKEW", "TARGET", "BOUNDS", "ACTUATOR")
	if len(rows) != 1 || rows[0][0] != "chat" || rows[0][1] != rigModel || rows[0][3] != "2" || rows[0][9] != "1-5" {
		t.Errorf("pools %q", rows)
	}
	if st.Router.Name != "rig" || len(st.Pools) != 1 {
		t.Errorf("status %+v", st)
	}

	rows = call(t, "members").table(t, "NAME", "STATE", "RAFT", "API", "ADMIN", "CLUSTER", "MESH", "HEARD", "DELAY", "IN FLIGHT", "FACTS", "NOTE")
	if len(rows) != 1 || rows[0][0] != "rig" || rows[0][1] != "alive" || rows[0][2] != "leader" || rows[0][7] != "self" {
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

	// Its other ports answer nobody who asks.
	call(t, "status", "--server", r.admin+"/v1").wants(t, 1, "has no such path", "admin address", "without a path")
	call(t, "status", "--server", strings.TrimPrefix(r.admin, "http://")).wants(t, 0, "router   rig, ready")
	call(t, "status", "--server", strings.TrimPrefix(r.admin, "http://127.0.0.1")).wants(t, 0, "router   rig, ready")
	host, port, err := net.SplitHostPort(st.Router.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	n, _ := strconv.Atoi(port)
	for _, at := range []string{st.Router.Cluster, net.JoinHostPort(host, strconv.Itoa(n+1)), "https://" + st.Router.Cluster} {
		for _, args := range [][]string{{"status"}, {"replicas"}, {"drain", "x"}, {"config", "show"}} {
			call(t, append(args, "--server", at)...).wants(t, 1, "what listens at "+at+" hung up on the request", "give the router's admin address with --server, usually port 8081")
		}
	}
	call(t, "status", "--server", st.Router.API).wants(t, 1, "is a client port: give the router's admin address with --server, usually port 8081")
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
	call(t, "explain", "-f", writeTemp(t, "unknown.json", `{"model":"nope","messages":[]}`)).wants(t, 1, "nope", "'hearsay models' lists the models")
	call(t, "explain", "-f", file, "--path", "v1/completions").wants(t, 2, "--path: \"v1/completions\" is no path: write /v1/completions")

	// Where the prompt is not where the path has it, nothing is explained.
	bodies := map[string]string{
		"/v1/chat/completions": file,
		"/v1/completions":      writeTemp(t, "text.json", `{"model":"sim-70b","prompt":"hello there"}`),
		"/v1/embeddings":       writeTemp(t, "input.json", `{"model":"sim-70b","input":"hello there"}`),
	}
	fields := map[string]string{"/v1/chat/completions": "messages", "/v1/completions": "prompt", "/v1/embeddings": "input"}
	for path, field := range fields {
		for of, body := range bodies {
			x := call(t, "explain", "-f", body, "--path", path)
			if of == path {
				x.wants(t, 0, "goes to")
				continue
			}
			if of == "/v1/embeddings" {
				x.wants(t, 1, ": if it is for /v1/embeddings or /v1/responses, say --path /v1/embeddings or --path /v1/responses\n")
				continue
			}
			x.wants(t, 1, body+`: no "`+field+`" in it, which `+path+` takes: if it is for `+of+`, say --path `+of+"\n")
		}
	}
	call(t, "explain", "-f", bodies["/v1/completions"]).wants(t, 1, `no "messages" in it`, "say --path /v1/completions")
	callWith(t, `{"model":"sim-70b"}`, "explain", "-f", "-").wants(t, 1, `no "messages" in it, which /v1/chat/completions takes`+"\n")
	callWith(t, `[]`, "explain", "-f", "-").wants(t, 1, "object")

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
	call(t, "drain", id, "--reason", "test").wants(t, 0, id+" is draining (facts at ")
	sees(id, "draining")
	call(t, "undrain", id).wants(t, 0, "takes work again")
	sees(id, "ready")
	call(t, "undrain", id).wants(t, 0, id+" is not draining here: nothing changed, unless")
	call(t, "drain", id, "--local").wants(t, 0, id+" is draining on this router alone")
	sees(id, "draining")
	call(t, "undrain", id, "--local").wants(t, 0, "takes work again on this router alone")
	sees(id, "ready")
	call(t, "undrain", id, "--local").wants(t, 0, id+" is not draining here: nothing changed\n")
	call(t, "drain", "10.9.9.9:1").wants(t, 1, "no replica 10.9.9.9:1", "hearsay replicas")

	call(t, "replica", "add", "http://127.0.0.1:1", "--pool", "chat").wants(t, 0, "was added, but is unreachable: ", "It gets requests when it is ready")
	if state("127.0.0.1:1") == "absent" {
		t.Error("what was added is not there")
	}
	call(t, "replica", "add", "http://127.0.0.1:1/", "--pool", "chat").wants(t, 0, "http://127.0.0.1:1 is there already: nothing changed")
	call(t, "replica", "rm", "127.0.0.1:1").wants(t, 0, "was removed")
	sees("127.0.0.1:1", "absent")
	call(t, "replica", "add", "http://127.0.0.1:1", "--pool", "nowhere").wants(t, 1, "no pool")
	call(t, "replica", "rm", "nobody:1").wants(t, 1, "no replica nobody:1")

	call(t, "scale", "log").wants(t, 0, "no decisions yet")
	call(t, "scale", "chat", "--to", "4").wants(t, 0, "target 4", "held")
	if d := isJSON[console.Done](t, call(t, "scale", "chat", "--to", "4", "-o", "json")); d.Index == 0 {
		t.Errorf("a write, as JSON: %+v", d)
	}
	call(t, "scale", "none", "--to", "4").wants(t, 1, "no pool none")
	if p := isJSON[[]console.Pool](t, call(t, "scale", "chat", "-o", "json")); len(p) != 1 || p[0].Target != 4 || !p[0].Held {
		t.Errorf("the target that was set: %+v", p)
	}
	within(t, "the decision is settled", func() bool {
		d := isJSON[[]console.Decision](t, call(t, "scale", "log", "-o", "json"))
		return len(d) == 1 && d[0].Outcome != ""
	})
	rows := call(t, "scale", "log").table(t, "AT", "ID", "TARGET", "CHANGE", "OUTCOME", "TOOK", "WHY")
	if !timed.MatchString(rows[0][0]) {
		t.Errorf("a time without its zone: %q", rows[0][0])
	}
	if len(rows) != 1 || rows[0][2] != "chat/both" || rows[0][3] != "2->4" || rows[0][4] != "recorded" || rows[0][6] != "set by an operator" {
		t.Errorf("decisions %q", rows)
	}
	if wide := call(t, "scale", "log", "-o", "wide").table(t, "AT", "ID", "TARGET", "CHANGE", "OUTCOME", "TOOK", "WHY", "BY", "VICTIMS", "INDEX", "EPOCH"); wide[0][7] != "operator" {
		t.Errorf("decisions %q", wide)
	}
	id = isJSON[[]console.Decision](t, call(t, "scale", "log", "-o", "json"))[0].ID
	call(t, "scale", "log", id).wants(t, 0, "decision  "+id+"\n", "target    chat/both, 2 to 4\n", "by operator", "fence     epoch ", "detail    dry run: recorded, nothing done\n")
	call(t, "scale", "log", id[:8]).wants(t, 0, "decision  "+id+"\n")
	if d := isJSON[map[string]any](t, call(t, "scale", "log", id, "-o", "json")); d["id"] != id || d["refused_since"] == nil {
		t.Errorf("one decision: %v", d)
	}
	call(t, "scale", "log", "none").wants(t, 1, "no decision none", "hearsay scale log --pool none")
	call(t, "scale", "log", "--pool", "none").wants(t, 1, "no pool none")
	call(t, "scale", "log", "--pool", "chat", "--since", "1h", "-n", "5").wants(t, 0, "set by an operator")
	call(t, "scale", "log", "--since", "2099-01-02T15:04:05Z").wants(t, 0, "no decisions yet")
	call(t, "scale", "log", "--since", "yesterday").wants(t, 2, `--since: "yesterday" is no duration such as 2h`)
	call(t, "scale", "log", "-n", "-1").wants(t, 2, "-n: -1 is not 0 or more")
	call(t, "member", "remove", "nobody").wants(t, 1, "no voter nobody: the voters are rig")
	call(t, "member", "remove", "rig").wants(t, 1, "rig: it leads, and would be a voter again at once: stop it first, then remove it")
	call(t, "scale", "", "--release").wants(t, 2, "POOL is missing")
	call(t, "scale", "chat", "--release").wants(t, 0, "the autoscaler has it again")
	if p := isJSON[[]console.Pool](t, call(t, "scale", "chat", "-o", "json")); p[0].Held || p[0].Target != p[0].Replicas {
		t.Errorf("released, a dry run's target is %d of %d replicas, held %v", p[0].Target, p[0].Replicas, p[0].Held)
	}

	level := zerolog.GlobalLevel()
	defer zerolog.SetGlobalLevel(level)
	call(t, "log-level", "debug").wants(t, 0, "log level is debug")
	if zerolog.GlobalLevel() != zerolog.DebugLevel {
		t.Errorf("level %v", zerolog.GlobalLevel())
	}
}

// Where an edit has an index it is that of the facts, by the word of status and members.
func TestEditsSayWhereTheFactsAre(t *testing.T) {
	f := func(answer, want string) {
		t.Helper()
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
		defer s.Close()
		if r := call(t, "member", "remove", "r3", "--server", s.URL); r.code != 0 || r.out != want+"\n" {
			t.Errorf("%s: %d %q, want %q", answer, r.code, r.out, want)
		}
	}
	f(`{"index":12}`, "r3 is no voter any more (facts at 12)")
	f(`{"index":12,"behind":true}`, "r3 is no voter any more (facts at 12; this router has not heard of it yet)")
	f(`{"index":0}`, "r3 is no voter any more")
	f(`{"index":0,"behind":true}`, "r3 is no voter any more (this router has not heard of it yet)")
}

// timed is an instant with its zone.
var timed = regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)$`)

// A drain is asked for all routers, unless for one alone: what only one has done is
// not done.
func TestDrainWithoutALeaderFails(t *testing.T) {
	status, answer := http.StatusAccepted, `{"local":true,"message":"no leader: h:1 is draining on this router alone"}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer s.Close()
	t.Setenv("HEARSAY_SERVER", s.URL)
	for _, verb := range []string{"drain", "undrain"} {
		call(t, verb, "h:1").wants(t, 1, "hearsay: no leader: h:1 is draining on this router alone\n")
	}
	status, answer = http.StatusOK, `{"local":true}`
	call(t, "drain", "h:1", "--local").wants(t, 0, "h:1 is draining on this router alone\n")
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
	greets, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := greets.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
			_, _ = io.ReadFull(c, make([]byte, 4))
			_ = c.Close()
		}
	}()
	for _, scheme := range []string{"http://", "https://"} {
		call(t, "status", "--server", scheme+greets.Addr().String()).wants(t, 1, "does not speak HTTP: give the router's admin address")
	}
	_ = greets.Close()
	<-ended

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
