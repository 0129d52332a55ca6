package cases

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

// Limits bound silence, not length. What falls silent is ended, and says so.
func TestC09Timeouts(t *testing.T) {
	t.Parallel()
	inBubble(t, timeouts)
}

func timeouts(t *testing.T, w *world) {
	const idle = 250 * time.Millisecond
	e := w.engine(t, nil)
	p := pool(e)
	p.Timeouts = node.TimeoutConfig{Connect: time.Second, FirstByte: 700 * time.Millisecond, Idle: idle, Total: 1500 * time.Millisecond}
	p.Breaker = node.BreakerConfig{Failures: 1000, MaxEjected: 0.01}
	r := w.start(t, setup{}, p)
	pause := func(g *got, d time.Duration) (gone bool) { // unless the router leaves before
		_ = g.conn.SetReadDeadline(time.Now().Add(d))
		defer func() { _ = g.conn.SetReadDeadline(time.Time{}) }()
		_, err := g.br.ReadByte()
		ne, ok := err.(net.Error)
		return !ok || !ne.Timeout()
	}

	e.becomes(func(g *got) bool { // four times the idle limit
		ok := g.stream(role)
		for range 8 {
			ok = !pause(g, idle/2) && g.write(chunks(token("a")))
		}
		return ok && g.write(chunks(finish, done)+lastChunk)
	})
	if a := r[0].chat(askStream); a.err != nil || a.body != role+strings.Repeat(token("a"), 8)+finish+done {
		t.Errorf("a slow stream: %d bytes, %v", len(a.body), a.err)
	}
	e.becomes(func(g *got) bool { return !pause(g, 2*idle) && healthy(g) })
	if a := r[0].chat(ask); a.StatusCode != 200 || a.body != good {
		t.Errorf("a late head: %d %q", a.StatusCode, a.body)
	}

	came := role + strings.Repeat(token("a"), 5)
	f := func(name, body, reason, came string, says func(*got) bool) {
		e.becomes(says)
		e.forget()
		before := r[0].metric("hearsay_broken_answers_total", `reason="`+reason+`"`)
		began := time.Now()
		a := r[0].chat(body)
		if d := time.Since(began); d < idle {
			t.Errorf("%s: ended after %v", name, d)
		}
		a.body = strings.ReplaceAll(a.body, token("z"), "")
		a.brokenOff(t, name, came)
		until(t, name+": the engine sees it", func() bool { return e.gones() == 1 })
		settled(t, r, e)
		if n := r[0].metric("hearsay_broken_answers_total", `reason="`+reason+`"`) - before; n != 1 {
			t.Errorf("%s: counted %v times as %s", name, n, reason)
		}
	}
	silent := func(s ...string) func(*got) bool {
		return func(g *got) bool { g.stream(s...); g.gone(); return false }
	}
	f("silent after events", askStream, "idle_timeout", came, silent(came))
	f("silent after events, usage asked for", askUsage, "idle_timeout", came, silent(came))
	f("silent within an event", askStream, "idle_timeout", came, silent(came, "data: {\"id\""))
	f("silent within a chunk", askStream, "idle_timeout", came, func(g *got) bool {
		g.write(streamHead + chunks(came) + "40\r\ndata: {")
		g.gone()
		return false
	})
	f("a stream without an end", askStream, "total_timeout", "", func(g *got) bool {
		for ok := g.stream(); ok; ok = !pause(g, idle/4) {
			if !g.write(chunks(token("z"))) {
				break
			}
		}
		g.gone()
		return false
	})

	e.becomes(func(g *got) bool { g.gone(); return false })
	e.forget()
	for _, body := range []string{ask, askStream} {
		if a := r[0].chat(body); a.StatusCode != 504 || !strings.Contains(a.body, "upstream_timeout") {
			t.Errorf("no head at all: %d %q", a.StatusCode, a.body)
		}
	}
	until(t, "the engine sees it", func() bool { return e.gones() == 2 })
	settled(t, r, e)
}

// beats reads an answer as it comes and sorts it: comments and the rest.
func (a answer) beats() (n int, rest string) {
	const beat = ": waiting\n\n"
	return strings.Count(a.body, beat), strings.ReplaceAll(a.body, beat, "")
}

// While an engine is silent its client hears comments, and another replica may still
// answer.
func TestC10Heartbeats(t *testing.T) {
	t.Parallel()
	inBubble(t, heartbeats)
}

func heartbeats(t *testing.T, w *world) {
	const beat, silence = 100 * time.Millisecond, 350 * time.Millisecond
	one, two, three := w.engine(t, nil), w.engine(t, nil), w.engine(t, healthy)
	pair, single, off := pool(one, two), pool(one), pool(three)
	pair.Heartbeat, single.Heartbeat = beat, beat
	pair.Retry.Attempts = 2
	single.Name, single.Model, single.Aliases = "single", "alone", nil
	off.Name, off.Model, off.Aliases = "off", "quiet", nil
	one.models, three.models = []string{"alone"}, []string{"quiet"}
	r := w.start(t, setup{}, pair, off)
	alone := w.start(t, setup{}, single)
	whole := role + token("Hi") + finish + done
	late := func(then func(*got) bool) func(*got) bool {
		return func(g *got) bool { <-time.After(silence); return then(g) }
	}
	f := func(name string, s *stream, want string) answer {
		t.Helper()
		a := s.rest()
		n, rest := a.beats()
		if n < 2 || n > 5 {
			t.Errorf("%s: %d comments in about 3 intervals", name, n)
		}
		if rest != want {
			t.Errorf("%s: got %q, want %q", name, rest, want)
		}
		return a
	}
	one.becomes(late(healthy))
	two.becomes(late(healthy))
	for _, body := range []string{askStream, askUsage} {
		want := whole
		if body == askUsage {
			want = role + token("Hi") + finish + usage + done
		}
		if a := f("a late head", r[0].open(body), want); a.err != nil || a.StatusCode != 200 || a.Header.Get("Content-Type") != "text/event-stream" || a.Header.Get("X-Request-Id") == "" {
			t.Errorf("a late head: %v, %v", a.Header, a.err)
		}
	}
	one.becomes(func(g *got) bool {
		g.stream()
		<-time.After(silence)
		return g.write(chunks(role, finish, done) + lastChunk)
	})
	f("a late first event", alone[0].open(strings.Replace(askStream, `"m"`, `"alone"`, 1)), role+finish+done)

	// Comments stand between events only, whatever the router holds of one.
	half := token("Hi")
	for _, body := range []string{askStream, askUsage} {
		body = strings.Replace(body, `"m"`, `"alone"`, 1)
		one.becomes(func(g *got) bool {
			g.stream(role, half[:20])
			<-time.After(silence)
			return g.write(chunks(half[20:], finish, done) + lastChunk)
		})
		a := alone[0].chat(body)
		if n, rest := a.beats(); rest != whole || a.err != nil || strings.Contains(a.body, half[:20]+": ") || body != askUsage && strings.Contains(body, "include_usage") && n != 0 {
			t.Errorf("half an event: %q, %v", a.body, a.err)
		}
		for _, block := range strings.SplitAfter(a.body, "\n\n") {
			if block != "" && !strings.HasPrefix(block, "data: ") && block != ": waiting\n\n" {
				t.Errorf("half an event: a block is %q", block)
			}
		}
	}
	// Between events, also where the next one's framing has begun.
	one.becomes(func(g *got) bool {
		g.write(streamHead + chunks(role) + "4")
		<-time.After(silence)
		return g.write("\r\n") && false
	})
	if a := alone[0].chat(strings.Replace(askUsage, `"m"`, `"alone"`, 1)); !strings.HasPrefix(a.body, role+": waiting\n\n: waiting\n\n") || a.err == nil {
		t.Errorf("within a chunk's size: %q, %v", a.body, a.err)
	}

	// Another replica answers when the first one dies, as long as there were comments alone.
	for name, dies := range map[string]func(*got) bool{
		"dies":               func(*got) bool { return false },
		"500":                says(reply(500, oops)),
		"an error event":     streams(errorEvent("InternalServerError", 500), done),
		"stream that breaks": func(g *got) bool { g.stream(": ping\n\n"); return false },
	} {
		first := make(chan bool, 1)
		first <- true
		both := func(g *got) bool {
			select {
			case <-first:
				return late(dies)(g)
			default:
				return healthy(g)
			}
		}
		one.becomes(both)
		two.becomes(both)
		a := r[0].open(askStream, "x-hearsay-debug: 1").rest()
		n, rest := a.beats()
		if rest = strings.TrimPrefix(rest, ": ping\n\n"); rest != whole || a.err != nil || n < 2 {
			t.Errorf("%s: got %q, %v", name, a.body, a.err)
		}
	}
	// With no other one there is one error event, and no clean end.
	one.becomes(late(func(*got) bool { return false }))
	a := alone[0].chat(strings.Replace(askStream, `"m"`, `"alone"`, 1))
	_, a.body = a.beats()
	a.brokenOff(t, "alone", "")
	if !strings.Contains(a.body, "upstream_error") || alone[0].metric("hearsay_broken_answers_total", `reason="no_answer"`) != 1 {
		t.Errorf("alone: %q", a.body)
	}
	// A client's mistake is told in the engine's words.
	one.becomes(late(says(reply(400, `{"error":{"message":"too long for me","type":"BadRequestError","param":null,"code":400}}`))))
	a = alone[0].chat(strings.Replace(askStream, `"m"`, `"alone"`, 1))
	if _, rest := a.beats(); !strings.HasPrefix(rest, `data: {"error":{"message":"too long for me"`) || strings.Count(rest, "\n\n") != 1 || a.err == nil {
		t.Errorf("a late 400: %q, %v", a.body, a.err)
	}
	// What is no stream gets none, nor does a pool that asked for none.
	one.becomes(late(healthy))
	if a := alone[0].chat(strings.Replace(ask, `"m"`, `"alone"`, 1)); a.body != good {
		t.Errorf("no stream: %q", a.body)
	}
	three.becomes(late(healthy))
	if a := r[0].chat(strings.Replace(askStream, `"m"`, `"quiet"`, 1)); a.body != whole {
		t.Errorf("heartbeats off: %q", a.body)
	}
	// An engine's own comments pass at once, and are no answer.
	got1 := make(chan struct{})
	three.becomes(func(g *got) bool {
		g.stream(": ping\n\n")
		<-got1
		return g.write(chunks(role, finish, done) + lastChunk)
	})
	s := r[0].open(strings.Replace(askStream, `"m"`, `"quiet"`, 1))
	s.expect(": ping\n\n")
	close(got1)
	if a := s.rest(); a.body != role+finish+done || a.err != nil {
		t.Errorf("an engine's own comment: %q, %v", a.body, a.err)
	}
	// The connection goes on to serve.
	three.becomes(healthy)
	if _, err := io.WriteString(s.conn, post(strings.Replace(ask, `"m"`, `"quiet"`, 1))); err != nil {
		t.Error(err)
	}
	s.resp = nil
	if a := s.rest(); a.body != good {
		t.Errorf("the next answer on the connection: %q", a.body)
	}
	settled(t, r, one, two, three)
	settled(t, alone, one)
}

// A client that leaves while it hears comments is noticed as any other.
func TestC10ClientLeavesBetweenHeartbeats(t *testing.T) {
	t.Parallel()
	inBubble(t, leavesBetweenHeartbeats)
}

func leavesBetweenHeartbeats(t *testing.T, w *world) {
	e := w.engine(t, func(g *got) bool { g.gone(); return false })
	p := pool(e)
	p.Heartbeat = 100 * time.Millisecond
	r := w.start(t, setup{}, p)
	s := r[0].open(askStream)
	s.expect(": waiting\n\n: waiting\n\n")
	_ = s.conn.Close()
	within(t, time.Second, "the engine sees the close", func() bool { return e.gones() == 1 })
	settled(t, r, e)
	until(t, "it is counted", func() bool {
		return r[0].metric("hearsay_client_disconnects_total", `phase="waiting"`) == 1 && r[0].metric("hearsay_requests_total", `code="499"`) == 1
	})
	if n := r[0].metric("hearsay_time_to_first_token_seconds_count"); n != 0 {
		t.Errorf("%v first tokens", n)
	}
}

// A client that does not read holds its engine up, not the router, and is cut off.
func TestC11ClientThatDoesNotRead(t *testing.T) {
	const stalled = 20
	line := token(strings.Repeat("x", 900))
	block := chunks(strings.Repeat(line, 60))
	wrote := make(chan int, stalled)
	e := newEngine(t, func(g *got) bool {
		if !strings.Contains(g.body, "flood") {
			return healthy(g)
		}
		n := 0
		for ok := g.stream(role); ok && n < 200<<20; n += len(block) {
			ok = g.write(block)
		}
		g.gone()
		wrote <- n
		return false
	})
	p := pool(e)
	// All are opened before the first has been held up for so long.
	r := start(t, setup{node: func(c *node.Config) { c.API.WriteStall = 6 * time.Second }}, p)
	before := heap()
	var all []*stream
	for range stalled {
		s := r[0].open(strings.Replace(askStream, "Hello there", "flood", 1))
		b := make([]byte, 4<<10)
		if _, err := io.ReadFull(s.head().Body, b); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if n := r[0].inFlight(e); n != stalled {
		t.Errorf("%v in flight while %d are held up", n, stalled)
	}
	most := uint64(0)
	for range 5 {
		if a := r[0].chat(ask); a.StatusCode != 200 || a.body != good {
			t.Errorf("the client that reads: %d %q, %v", a.StatusCode, a.body, a.err)
		}
		most = max(most, heap())
	}
	if grew := int64(most) - int64(before); grew > stalled<<20 {
		t.Errorf("memory grew by %d KiB for %d stalled streams", grew>>10, stalled)
	}
	for range stalled {
		if n := <-wrote; n > 16<<20 {
			t.Errorf("the engine got rid of %d MiB at a client that does not read", n>>20)
		}
	}
	settled(t, r, e)
	if n := r[0].metric("hearsay_broken_answers_total", `reason="write_stall"`); n != stalled {
		t.Errorf("%v counted as stalled", n)
	}
	if e.gones() != stalled || r[0].is(e, "ejected") {
		t.Errorf("the engine saw %d closes", e.gones())
	}
	for _, s := range all {
		if a := s.rest(); a.err == nil {
			t.Error("a stalled stream ends as if it were whole")
		}
	}
}
