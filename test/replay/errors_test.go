package replay

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestEveryFailureHasItsOwnKind(t *testing.T) {
	const piece = `{"choices":[{"delta":{"content":"x"}}]}`
	f := func(name string, want Kind, handler http.HandlerFunc) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := run(t, t.Context(), serve(t, handler), Config{Source: every(time.Second, 2, 3), Timeout: 10 * time.Second})
				if want == OK {
					if r.OK != 2 {
						t.Errorf("ok %d, errors %v %v", r.OK, r.ErrorsByKind, r.ErrorExamples)
					}
					return
				}
				if r.OK != 0 || r.Errors != 2 || len(r.ErrorsByKind) != 1 || r.ErrorsByKind[want] != 2 || r.ErrorExamples[want] == "" {
					t.Errorf("errors are %v %v, want 2 of %s", r.ErrorsByKind, r.ErrorExamples, want)
				}
				if r.TTFT.Count != 0 {
					t.Error("a failed request counts in TTFT")
				}
			})
		})
	}
	abort := func() { panic(http.ErrAbortHandler) }
	f("503", "http_503", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":{"message":"no replica","type":"x","param":null,"code":"none"}}`)
	})
	f("429 without a body", "http_429", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "slow down", http.StatusTooManyRequests) })
	f("connection closed before the header", NoResponse, func(http.ResponseWriter, *http.Request) { abort() })
	f("connection closed after the header", Aborted, func(w http.ResponseWriter, _ *http.Request) {
		begin(w)
		abort()
	})
	f("connection closed inside the stream", Aborted, func(w http.ResponseWriter, _ *http.Request) {
		begin(w)
		event(w, piece)
		abort()
	})
	f("stream ends without done", Truncated, func(w http.ResponseWriter, _ *http.Request) {
		begin(w)
		event(w, piece)
	})
	f("error event", StreamError, func(w http.ResponseWriter, _ *http.Request) {
		begin(w)
		event(w, piece)
		event(w, `{"error":{"message":"engine died","code":500}}`)
		event(w, "[DONE]")
	})
	f("error event of a string", StreamError, func(w http.ResponseWriter, _ *http.Request) {
		begin(w)
		event(w, `{"error": "Model is overloaded", "error_type": "overloaded"}`)
	})
	f("error event, then an aborted body", StreamError, func(w http.ResponseWriter, _ *http.Request) {
		begin(w)
		event(w, `{"error":{"message":"replica lost"}}`)
		abort()
	})
	f("no event stream", NotStream, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[]}`)
	})
	f("empty answer", Empty, func(w http.ResponseWriter, _ *http.Request) {
		begin(w)
		event(w, `{"choices":[{"delta":{"role":"assistant","content":""}}]}`)
		event(w, "[DONE]")
	})
	f("hang before the header", Timeout, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server watches the connection only after that
		pause(r.Context(), time.Hour)
	})
	f("hang inside the stream", Timeout, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		begin(w)
		event(w, piece)
		pause(r.Context(), time.Hour)
	})
	f("an answer that speaks of errors and usage", OK, func(w http.ResponseWriter, _ *http.Request) {
		begin(w)
		event(w, `{"choices":[{"delta":{"content":"{\"error\":{\"message\":\"x\"},\"usage\":{}}"}}],"error":null,"usage":null}`)
		event(w, "[DONE]")
	})
	f("comments, event names and carriage returns", OK, func(w http.ResponseWriter, _ *http.Request) {
		begin(w)
		_, _ = fmt.Fprintf(w, ": keep-alive\r\n\r\nevent: message\r\nid: 1\r\ndata:%s\r\n\r\ndata: [DONE]\r\n\r\n", piece)
	})
}

func TestAResponseThatIsNoHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		defer n.Close()
		go func() {
			for {
				c, err := n.Accept()
				if err != nil {
					return
				}
				go func() {
					_, _ = c.Read(make([]byte, 64<<10))
					_, _ = io.WriteString(c, "SSH-2.0-OpenSSH\r\n\r\n")
					_ = c.Close()
				}()
			}
		}()
		if r := run(t, t.Context(), n, Config{Source: every(time.Second, 2, 1)}); r.ErrorsByKind[NoResponse] != 2 {
			t.Errorf("errors are %v %v", r.ErrorsByKind, r.ErrorExamples)
		}
	})
}

func TestATargetThatSpeaksNoTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := serve(t, (&engine{}).ServeHTTP)
		r := run(t, t.Context(), n, Config{Targets: []string{"https://router"}, Source: every(time.Second, 2, 1)})
		if r.ErrorsByKind[Connect] != 2 {
			t.Errorf("errors are %v %v", r.ErrorsByKind, r.ErrorExamples)
		}
	})
}

func TestDialFailures(t *testing.T) {
	f := func(cause error, want Kind) {
		t.Helper()
		dial := func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: cause}
		}
		r, err := Run(t.Context(), Config{Targets: []string{"http://a"}, Model: "m", Source: every(0, 3, 1), DialContext: dial})
		if err != nil {
			t.Fatal(err)
		}
		if r.ErrorsByKind[want] != 3 {
			t.Errorf("errors are %v, want 3 of %s", r.ErrorsByKind, want)
		}
	}
	f(syscall.ECONNREFUSED, Refused)
	f(syscall.EMFILE, Connect)
	f(syscall.EHOSTUNREACH, Connect)
}

func TestNobodyListens(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), Config{Targets: []string{"http://" + address}, Model: "m", Source: every(0, 2, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if r.ErrorsByKind[Refused] != 2 {
		t.Errorf("errors are %v %v", r.ErrorsByKind, r.ErrorExamples)
	}
}
