package main

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/autoscale"
	"github.com/hearsay-llm/hearsay/autoscale/actuator"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// day is a leader alone with a pool of simulated load, on a clock of its own: the
// autoscaler's loop, its facts, and what the admin API asks of a node.
type day struct {
	t       *testing.T
	now     time.Time
	store   *state.Store
	facts   *state.Facts
	loop    *autoscale.Loop
	reg     *prometheus.Registry
	tickets map[state.ReplicaID][]*state.Ticket
	differ  bool // routers differ in the pool's configuration
}

func newDay(t *testing.T) *day {
	d := &day{t: t, now: time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC), facts: state.NewFacts(), reg: prometheus.NewRegistry(), tickets: map[state.ReplicaID][]*state.Ticket{}}
	d.store = state.NewStore(state.Config{
		Self: "r1", Clock: state.NewClock(1, d.now), Now: func() time.Time { return d.now },
		Pools: []state.PoolSpec{{Name: "chat", Model: "m", ScaleMin: 1, ScaleMax: 6, ScaleActuator: state.DryRun, ScaleCooldown: 2 * time.Minute, ScaleDownWindow: 10 * time.Minute}},
	})
	var list []state.Replica
	for i := range 6 {
		list = append(list, state.Replica{ID: state.ReplicaID(fmt.Sprint("e", i)), URL: fmt.Sprintf("http://e%d:1", i), Role: state.RoleBoth})
	}
	d.store.SetReplicas(state.SourceStatic, "chat", list)
	d.facts.Index, d.facts.Epoch = 41, 41
	d.store.SetFacts(d.facts)
	var err error
	d.loop, err = autoscale.New(autoscale.Config{
		Self: "r1", Cluster: d, Committer: d, Actuators: map[string]autoscale.Actuator{state.DryRun: actuator.NewDryRun()},
		Default: autoscale.Capacity{Requests: 10, PrefillTokens: 10000}, Unsettled: func(string) bool { return d.differ }, Registerer: d.reg,
	})
	if err != nil {
		t.Fatal(err)
	}
	d.loop.Begin(d.facts.Epoch)
	return d
}

func (d *day) View() *state.View                                    { return d.store.View() }
func (d *day) Live() []state.RouterID                               { return []state.RouterID{"r1"} }
func (d *day) Info() (i console.Info)                               { return i }
func (d *day) Ready() (bool, []string)                              { return true, nil }
func (d *day) Members() []console.Member                            { return []console.Member{{ID: "r1", Name: "one"}} }
func (d *day) Figures() (f console.Figures)                         { return f }
func (d *day) Hindrance(state.TargetKey) string                     { return "" }
func (d *day) Sketch(state.ReplicaID) (s console.Sketch)            { return s }
func (d *day) Speed(state.ReplicaID) (s console.Speed)              { return s }
func (d *day) Refused() map[string]int64                            { return nil }
func (d *day) Partings(string) []prefix.Parting                     { return nil }
func (d *day) Config() any                                          { return nil }
func (d *day) Queue(*state.View, *state.PoolView) (q console.Queue) { return q }

func (d *day) Refusals() (list []console.Refusal) {
	for _, r := range d.loop.Refused() {
		list = append(list, console.Refusal{Key: r.Key, First: r.First, Last: r.Last, Count: r.Count, From: r.From, To: r.To, Reason: r.Reason, Text: r.Text, After: r.After})
	}
	return list
}

func (d *day) Commit(_ context.Context, c state.Command) error {
	f := d.facts.Clone()
	f.Index++
	switch c.Kind {
	case state.CommandSetTarget:
		x := *c.Decision
		x.Index, x.Seen = f.Index, d.now
		f.Targets[state.TargetKey{Pool: x.Pool, Role: x.Role}] = x.To
		f.Decisions = append(f.Decisions, x)
	case state.CommandSettle:
		x := f.Decision(c.Settles)
		x.Outcome, x.Detail, x.DoneAt = c.Outcome, c.Detail, c.At
	default:
		d.t.Errorf("a dry run commits %s", c.Kind)
	}
	d.facts = f
	d.store.SetFacts(f)
	return nil
}

// pass lets time pass with so many requests under way.
func (d *day) pass(t time.Duration, requests int) {
	d.t.Helper()
	d.now = d.now.Add(t)
	p := d.View().PoolNamed("chat")
	for i, r := range p.Replicas {
		n := requests / len(p.Replicas)
		if i < requests%len(p.Replicas) {
			n++
		}
		list := d.tickets[r.ID]
		for ; len(list) < n; list = append(list, d.store.Begin(r, 0)) {
		}
		for _, x := range list[n:] {
			x.End()
		}
		d.tickets[r.ID] = list[:n]
		x := state.UnknownReading(r.ID)
		x.OK, x.At, x.Running = true, d.store.Clock().Stamp(d.now), float64(n)
		d.store.ApplyReading(x)
	}
	if err := d.loop.Step(context.Background(), d.now); err != nil {
		d.t.Fatal(err)
	}
}

// serve starts the admin API over the day.
func (d *day) serve() string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		d.t.Fatal(err)
	}
	s := console.New(console.Config{Listener: ln, Metrics: http.NotFoundHandler(), Log: zerolog.Nop()}, d, nil, nil, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx)
	}()
	d.t.Cleanup(func() { cancel(); <-done })
	return "http://" + ln.Addr().String()
}

// refusals is how many plans were refused, by the metrics.
func (d *day) refusals() (n float64) {
	families, err := d.reg.Gather()
	if err != nil {
		d.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "hearsay_scale_refusals_total" {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// Over a whole day of load every decision has one line, every refusal is in one, and
// every line fits.
func TestScaleLogOfADay(t *testing.T) {
	d := newDay(t)
	for at := time.Duration(0); at < 24*time.Hour; at += 5 * time.Second {
		d.differ = at > 4*time.Hour && at < 7*time.Hour
		hours := at.Hours()
		load := 22 - 22*math.Cos(2*math.Pi*hours/24) + 6*math.Sin(2*math.Pi*hours) // at 7.5 a replica: 0 to 7 of them
		d.pass(5*time.Second, max(0, int(load)))
	}
	server := d.serve()
	lines := strings.Split(strings.TrimSuffix(call(t, "scale", "log", "--server", server).out, "\n"), "\n")
	if len(d.facts.Decisions) < 10 {
		t.Fatalf("only %d decisions in a day", len(d.facts.Decisions))
	}
	for i := range d.facts.Decisions {
		x := &d.facts.Decisions[i]
		n := 0
		for _, l := range lines {
			if f := strings.Fields(l); len(f) > 6 && f[2] == x.ID {
				n++
				if f[3] != "chat/both" || f[4] != fmt.Sprintf("%d->%d", x.From, x.To) || f[5] != "recorded" {
					t.Errorf("%+v has the line %s", x, l)
				}
			}
		}
		if n != 1 {
			t.Errorf("%s has %d lines", x.ID, n)
		}
	}
	refused := 0
	for _, r := range d.loop.Refused() {
		refused += r.Count
	}
	if float64(refused) != d.refusals() || refused == 0 {
		t.Errorf("%d refusals are on record, %v were counted", refused, d.refusals())
	}
	if want := 1 + len(d.facts.Decisions) + len(d.loop.Refused()); len(lines) != want {
		t.Errorf("%d lines, want %d", len(lines), want)
	}
	if n := len(d.loop.Refused()); n > refused/3 {
		t.Errorf("%d lines tell of %d refusals: repeats are not put together", n, refused)
	}
	for i, l := range lines {
		if n := utf8.RuneCountInString(l); n > logWidth {
			t.Errorf("line %d has %d columns: %s", i, n, l)
		}
	}
	all := strings.Join(lines, "\n")
	for _, part := range []string{"config, ", " times since ", "maximum, ", "the load would have fitted"} {
		if !strings.Contains(all, part) {
			t.Errorf("no line says %q", part)
		}
	}
	// One decision in full: with its evidence, and what was refused before the next.
	for _, r := range d.loop.Refused() {
		if r.Reason == "config" && r.After != "" {
			call(t, "scale", "log", r.After, "--server", server).wants(t, 0, "decision  "+r.After+"\n", "evidence  ", "  utilisation_target       0.75", "refused   ", ", config, ")
		}
	}
	call(t, "scale", "log", "--server", server, "-n", "3").wants(t, 0)
	if n := strings.Count(call(t, "scale", "log", "--server", server, "-n", "3").out, "\n"); n != 4 {
		t.Errorf("-n 3 gives %d lines", n)
	}
}

// However long what stands in it is, a line fits; in full it is whole.
func TestScaleLogLinesFit(t *testing.T) {
	now := time.Now()
	long := strings.Repeat("long ", 200)
	list := []console.Decision{
		{ID: "op-" + strings.Repeat("x", 60), At: now, Pool: strings.Repeat("pool-", 20), Role: "prefill", From: 100000, To: 200000, Reason: long},
		{At: now, Pool: "chat", Role: "both", From: 1, To: 2, Outcome: "refused", Refused: "cooldown", Count: 14, Since: &now, Detail: "ünïcödé " + long},
		{ID: "d1-1", At: now, Pool: "chat", Role: "both", From: 1, To: 2, Outcome: "superseded", DoneAt: &now, Reason: "short", Detail: "by\x1b[31m d1-2"},
	}
	var b strings.Builder
	if err := printScaleLog(&b, list, outputTable, now); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 4 || strings.Contains(b.String(), "\x1b") || !strings.Contains(lines[2], "cooldown, 14") {
		t.Errorf("%s", b.String())
	}
	for _, l := range lines {
		if n := utf8.RuneCountInString(strings.TrimRight(l, " ")); n > logWidth {
			t.Errorf("%d columns: %s", n, l)
		}
	}
	b.Reset()
	if err := printScaleLog(&b, list, outputWide, now); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), strings.TrimSpace(long)) {
		t.Error("wide, a text is not whole")
	}
}

func TestDecisionIsFoundByTheBeginningOfItsID(t *testing.T) {
	list := []console.Decision{{Refused: "hold"}, {ID: "d4-1"}, {ID: "d4-12"}, {ID: "d4-2"}, {ID: "op-abc"}}
	f := func(id string, want int, parts ...string) {
		t.Helper()
		at, err := findDecision(list, id)
		if (err == nil) != (len(parts) == 0) || err == nil && at != want {
			t.Errorf("%s: %d, %v", id, at, err)
		}
		for _, p := range parts {
			if !strings.Contains(err.Error(), p) {
				t.Errorf("%s: %v", id, err)
			}
		}
	}
	f("d4-1", 1)
	f("d4-2", 3)
	f("op", 4)
	f("op-a..", 4)
	f("d4-", 0, "3 decisions begin with d4-")
	f("d5", 0, "no decision d5")
}

// Whom a follower's log sends to the leader is told an address that --server takes, or
// that none is known.
func TestLogSaysHowToAskTheLeader(t *testing.T) {
	f := func(want, admin, own, leader string) {
		t.Helper()
		asked := console.Info{ID: "a", Admin: admin, Raft: console.Raft{Leader: "b", LeaderName: "r3"}}
		if got := howToAsk(&asked, []console.Member{{ID: "a", Self: true, API: own}, {ID: "b", API: leader}}); got != want {
			t.Errorf("%s", got)
		}
	}
	f("ask r3 with --server 10.0.0.3:8081, if its admin port is this one's", "[::]:8081", "10.0.0.1:8080", "10.0.0.3:8080")
	f("give --server the admin address of r3, whose API is at 10.0.0.1:8082", "0.0.0.0:8081", "10.0.0.1:8080", "10.0.0.1:8082")
	f("run this at r3, whose API is at 10.0.0.3:8080, or give --server its admin address", "127.0.0.1:8081", "10.0.0.1:8080", "10.0.0.3:8080")
	f("give --server the admin address of r3", "0.0.0.0:8081", "10.0.0.1:8080", "")

	told := func(want, admin, cluster string) {
		t.Helper()
		asked := console.Info{ID: "a", Admin: "127.0.0.1:8081", Raft: console.Raft{Leader: "b", LeaderName: "r3"}}
		got := howToAsk(&asked, []console.Member{
			{ID: "a", Self: true, API: "10.0.0.1:8080", Cluster: "10.0.0.1:7946"},
			{ID: "b", API: "10.0.0.3:8080", Admin: admin, Cluster: cluster},
		})
		if got != want {
			t.Errorf("%s", got)
		}
	}
	told("ask r3 with --server 10.0.0.3:8281", "10.0.0.3:8281", "10.0.0.3:7946")
	told("run this on the host of r3 (10.0.0.3) with --server 127.0.0.1:8281", "127.0.0.1:8281", "10.0.0.3:7946")
	told("ask r3 with --server 127.0.0.1:8281", "127.0.0.1:8281", "10.0.0.1:7946") // it shares this one's host
}
