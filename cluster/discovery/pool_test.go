package discovery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/cluster/discovery"
	"github.com/hearsay-llm/hearsay/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a source that says what a test gives it.
type script struct {
	kind  string
	trust bool
	say   chan discovery.Snapshot
}

func (s *script) Kind() string   { return s.kind }
func (s *script) Where() string  { return "script" }
func (s *script) Doubtful() bool { return !s.trust }
func (s *script) Run(ctx context.Context, report func(discovery.Snapshot)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case x := <-s.say:
			report(x)
		}
	}
}

// rig is a Pool whose time and sources a test controls.
type rig struct {
	*discovery.Pool
	t    testing.TB
	now  time.Time
	busy map[state.ReplicaID]bool
	log  strings.Builder

	mu   sync.Mutex
	list []state.Replica // guarded by mu
}

func newRig(t testing.TB, cfg discovery.Config, kinds ...string) *rig {
	t.Helper()
	r := &rig{t: t, now: time.Now(), busy: map[state.ReplicaID]bool{}}
	for _, k := range kinds {
		cfg.Sources = append(cfg.Sources, &script{kind: k, trust: k == discovery.KindKubernetes})
	}
	cfg.Name, cfg.Log = "chat", zerolog.New(&r.log)
	cfg.Apply = r.apply
	cfg.Busy = func(id state.ReplicaID) bool { return r.busy[id] }
	r.Pool = discovery.New(cfg)
	return r
}

func (r *rig) apply(l []state.Replica) {
	r.mu.Lock()
	r.list = l
	r.mu.Unlock()
}

func (r *rig) applied() []state.Replica {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list
}

// hear has a source report, and steps.
func (r *rig) hear(source int, x discovery.Snapshot) {
	r.Report(source, x, r.now)
	r.Step(r.now)
}

func (r *rig) pass(d time.Duration) {
	r.now = r.now.Add(d)
	r.Step(r.now)
}

// want compares the list: "id", "id draining".
func (r *rig) want(ids ...string) {
	r.t.Helper()
	var have []string
	for _, x := range r.applied() {
		s := string(x.ID)
		if x.Leaving != "" {
			s += " draining"
		}
		have = append(have, s)
	}
	if !slices.Equal(have, ids) {
		r.t.Errorf("the list is %q, want %q", have, ids)
	}
}

func (r *rig) problem(source int, part string) {
	r.t.Helper()
	p := r.Status()[source].Problem
	if part == "" && p != "" || !strings.Contains(p, part) {
		r.t.Errorf("problem %q, want %q", p, part)
	}
}

func urls(hosts ...string) (x discovery.Snapshot) {
	for _, h := range hosts {
		x.Replicas = append(x.Replicas, discovery.Found{URL: "http://" + h + ":8000"})
	}
	return x
}

var errAway = errors.New("is away")

func TestReplicaThatLeavesDrainsAndMayComeBack(t *testing.T) {
	r := newRig(t, discovery.Config{Grace: time.Minute, Deadline: 5 * time.Minute}, discovery.KindFile)
	r.hear(0, urls("a", "b"))
	r.want("a:8000", "b:8000")
	r.hear(0, urls("a"))
	r.want("a:8000", "b:8000 draining")
	r.pass(30 * time.Second)
	r.hear(0, urls("b", "a"))
	r.want("a:8000", "b:8000")
	r.hear(0, urls("a"))
	r.pass(59 * time.Second)
	r.want("a:8000", "b:8000 draining")
	r.pass(time.Second)
	r.want("a:8000")
}

func TestReplicaWithRequestsIsKeptForThem(t *testing.T) {
	r := newRig(t, discovery.Config{Grace: time.Minute, Deadline: 5 * time.Minute}, discovery.KindFile)
	r.busy["b:8000"], r.busy["c:8000"] = true, true
	r.hear(0, urls("a", "b", "c"))
	r.hear(0, urls("a"))
	r.pass(2 * time.Minute)
	r.want("a:8000", "b:8000 draining", "c:8000 draining")
	r.busy["b:8000"] = false
	r.pass(time.Second)
	r.want("a:8000", "c:8000 draining")
	r.pass(4 * time.Minute) // its deadline
	r.want("a:8000")
}

func TestSourceThatFailsKeepsWhatItSaid(t *testing.T) {
	r := newRig(t, discovery.Config{}, discovery.KindFile)
	r.hear(0, urls("a", "b"))
	at := r.now
	for range 10 {
		r.now = r.now.Add(time.Hour)
		r.hear(0, discovery.Snapshot{Err: errAway})
	}
	r.want("a:8000", "b:8000")
	r.problem(0, "is away")
	if s := r.Status()[0]; !s.At.Equal(at) || s.Failures != 10 || !s.Since.Equal(at.Add(time.Hour)) {
		t.Errorf("%+v", s)
	}
	if n := strings.Count(r.log.String(), "is away"); n != 1 {
		t.Errorf("said %d times:\n%s", n, r.log.String())
	}
	r.hear(0, urls("a", "b"))
	r.problem(0, "")
}

func TestEmptyAnswerIsNotBelievedAtOnce(t *testing.T) {
	r := newRig(t, discovery.Config{Keep: 2 * time.Minute, Grace: time.Minute}, discovery.KindDNS)
	r.hear(0, urls("a", "b", "c"))
	r.hear(0, urls())
	r.want("a:8000", "b:8000", "c:8000")
	r.problem(0, "listed 3")
	r.pass(time.Minute)
	r.hear(0, urls("a", "b"))
	r.want("a:8000", "b:8000", "c:8000 draining")
	r.problem(0, "")
	r.pass(time.Minute)
	r.hear(0, urls())
	r.pass(2*time.Minute - 1)
	r.want("a:8000", "b:8000")
	r.pass(1) // no further answer is needed
	r.want("a:8000 draining", "b:8000 draining")
	r.hear(0, urls())
	r.problem(0, "")
	r.pass(time.Minute)
	r.want()
	r.hear(0, urls("a"))
	r.want("a:8000")
	r.hear(0, urls()) // one may well go
	r.want("a:8000 draining")
}

// A name that does not resolve any more is said as such, once, before and after its
// replicas are let go.
func TestNameThatIsGoneIsSaidOnce(t *testing.T) {
	r := newRig(t, discovery.Config{Keep: time.Minute}, discovery.KindDNS)
	r.hear(0, urls("a", "b"))
	for range 20 {
		r.now = r.now.Add(10 * time.Second)
		r.hear(0, discovery.Snapshot{Err: errAway, Partial: true})
		r.problem(0, "is away")
	}
	r.want()
	if n := strings.Count(r.log.String(), "discovery fails"); n != 2 {
		t.Errorf("said %d times:\n%s", n, r.log.String())
	}
}

func TestTrustedSourceMayEmptyThePool(t *testing.T) {
	r := newRig(t, discovery.Config{}, discovery.KindKubernetes)
	r.hear(0, urls("a", "b"))
	r.hear(0, urls())
	r.want("a:8000 draining", "b:8000 draining")
}

func TestHalfAnAnswerIsTakenAndSaid(t *testing.T) {
	r := newRig(t, discovery.Config{}, discovery.KindDNS)
	r.hear(0, urls("a"))
	x := urls("a", "b")
	x.Err, x.Partial = errAway, true
	r.hear(0, x)
	r.want("a:8000", "b:8000")
	r.problem(0, "is away")
}

func TestSpellingsOfOneAddressAreOneReplica(t *testing.T) {
	r := newRig(t, discovery.Config{}, discovery.KindFile, discovery.KindKubernetes)
	r.hear(0, discovery.Snapshot{Replicas: []discovery.Found{{URL: "http://R1:8000"}, {URL: "HTTP://r1:8000/"}, {URL: "http://r1.:8000"}}})
	r.want("r1:8000")
	r.hear(0, discovery.Snapshot{Replicas: []discovery.Found{{URL: "http://r1:8000", Role: state.RolePrefill}, {URL: "http://R1:8000", Role: state.RoleDecode}}})
	r.want("r1:8000")
	r.problem(0, "two things of r1:8000")
	r.hear(0, discovery.Snapshot{Replicas: []discovery.Found{{URL: "http://r1:8000", Role: state.RoleDecode}}})
	r.want("r1:8000")
	if r.applied()[0].Role != state.RoleDecode {
		t.Errorf("%+v", r.applied()[0])
	}
	// Who knows its UID names it; there is one of it all the same.
	r.hear(1, discovery.Snapshot{Replicas: []discovery.Found{{ID: "uid-1", Name: "pod-1", URL: "http://r1:8000"}}})
	r.want("uid-1")
	r.hear(1, discovery.Snapshot{})
	r.want("r1:8000")
}

// A pod that was made anew under its former name and address is another replica,
// and gets what is new at once.
func TestAddressIsUsedAgain(t *testing.T) {
	r := newRig(t, discovery.Config{}, discovery.KindKubernetes)
	pod := func(uid, leaving string) discovery.Found {
		return discovery.Found{ID: state.ReplicaID(uid), Name: "pod", URL: "http://10.0.0.1:8000", Leaving: leaving}
	}
	r.hear(0, discovery.Snapshot{Replicas: []discovery.Found{pod("old", "")}})
	r.hear(0, discovery.Snapshot{Replicas: []discovery.Found{pod("old", "terminates")}})
	r.want("old draining")
	r.hear(0, discovery.Snapshot{Replicas: []discovery.Found{pod("old", "terminates"), pod("new", "")}})
	r.want("new")
	r.hear(0, discovery.Snapshot{Replicas: []discovery.Found{pod("newer", "")}})
	r.want("newer")
	r.hear(0, discovery.Snapshot{Replicas: []discovery.Found{pod("x", ""), {ID: "x", URL: "http://10.0.0.2:8000"}}})
	r.want("newer")
	r.problem(0, "gives the id x")
}

func TestRefusedReplicasAreSaid(t *testing.T) {
	allow, err := discovery.ParseAllow([]string{"10.0.0.0/8", ".svc"})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, discovery.Config{Allow: allow, Engine: state.EngineLlamaCpp}, discovery.KindFile)
	r.hear(0, discovery.Snapshot{Replicas: []discovery.Found{
		{URL: "http://10.1.2.3:8000"},
		{URL: "http://a.svc:8000"},
		{URL: "http://192.168.0.1:8000"},
		{URL: "http://evil.example"},
		{URL: "http://user:pw@10.0.0.1"},
		{URL: "http://10.0.0.1/x"},
		{URL: "http://а.svc:8000"},
		{URL: ""},
		{ID: "a/b", URL: "http://10.0.0.9:1"},
		{URL: "http://10.0.0.8:1", Role: state.RolePrefill},
		{URL: "http://10.0.0.7:1", Ranks: 2},
	}})
	r.want("10.1.2.3:8000", "a.svc:8000")
	s := r.Status()[0]
	if len(s.Refused) != 9 {
		t.Errorf("%d: %+v", len(s.Refused), s.Refused)
	}
	if strings.Contains(r.log.String(), "pw@") || strings.Contains(fmt.Sprint(s.Refused), "pw") {
		t.Errorf("told a password: %s", r.log.String())
	}
	if n := strings.Count(r.log.String(), "discovered replica refused"); n != 9 {
		t.Errorf("%d are said", n)
	}
	r.hear(0, urls("10.0.0.1"))
	if len(r.Status()[0].Refused) != 0 {
		t.Errorf("%+v", r.Status())
	}
}

func TestTooManyReplicas(t *testing.T) {
	r := newRig(t, discovery.Config{}, discovery.KindFile)
	r.hear(0, urls("a"))
	var many []string
	for i := range 5000 {
		many = append(many, fmt.Sprintf("h%d.x", i))
	}
	r.hear(0, urls(many...))
	r.want("a:8000")
	r.hear(0, discovery.Snapshot{Replicas: []discovery.Found{{URL: "http://b", Ranks: 5000}}})
	r.want("a:8000")
	r.problem(0, "5000")
}

// Whatever sources say in whatever order, what they list at the end is what there is,
// once what was listed before has had its time.
func TestListFollowsSources(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := []string{discovery.KindDNS, discovery.KindKubernetes}
		r := &rig{now: time.Now(), busy: map[state.ReplicaID]bool{}}
		cfg := discovery.Config{Name: "chat", Grace: time.Minute, Keep: time.Minute, Apply: r.apply}
		for _, k := range kinds {
			cfg.Sources = append(cfg.Sources, &script{kind: k, trust: k == discovery.KindKubernetes})
		}
		r.Pool = discovery.New(cfg)
		last := make([]discovery.Snapshot, len(kinds))
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			i := rapid.IntRange(0, len(kinds)-1).Draw(t, "source")
			x := urls(rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), rapid.ID[string]).Draw(t, "hosts")...)
			if i == 1 {
				for j := range x.Replicas {
					x.Replicas[j].ID = state.ReplicaID("uid-" + rapid.SampledFrom([]string{"1", "2"}).Draw(t, "uid") + x.Replicas[j].URL[7:8])
				}
			}
			if rapid.Bool().Draw(t, "fails") {
				x = discovery.Snapshot{Err: errAway}
			} else {
				last[i] = x
			}
			r.now = r.now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
			r.hear(i, x)
			seen := map[string]bool{}
			for _, l := range r.applied() {
				if seen[l.URL] {
					t.Fatalf("%s twice: %+v", l.URL, r.applied())
				}
				seen[l.URL] = true
			}
		}
		for i := range last {
			r.hear(i, last[i])
		}
		r.pass(time.Minute)
		r.pass(time.Minute)
		want := map[string]string{}
		for i := range last {
			for _, f := range last[i].Replicas {
				want[f.URL] = string(f.ID)
			}
		}
		for _, l := range r.applied() {
			if id, ok := want[l.URL]; !ok || l.Leaving != "" || id != "" && id != string(l.ID) {
				t.Fatalf("%+v, want %v", r.applied(), want)
			}
		}
		if len(r.applied()) != len(want) {
			t.Fatalf("%+v, want %v", r.applied(), want)
		}
	})
}

// Run joins what comes in quick succession, and removes when it is time, without
// further news.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{kind: discovery.KindFile, say: make(chan discovery.Snapshot)}
		reg := prometheus.NewPedanticRegistry()
		applied := make(chan []state.Replica, 10)
		p := discovery.New(discovery.Config{
			Name: "chat", Sources: []discovery.Source{s}, Grace: time.Minute, Log: zerolog.Nop(), Metrics: discovery.NewMetrics(reg),
			Apply: func(l []state.Replica) { applied <- l },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		if p.Answered() {
			t.Error("answered before it was asked")
		}
		s.say <- urls("a")
		s.say <- urls("a", "b")
		l := <-applied
		synctest.Wait()
		if len(l) != 2 || !p.Answered() {
			t.Errorf("%+v", l)
		}
		s.say <- urls("a")
		<-applied
		begun := time.Now()
		if l := <-applied; len(l) != 1 || time.Since(begun) < time.Minute-time.Second || time.Since(begun) > time.Minute+time.Second {
			t.Errorf("%+v after %v", l, time.Since(begun))
		}
		time.Sleep(time.Second)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, f := range families {
			text += f.String() + "\n"
		}
		for _, part := range []string{"hearsay_discovery_replicas", "hearsay_discovery_age_seconds", "hearsay_discovery_failures_total", "hearsay_discovery_refused", `value:"removed"`} {
			if !strings.Contains(text, part) {
				t.Errorf("no %s in\n%s", part, text)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
