package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"pgregory.net/rapid"
)

// script is a client's side of a connection: what it sends, and how it is cut.
type script struct {
	net.Conn
	io.Reader
}

func (s script) Read(p []byte) (int, error)    { return s.Reader.Read(p) }
func (script) SetReadDeadline(time.Time) error { return nil }

// sender is a connection whose client sends what r reads.
func sender(r io.Reader, budgetBytes int64) *clientConn {
	l := Limits{BodyBytes: 64 << 20}
	l.fill()
	return &clientConn{Conn: script{Reader: r}, limits: &l, budget: &budget{limit: budgetBytes}, bodies: &bodyPool{spoil: spoiled}}
}

// next takes one request off a connection as the HTTP server does.
func next(t interface{ Fatalf(string, ...any) }, c *clientConn) (body []byte, err error) {
	body, err = nextHeld(t, c)
	if err == nil {
		body = append(make([]byte, 0, cap(body)), body...)
	}
	c.idle()
	return body, err
}

// nextHeld is next without the request's end: the body is still valid.
func nextHeld(t interface{ Fatalf(string, ...any) }, c *clientConn) (body []byte, err error) {
	var first [1]byte
	if _, err := c.Read(first[:]); err != nil {
		return nil, err
	}
	c.active()
	br := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(first[:]), c), 16<<10)
	var h fasthttp.RequestHeader
	if err := h.Read(br); err != nil {
		t.Fatalf("head: %v", err)
	}
	size, fault := framing(h.RawHeaders())
	if fault != "" || !c.head.agrees(h.RawHeaders()) || br.Buffered() > 0 {
		t.Fatalf("fault %q, head %+v, %d bytes too many", fault, c.head, br.Buffered())
	}
	return c.readBody(size)
}

// However a client cuts what it sends, each request gets its own body, and the next
// one starts behind it.
func TestBodiesOfPipelinedRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sent bytes.Buffer
		var want []string
		for range rapid.IntRange(1, 5).Draw(t, "requests") {
			body := strings.Repeat("b\r\n\r\n", rapid.IntRange(0, 9000).Draw(t, "size"))
			want = append(want, body)
			sent.WriteString(strings.Repeat("\r\n", rapid.IntRange(0, 2).Draw(t, "empty lines")))
			sent.WriteString("POST / HTTP/1.1\r\nHost: a\r\n")
			switch {
			case rapid.Bool().Draw(t, "chunked"):
				sent.WriteString("Transfer-Encoding: chunked\r\n\r\n")
				for rest := body; len(rest) > 0; {
					n := min(len(rest), rapid.IntRange(1, 5).Draw(t, "chunk")*max(1, len(body)/7))
					sent.WriteString(chunk(rest[:n]))
					rest = rest[n:]
				}
				sent.WriteString(lastChunk)
			case body == "" && rapid.Bool().Draw(t, "no length"):
				sent.WriteString("\r\n")
			default:
				fmt.Fprintf(&sent, "Content-Length: %d\r\n\r\n%s", len(body), body)
			}
		}
		cuts := rapid.SliceOfN(rapid.IntRange(1, 30000), 0, 50).Draw(t, "reads")
		c := sender(&pieces{sent.String(), append(cuts, sent.Len())}, 1<<30)
		for i, w := range want {
			if got, err := next(t, c); err != nil || string(got) != w {
				t.Fatalf("request %d: %d bytes of %d, %v", i, len(got), len(w), err)
			}
		}
		if _, err := next(t, c); err != io.EOF || c.ahead != nil {
			t.Fatalf("behind the last: %v, %q", err, c.ahead)
		}
		if n := c.budget.used.Load(); n != 0 {
			t.Fatalf("%d bytes still charged", n)
		}
	})
}

// Where a head ends is seen as the HTTP server sees it, or the request is refused.
func FuzzHeadEnd(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET", "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\r\n", "GET / HTTP/1.0\r\n\r\nx", "GET / HTTP/1.0\n\nx",
		"GET / HTTP/1.1\nHost: a\n\r\nx", "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\nx", "\r\r\nGET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "POST / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n\n", "GET / HTTP/1.1\r\n: a\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		rest := bytes.NewReader(in)
		br := bufio.NewReaderSize(rest, 16<<10)
		var h fasthttp.RequestHeader
		if h.Read(br) != nil {
			return
		}
		ends := len(in) - rest.Len() - br.Buffered()
		if _, fault := framing(h.RawHeaders()); fault != "" {
			return
		}
		var e headEnd
		n := 0
		for at := range in { // one by one, so that every state is kept between reads
			if e.done {
				break
			}
			n += e.find(in[at : at+1])
		}
		var whole headEnd
		if m := whole.find(in); m != n || whole != e {
			t.Fatalf("%q: ends at %d in one piece, at %d in many", in, m, n)
		}
		if e.agrees(h.RawHeaders()) != (n == ends) {
			t.Fatalf("%q: ends at %d, the server says %d, agreed: %v", in, n, ends, e.agrees(h.RawHeaders()))
		}
	})
}

// A body takes the memory of its size, however it came.
func TestBodiesTakeWhatTheyNeed(t *testing.T) {
	f := func(name string, size, came int, chunked bool) {
		t.Helper()
		body := strings.Repeat("a", size)
		head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", size)
		if chunked {
			head, body = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", chunk(body)+lastChunk
		}
		c := sender(strings.NewReader(head+body[:min(came, len(body))]), 1<<30)
		got, err := next(t, c)
		if err != nil || len(got) != size || cap(got) > size+size/8+1<<10 {
			t.Errorf("%s: %d bytes in a buffer of %d, %v", name, len(got), cap(got), err)
		}
	}
	f("one byte", 1, 1<<30, false)
	f("with the head", 4000, 1<<30, false)
	f("400 kB", 400_000, 1<<30, false)
	f("64 MiB", 64<<20, 1<<30, false)
	f("400 kB in chunks", 400_000, 1<<30, true)
	f("a few bytes in chunks", 100, 1<<30, true)
}

// What a client announces costs nothing before it comes.
func TestAnnouncedBodiesCostLittle(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 67108864\r\n\r\n"
	for _, came := range []int{0, 1, 100, 20 << 10, 1 << 20, 9 << 20} {
		allowed := int64(8*came + 64<<10)
		c := sender(strings.NewReader(head+strings.Repeat("a", came)), allowed)
		if _, err := next(t, c); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes of 64 MiB took more than %d: %v", came, allowed, err)
		}
	}
	c := sender(strings.NewReader(strings.Replace(head, "67108864", "67108865", 1)), 1<<30)
	if _, err := next(t, c); !errors.Is(err, fasthttp.ErrBodyTooLarge) {
		t.Errorf("one byte over the limit: %v", err)
	}
	c = sender(strings.NewReader(head+strings.Repeat("a", 2<<20)), 1<<20)
	if _, err := next(t, c); !errors.Is(err, errBudget) {
		t.Errorf("over the budget: %v", err)
	}
}
