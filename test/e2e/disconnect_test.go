package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// passedOn bounds the time from a client's close until the engine sees its own
// peer close.
const passedOn = time.Second

// A client that leaves takes its upstream request with it, whatever the engine is
// doing, and nothing of it stays in any router's load.
func TestClientLeaves(t *testing.T) {
	p := healthy(t)
	f := func(name string, r *harness.Proc, faulty enginesim.Fault, stream bool, maxTokens, readEvents int) {
		t.Run(name, func(t *testing.T) {
			for _, e := range p.Engines {
				fault(t, e, faulty)
			}
			id := "gone-" + strings.ReplaceAll(name, " ", "-")
			conn := dial(t, r.API)
			request(t, conn, chat(long(name, 30), maxTokens, stream, ""), id)
			in := bufio.NewReader(conn)
			if readEvents > 0 {
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				events(t, bufio.NewReader(resp.Body), readEvents)
			}
			poll(t, patience, "an engine has the request", func() (bool, string) {
				return recorded(t, p.Engines, id) != nil, ""
			})
			gone := time.Now()
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			var rec *enginesim.RequestRecord
			poll(t, patience, "the engine sees its peer close", func() (bool, string) {
				rec = recorded(t, p.Engines, id)
				return rec.Outcome == enginesim.OutcomeAborted && !rec.End.IsZero(), fmt.Sprintf("%+v", *rec)
			})
			if d := rec.End.Sub(gone); d > passedOn {
				t.Errorf("the engine saw the close after %v", d)
			}
			idle(t, p.Routers, 3*time.Second)
		})
	}
	f("before the answer", p.Routers[0], enginesim.Fault{Kind: enginesim.FaultSilence}, true, 50, 0)
	f("in the prefill", p.Routers[1], enginesim.Fault{Kind: enginesim.FaultSlow, Factor: 150}, true, 50, 0)
	f("in a silent stream", p.Routers[2], enginesim.Fault{Kind: enginesim.FaultSilence, AfterEvents: 3}, true, 50, 3)
	f("in a running stream", p.Routers[0], enginesim.Fault{Kind: enginesim.FaultSlow, Factor: 1}, true, 20000, 5)
	f("before a whole answer", p.Routers[1], enginesim.Fault{Kind: enginesim.FaultSlow, Factor: 1}, false, 20000, 0)
}

// A client that leaves while its body is not whole yet was never a request.
func TestClientLeavesInItsBody(t *testing.T) {
	p := healthy(t)
	conn := dial(t, p.Routers[0].API)
	body := chat("never whole", 5, true, "")
	if _, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nX-Request-Id: half\r\nContent-Length: %d\r\n\r\n%s", 2*len(body), body); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	// A later request on the same router is served: by then the first is dealt with.
	whole(t, p.Routers[0].API+"/v1/chat/completions", chat("hello", 1, false, ""))
	if rec := recorded(t, p.Engines, "half"); rec != nil {
		t.Errorf("an engine got the half request: %+v", rec)
	}
	idle(t, p.Routers, 3*time.Second)
}

// dial opens a connection of the test's own to a URL's host.
func dial(t *testing.T, url string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// request writes one chat completion's request.
func request(t *testing.T, conn net.Conn, body, id string) {
	t.Helper()
	if _, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nX-Request-Id: %s\r\nContent-Length: %d\r\n\r\n%s", id, len(body), body); err != nil {
		t.Fatal(err)
	}
}
