package cases

import (
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

// A stream that its engine breaks off is broken off for the client too: an error
// event at most, then an aborted body. It counts as the replica's failure.
func TestC01UpstreamDiesMidStream(t *testing.T) {
	t.Parallel()
	came := role + token("a") + token("b") + token("c")
	e := newEngine(t, nil)
	p := pool(e)
	p.Breaker = node.BreakerConfig{Failures: 1, Open: time.Hour, MaxEjected: 1}
	f := func(name, body, head string, frame func(...string) string, die func(*got)) {
		t.Run(name, func(t *testing.T) {
			r := start(t, setup{}, p)
			e.becomes(healthy)
			if a := r[0].chat(askStream); a.err != nil {
				t.Fatalf("a whole stream: %v", a.err)
			}
			if r[0].is(e, "ejected") {
				t.Fatal("a whole stream counts as a failure")
			}
			seen := make(chan struct{})
			e.becomes(func(g *got) bool {
				g.write(head + frame(role, token("a"), token("b"), token("c")))
				<-seen // a reset would overtake what was written
				die(g)
				return false
			})
			s := r[0].open(body)
			s.expect(came)
			close(seen)
			a := s.rest()
			a.body = came + a.body
			a.brokenOff(t, name, came)
			settled(t, r, e)
			until(t, "the replica's failure counts", func() bool { return r[0].is(e, "ejected") })
			if n := r[0].metric("hearsay_broken_answers_total", `reason="stream_broken"`); n != 1 {
				t.Errorf("%v broken answers", n)
			}
		})
	}
	plain := func(s ...string) string { return strings.Join(s, "") }
	fin := func(*got) {}
	f("RST", askStream, streamHead, chunks, (*got).reset)
	f("FIN without the last chunk", askStream, streamHead, chunks, fin)
	f("FIN, usage asked for", askUsage, streamHead, chunks, fin)
	f("FIN within a chunk", askUsage, streamHead, func(s ...string) string { return chunks(s...) + "40\r\n" }, fin)
	f("FIN of a stream that ends with its connection", askUsage, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n", plain, fin)
	f("FIN before its length", askUsage, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100000\r\n\r\n", plain, fin)
}

// An engine that refuses in the first event of a 200 has not answered: another one
// is asked, or the client hears a status.
func TestC03FirstEventIsAnError(t *testing.T) {
	t.Parallel()
	one, two := newEngine(t, nil), newEngine(t, healthy)
	p := pool(one, two)
	p.Policy = "round_robin"
	p.Breaker = node.BreakerConfig{Failures: 1000, Open: time.Hour, MaxEjected: 1}
	both := start(t, setup{}, p)[0]
	p = pool(one)
	p.Breaker = node.BreakerConfig{Failures: 1, Open: time.Hour, MaxEjected: 1}
	alone := start(t, setup{}, p)[0]
	whole := role + token("Hi") + finish + done

	// Turns are taken, so sooner or later the first engine is asked first. Enough good
	// answers of it lie between that it stays in traffic.
	meets := func(says func(*got) bool, check func(answer)) {
		one.becomes(healthy)
		one.forget()
		until(t, "good answers", func() bool { both.chat(askStream); return len(one.requests()) >= 2 })
		one.becomes(says)
		one.forget()
		two.forget()
		until(t, "asked first", func() bool { check(both.chat(askStream)); return len(one.requests()) > 0 })
	}
	for name, says := range map[string]func(*got) bool{
		"code 500":                  streams(errorEvent("InternalServerError", 500), done),
		"code 500 behind a comment": streams(": ping\n\n", errorEvent("InternalServerError", 500), done),
		"code 503":                  streams(errorEvent("ServiceUnavailable", 503), done),
		"a type and no code":        streams(`data: {"error":{"message":"x","type":"InternalServerError"}}`+"\n\n", done),
		"older form":                streams(`data: {"object":"error","message":"x","type":"InternalServerError","param":null,"code":500}`+"\n\n", done),
		"an event named error":      streams("event: error\ndata: {\"error\":{\"message\":\"x\",\"type\":\"server_error\"}}\n\n"),
		"no event at all":           streams(),
		"comments alone":            streams(": ping\n\n", ": ping\n\n"),
	} {
		meets(says, func(a answer) {
			if got := strings.ReplaceAll(a.body, ": ping\n\n", ""); a.StatusCode != 200 || got != whole || a.err != nil {
				t.Errorf("%s: got %d %q, %v", name, a.StatusCode, a.body, a.err)
			}
		})
	}
	sent, refused := 0, 0
	meets(streams(errorEvent("BadRequestError", 400), done), func(a answer) {
		sent++
		if a.StatusCode == 400 && strings.Contains(a.body, "EngineCore encountered an issue.") && !strings.Contains(a.body, "data:") {
			refused++
		} else if a.body != whole {
			t.Errorf("code 400: got %d %q", a.StatusCode, a.body)
		}
	})
	if refused != 1 || len(two.requests()) != sent-1 {
		t.Errorf("code 400: %d of %d refused, the other engine got %d", refused, sent, len(two.requests()))
	}
	if a := alone.chat(askStream); a.StatusCode != 400 {
		t.Errorf("code 400 alone: got %d %q", a.StatusCode, a.body)
	}
	if a := alone.chat(askStream); a.StatusCode != 400 || alone.is(one, "ejected") {
		t.Errorf("code 400 opens the breaker: %d %q", a.StatusCode, a.body)
	}
	one.becomes(streams(errorEvent("InternalServerError", 500), done))
	if a := alone.chat(askStream); a.StatusCode != 502 || !strings.HasPrefix(a.Header.Get("Content-Type"), "application/json") || !strings.Contains(a.body, `"error"`) {
		t.Errorf("code 500 alone: got %d %q", a.StatusCode, a.body)
	}
	settled(t, []*router{both, alone}, one, two)
}

// Wherever the network cuts, the client's bytes are the engine's.
func TestC05CharactersCutByTheNetwork(t *testing.T) {
	t.Parallel()
	all := role + token("那个 🌍 é") + token(`\ud83c`) + token(`\udf0d`) + finish + done
	perChunk := func(g *got) bool { // every byte is a chunk and a packet of its own
		_ = g.conn.(*net.TCPConn).SetNoDelay(true)
		ok := g.write(streamHead)
		for i := range len(all) {
			ok = ok && g.write(chunks(all[i:i+1]))
		}
		return ok && g.write(lastChunk)
	}
	perByte := func(g *got) bool { // framing is cut as well
		_ = g.conn.(*net.TCPConn).SetNoDelay(true)
		ok := true
		for _, b := range []byte(streamHead + chunks(role+token("那个 🌍 é")+token(`\ud83c`), token(`\udf0d`)+finish+done) + lastChunk) {
			ok = ok && g.write(string([]byte{b}))
		}
		return ok
	}
	e := newEngine(t, nil)
	e.model = "other"
	p := pool(e)
	p.UpstreamModel = "other"
	r := start(t, setup{}, p)[0]
	for name, says := range map[string]func(*got) bool{"each byte a chunk": perChunk, "each byte a packet": perByte} {
		e.becomes(says)
		for _, body := range []string{askStream, askUsage, strings.Replace(askStream, `"m"`, `"fast"`, 1)} {
			want := all
			if strings.Contains(body, `"fast"`) { // the name that the client used
				want = strings.ReplaceAll(all, `"model":"m"`, `"model":"fast"`)
			}
			if a := r.chat(body); a.body != want || a.err != nil {
				t.Errorf("%s, %s: got %q, %v", name, body, a.body, a.err)
			}
		}
	}
	for _, g := range e.requests() {
		if !strings.Contains(g.body, `"model":"other"`) {
			t.Errorf("the engine got %s", g.body)
		}
	}
}

// An event may be as long as 16 MiB. A longer one ends the stream, visibly.
func TestC06LongLines(t *testing.T) {
	e := newEngine(t, nil)
	r := start(t, setup{}, pool(e))[0]
	call := func(size int) string {
		return `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"` + strings.Repeat("a", size) + `"}}]},"finish_reason":null}]}` + "\n\n"
	}
	before, served := heap(), 0.0
	for _, size := range []int{65_537 - 100, 65_537, 1<<20 + 1, 4 << 20} {
		e.becomes(streams(role, call(size), usage, done))
		for body, want := range map[string]string{askStream: role + call(size) + done, askUsage: role + call(size) + usage + done} {
			if a := r.chat(body); a.body != want || a.err != nil {
				t.Errorf("%d bytes: got %d bytes of %d, %v", size, len(a.body), len(want), a.err)
			}
			served++
		}
	}
	if n := r.metric("hearsay_tokens_total", `type="output"`); n != 3*served {
		t.Errorf("%v output tokens of %v answers of 3", n, served)
	}
	e.becomes(streams(role, call(17<<20), usage, done))
	for _, body := range []string{askStream, askUsage} {
		a := r.chat(body)
		if body == askUsage { // passed on as it came, so that the end can't be between events
			if a.err == nil || strings.Contains(a.body, "[DONE]") {
				t.Errorf("17 MiB, usage asked for: %d bytes, %v", len(a.body), a.err)
			}
			continue
		}
		a.brokenOff(t, "17 MiB", role)
	}
	if n := r.metric("hearsay_broken_answers_total", `reason="event_too_long"`); n != 2 {
		t.Errorf("%v answers broken for an event's length", n)
	}
	if s := r.log.String(); strings.Contains(s, "token too long") {
		t.Error("a scanner's complaint is logged")
	}
	settled(t, []*router{r}, e)
	e.forget()
	e.becomes(healthy) // what it said is long
	if after := heap(); after > before+8<<20 {
		t.Errorf("memory went from %d to %d MiB", before>>20, after>>20)
	}
}

// heap is the memory in use, after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what pools held is let go in the second one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// Each event leaves when it comes: the engine writes the next one only when the
// client has the last.
func TestC08EventsAreNotHeldBack(t *testing.T) {
	t.Parallel()
	// One for each stream: of a common one, a stream could take two.
	next := []chan struct{}{make(chan struct{}), make(chan struct{}), make(chan struct{})}
	free := make(chan chan struct{}, len(next))
	for _, c := range next {
		free <- c
	}
	e := newEngine(t, func(g *got) bool {
		mine := <-free
		told := func() bool {
			select {
			case <-mine:
				return true
			case <-t.Context().Done():
				return false
			}
		}
		ok := g.write(streamHead)
		for range 20 {
			ok = ok && told() && g.write(chunks("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"abcdef\"}}]}\n\n"))
		}
		return ok && told() && g.write(chunks(finish, done)+lastChunk)
	})
	r := start(t, setup{}, pool(e))[0]
	event := "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"abcdef\"}}]}\n\n"
	streams := []*stream{r.open(askStream), r.open(askUsage), r.open(askStream, "Accept-Encoding: gzip")}
	until(t, "all at the engine", func() bool { return len(e.requests()) == len(streams) })
	tell := func() {
		for _, c := range next {
			select {
			case c <- struct{}{}:
			case <-time.After(patience):
				t.Fatal("the engine's answer has ended")
			}
		}
	}
	for i := range 20 {
		tell()
		for _, s := range streams {
			b := make([]byte, 4096)
			n, err := s.head().Body.Read(b)
			if string(b[:n]) != event || err != nil {
				t.Fatalf("event %d: one read brings %q, %v", i, b[:n], err)
			}
		}
	}
	tell()
	for _, s := range streams {
		if a := s.rest(); a.body != finish+done || a.err != nil {
			t.Errorf("the end: %q, %v", a.body, a.err)
		}
		if h := s.head().Header; h.Get("Content-Length") != "" || h.Get("Content-Encoding") != "" || s.head().ContentLength != -1 {
			t.Errorf("head %v", h)
		}
	}
}
