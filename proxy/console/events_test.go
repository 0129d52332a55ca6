package console

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// followed is a console in a bubble.
type followed struct {
	t   *testing.T
	n   *simnet.Net
	f   *fake
	s   *Server
	end func() error
}

func follow(t *testing.T, f *fake, test func(x *followed)) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		ln, err := n.Host("router").Listen("tcp", ":8081")
		if err != nil {
			t.Fatal(err)
		}
		if f == nil {
			f = newFake()
		}
		s := New(Config{Listener: ln, Metrics: http.NotFoundHandler()}, f, f, f, f)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		ended := false
		x := &followed{t: t, n: n, f: f, s: s, end: func() error { cancel(); ended = true; return <-done }}
		test(x)
		if !ended {
			if err := x.end(); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
	})
}

// open asks for events.
func (x *followed) open(query string) (*http.Response, *bufio.Reader, func()) {
	x.t.Helper()
	tr := &http.Transport{DialContext: x.n.Host("operator").DialContext, DisableKeepAlives: true}
	req, _ := http.NewRequest("GET", "http://router:8081/admin/v1/events"+query, nil)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		x.t.Fatal(err)
	}
	synctest.Wait()
	return resp, bufio.NewReader(resp.Body), func() { _ = resp.Body.Close() }
}

// line is the next line of a stream of events that is not empty.
func line(t *testing.T, br *bufio.Reader) string {
	t.Helper()
	for {
		s, err := br.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ends: %v", err)
		}
		if s = strings.TrimSpace(s); s != "" {
			return s
		}
	}
}

// event reads the next event.
func event(t *testing.T, br *bufio.Reader) (e Event) {
	t.Helper()
	name := line(t, br)
	for n := 0; strings.HasPrefix(name, ":"); n++ {
		if name = line(t, br); n == 3 {
			t.Fatal("no event comes")
		}
	}
	data, ok := strings.CutPrefix(line(t, br), "data: ")
	if err := json.Unmarshal([]byte(data), &e); err != nil || !ok || name != "event: "+e.Kind {
		t.Fatalf("%q %q: %v", name, data, err)
	}
	return e
}

func TestEventsTellWhatChanges(t *testing.T) {
	f := newFake()
	f.members = []Member{{ID: "r1", Name: "one", State: "alive", Self: true, Leader: true}, {ID: "r2", Name: "two", State: "alive"}}
	const id = "127.0.0.1:8000"
	weigh := func(w state.Weight, panics bool) {
		f.store.SetWeights(&state.Weights{At: time.Now(), Replicas: map[state.ReplicaID]state.Weight{id: w}, Pools: map[string]state.PoolBalance{"chat": {Panic: panics}}})
	}
	follow(t, f, func(x *followed) {
		weigh(state.Weight{Slow: 1}, false)
		resp, br, leave := x.open("")
		defer leave()
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" || line(t, br) != ": events" {
			t.Fatalf("%d %v", resp.StatusCode, resp.Header)
		}
		_, only, leave2 := x.open("?kinds=leader,%20return")
		defer leave2()

		weigh(state.Weight{Ejected: true, Until: time.Now().Add(10 * time.Second), Reason: state.ReasonFailures, Failures: 5, Slow: 1}, true)
		e, p := event(t, br), event(t, br)
		if e.Kind != KindEjection || e.Pool != "chat" || e.Replica != id || e.Reason != state.ReasonFailures || e.Text == "" {
			t.Errorf("ejection: %+v", e)
		}
		if p.Kind != KindPanic || p.Pool != "chat" || p.To != "on" {
			t.Errorf("panic: %+v", p)
		}
		weigh(state.Weight{Trial: true, Ejected: true, Slow: 1}, false) // on trial is still out
		if p := event(t, br); p.Kind != KindPanic || p.To != "off" {
			t.Errorf("the end of a panic: %+v", p)
		}
		weigh(state.Weight{Slow: 1}, false)
		for _, br := range []*bufio.Reader{br, only} {
			if e := event(t, br); e.Kind != KindReturn || e.Replica != id || !e.At.Equal(time.Now()) && time.Since(e.At) > lookEvery {
				t.Errorf("return: %+v", e)
			}
		}

		v := *f.store.View()
		v.Facts.Decisions = []state.Decision{{ID: "d1", Pool: "chat", Role: state.RoleBoth, From: 1, To: 2, Reason: "load is high"}}
		f.store.SetFacts(v.Facts)
		if d := event(t, br); d.Kind != KindDecision || d.Decision != "d1" || d.From != "1" || d.To != "2" || d.Reason != "load is high" || d.Outcome != "" {
			t.Errorf("decision: %+v", d)
		}
		v.Facts.Index++
		v.Facts.Decisions = slices.Clone(v.Facts.Decisions)
		v.Facts.Decisions[0].Outcome = state.OutcomeDone
		f.store.SetFacts(v.Facts)
		if d := event(t, br); d.Kind != KindDecision || d.Outcome != string(state.OutcomeDone) {
			t.Errorf("its end: %+v", d)
		}

		x.s.looking.Lock() // fakes are not made for two goroutines
		f.members = []Member{{ID: "r1", Name: "one", State: "dead", Self: true}, {ID: "r3", Name: "three", State: "alive", Leader: true}}
		x.s.looking.Unlock()
		for _, want := range []string{"member one alive dead", "member three  alive", "member two alive forgotten", "leader three one three"} {
			e := event(t, br)
			if got := fmt.Sprintf("%s %s %s %s", e.Kind, e.Member, e.From, e.To); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		if e := event(t, only); e.Kind != KindLeader {
			t.Errorf("the one who wants less: %+v", e)
		}
	})
}

// What was so before somebody reads, or happened while nobody read, is no event.
func TestEventsKeepNothing(t *testing.T) {
	follow(t, nil, func(x *followed) {
		_, _, leave := x.open("")
		leave()
		time.Sleep(time.Second)
		x.s.looking.Lock()
		x.f.members = []Member{{ID: "r9", Name: "nine", State: "alive"}}
		x.s.looking.Unlock()
		x.s.events.Publish(Event{Kind: KindPick})
		_, br, leave := x.open("")
		defer leave()
		began := time.Now()
		for _, want := range []string{": events", ": here", ": here"} {
			if got := line(t, br); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		if d := time.Since(began); d != 2*beatEvery {
			t.Errorf("two beats took %v", d)
		}
	})
}

func TestPicksAreSampled(t *testing.T) {
	follow(t, nil, func(x *followed) {
		n := 0
		pick := func() {
			x.s.events.Pick(time.Now(), func() Event { n++; return Event{At: time.Now(), RequestID: fmt.Sprint(n)} })
		}
		pick()
		if n != 0 {
			t.Error("picks are told to nobody")
		}
		_, br, leave := x.open("?kinds=pick")
		defer leave()
		for range 1000 { // 10 s
			pick()
			time.Sleep(10 * time.Millisecond)
		}
		if n < 90 || n > 101 {
			t.Errorf("%d picks of 10 s", n)
		}
		sum := 0
		for i := range n {
			e := event(t, br)
			if e.Kind != KindPick || e.RequestID != fmt.Sprint(i+1) {
				t.Errorf("%+v", e)
			}
			sum += 1 + int(e.Count)
		}
		if sum < 980 || sum > 1000 {
			t.Errorf("%d picks are told or counted", sum)
		}
	})
}

// One who does not read loses events, is told how many, and in the end its place.
func TestSlowReadersOfEvents(t *testing.T) {
	e := NewEvents()
	r, fast := e.join(nil), e.join([]string{KindMember})
	for i := range heldEvents + 10 {
		e.Publish(Event{Kind: KindPick, RequestID: fmt.Sprint(i)})
	}
	if len(fast.events) != 0 || e.missed(fast) != 0 {
		t.Error("it got what it did not ask for")
	}
	if e.missed(r) != 0 {
		t.Error("told before what was held")
	}
	for i := range 2 {
		if x := <-r.events; x.RequestID != fmt.Sprint(i) {
			t.Errorf("%+v", x)
		}
	}
	e.Publish(Event{Kind: KindPick, RequestID: "next"})
	e.Publish(Event{Kind: KindPick, RequestID: "after"})
	var last []Event
	for len(r.events) > 0 {
		last = append(last, <-r.events)
	}
	last = last[len(last)-2:]
	if last[0].Kind != KindLost || last[0].Count != 10 || last[1].RequestID != "next" {
		t.Errorf("%+v", last)
	}
	if n := e.missed(r); n != 1 {
		t.Errorf("%d lost behind that", n)
	}
	e.leave(r)
	e.leave(r)
	if e.reading.Load() != 1 || e.picks.Load() != 0 {
		t.Errorf("%d read, %d picks", e.reading.Load(), e.picks.Load())
	}

	follow(t, nil, func(x *followed) {
		_, _, leave := x.open("")
		defer leave()
		text := strings.Repeat("x", 64<<10)
		for range 10 * heldEvents {
			x.s.events.Publish(Event{Kind: KindMember, Text: text})
		}
		time.Sleep(3 * readerStall)
		if x.s.events.Read() {
			t.Error("one who does not read keeps its place")
		}
	})
}

func TestReadersOfEventsAreFew(t *testing.T) {
	follow(t, nil, func(x *followed) {
		var leaves []func()
		for range maxReaders {
			resp, _, leave := x.open("")
			if resp.StatusCode != 200 {
				t.Fatal(resp.StatusCode)
			}
			leaves = append(leaves, leave)
		}
		refused := func(query string, status int, code string) {
			t.Helper()
			resp, br, leave := x.open(query)
			defer leave()
			b, _ := io.ReadAll(br)
			if resp.StatusCode != status || !strings.Contains(string(b), `"`+code+`"`) {
				t.Errorf("%d %s", resp.StatusCode, b)
			}
		}
		refused("", 503, "too_many_readers")
		refused("?kinds=pick,nothing", 400, "invalid")
		leaves[0]()
		time.Sleep(time.Second)
		resp, br, leave := x.open("")
		defer leave()
		if resp.StatusCode != 200 {
			t.Errorf("a place that is free again: %d", resp.StatusCode)
		}
		began := time.Now()
		if err := x.end(); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d >= time.Second {
			t.Errorf("the stop takes %v", d)
		}
		line(t, br)
		if _, err := br.ReadString(0); err != io.EOF {
			t.Errorf("its end: %v", err)
		}
		for _, leave := range leaves {
			leave()
		}
	})
}
