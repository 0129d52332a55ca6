package actuator

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/receiver"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

var hookSecret = []byte("a secret of the tests, long enough")

// hookAt gives an actuator for a receiver at a URL.
func hookAt(t *testing.T, cfg WebhookConfig) *Webhook {
	t.Helper()
	cfg.Pool = "chat"
	if cfg.Secrets == nil {
		cfg.Secrets = func() ([][]byte, error) { return [][]byte{hookSecret}, nil }
	}
	h, err := NewWebhook(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// inHookBubble serves a handler in a bubble and hands f an actuator that calls it.
func inHookBubble(t *testing.T, handler http.Handler, f func(t *testing.T, h *Webhook)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		ln, err := n.Host("scaler").Listen("tcp", ":80")
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: handler}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Serve(ln)
		}()
		defer func() {
			_ = s.Close()
			<-done
			time.Sleep(time.Minute)
		}()
		f(t, hookAt(t, WebhookConfig{URL: "http://scaler:80/pools", Dial: n.Host("router").DialContext}))
	})
}

// hook ids as the autoscaler knows them.
func hookIDs(names ...string) (ids []state.ReplicaID) {
	for _, n := range names {
		ids = append(ids, state.ReplicaID("webhook:chat:"+n))
	}
	return ids
}

func TestWebhookReachesTheTarget(t *testing.T) {
	for _, silent := range []bool{false, true} {
		r := &receiver.Receiver{Secret: hookSecret, StartTime: 3 * time.Second, StopTime: 2 * time.Second, Silent: silent}
		inHookBubble(t, r, func(t *testing.T, h *Webhook) {
			ensure := func(d state.Desired) state.Actual {
				t.Helper()
				d.Deadline = time.Now().Add(time.Minute)
				a, err := h.Ensure(t.Context(), d)
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			if a, err := h.List(t.Context(), chat); err != nil || len(a.Instances) != 0 || a.Prefix != "webhook:chat:" {
				t.Fatalf("%+v, %v", a, err)
			}
			a := ensure(want(3, 7, 2))
			if len(a.Instances) != 2 || a.Instances[0].Ready || !strings.HasPrefix(a.Instances[0].Problem, "starting, since 2000-") {
				t.Fatalf("%+v", a)
			}
			time.Sleep(3 * time.Second)
			if a = ensure(want(3, 7, 2)); !ready(2)(a) {
				t.Fatalf("%+v", a)
			}
			i := a.Instances[0].Replica
			if i.ID != "webhook:chat:i1" || i.URL != "http://10.255.0.1:8000" || i.Pool != "chat" || i.Role != state.RoleBoth || i.Source != state.SourceCommitted {
				t.Errorf("replica %+v", i)
			}
			// Fewer wanted, none named: nobody goes. Then the named one does.
			if a = ensure(want(3, 9, 1)); !ready(2)(a) {
				t.Fatalf("%+v", a)
			}
			a = ensure(want(3, 9, 1, hookIDs("i1")...))
			if len(a.Instances) != 2 || !a.Instances[0].Stopping || a.Instances[0].Ready {
				t.Fatalf("%+v", a)
			}
			time.Sleep(2 * time.Second)
			if a = ensure(want(3, 9, 1, hookIDs("i1")...)); !ready(1)(a) || a.Instances[0].Replica.ID != "webhook:chat:i2" {
				t.Fatalf("%+v", a)
			}
			changes := map[string]int{}
			for _, c := range r.Calls() {
				if c.Wish.Type == "" {
					continue
				}
				changes[c.ID] += c.Started + c.Stopped
				if c.ID != c.Wish.DecisionID || c.Wish.Pool != "chat" || c.Wish.Role != "both" || c.Wish.Model != "m" || c.Wish.Deadline.IsZero() || c.Wish.Grace != 0.3 {
					t.Errorf("call %+v", c)
				}
			}
			if len(changes) != 2 || changes["d7"] != 2 || changes["d9"] != 1 {
				t.Errorf("changes by id: %v", changes)
			}
		})
	}
}

func TestWebhookOfThePastIsRefused(t *testing.T) {
	r := &receiver.Receiver{Secret: hookSecret}
	inHookBubble(t, r, func(t *testing.T, h *Webhook) {
		f := func(epoch, decision uint64, n int, fenced bool) {
			t.Helper()
			before := r.Made()
			_, err := h.Ensure(t.Context(), want(epoch, decision, n))
			if errors.Is(err, state.ErrFenced) != fenced || !fenced && err != nil {
				t.Errorf("epoch %d, decision %d: %v", epoch, decision, err)
			}
			if fenced && r.Made() != before {
				t.Error("a replica was started all the same")
			}
		}
		f(9, 20, 1, false)
		f(8, 21, 5, true)
		f(9, 19, 5, true)
		f(9, 20, 1, false)
		f(10, 21, 2, false)
		f(9, 22, 5, true)
	})
}

// What the receiver answers is told apart, and what can't be used is never taken for an
// empty list.
func TestWebhookAnswers(t *testing.T) {
	f := func(name string, answer http.HandlerFunc, parts ...string) {
		t.Helper()
		var calls, followed int
		inHookBubble(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/elsewhere" {
				followed++
			}
			calls++
			_, _ = io.Copy(io.Discard, req.Body) // only then is a client noticed that hangs up
			answer(w, req)
		}), func(t *testing.T, h *Webhook) {
			a, err := h.Ensure(t.Context(), want(4, 5, 1))
			if err == nil {
				t.Fatalf("%s: taken for %+v", name, a)
			}
			if errors.Is(err, state.ErrFenced) != (len(parts) == 0) {
				t.Errorf("%s: %v", name, err)
			}
			for _, p := range append(parts, "webhook http://scaler:80/pools: ") {
				if !strings.Contains(err.Error(), p) {
					t.Errorf("%s: %q is not in %v", name, p, err)
				}
			}
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' }) || len(err.Error()) > 700 {
				t.Errorf("%s: says %q", name, err)
			}
			if followed > 0 || calls > 2 {
				t.Errorf("%s: %d calls, %d followed", name, calls, followed)
			}
		})
	}
	says := func(status int, body string, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	f("fenced by epoch", says(409, `{"epoch":5,"decision":1}`))
	f("fenced by decision", says(409, `{"decision":6}`))
	f("tells of a later epoch and did it", says(200, `{"epoch":5,"instances":[]}`))
	f("409 that is not the fence", says(409, `{"error":"busy"}`), "without an epoch or a decision later than")
	f("409 with this one's own", says(409, `{"epoch":4,"decision":5}`), "without an epoch")
	f("unavailable", says(503, "come\nback\x1b[31m later"), `answered 503, tried again later: it says "come back`)
	f("too many", says(429, ""), "answered 429, tried again later")
	f("unauthorised", says(401, "who are you"), `refused with 401: it says "who are you"`)
	f("not found", says(404, ""), "refused with 404")
	f("redirect", says(307, "", "Location", "/elsewhere"), "a redirect, which is not followed")
	f("not JSON", says(200, "<html>"), "the answer can't be used")
	f("nothing to POST nor to GET", says(200, "{}"), "an empty list says that there are none")
	f("no body at all", says(204, ""), "an empty list says that there are none")
	f("twice", says(200, `{"instances":[{"id":"a"},{"id":"a"}]}`), "it lists a twice")
	f("no id", says(200, `{"instances":[{"id":"a b"}]}`), `"a b" is no id`)
	f("ready, nowhere", says(200, `{"instances":[{"id":"a","ready":true}]}`), "a is ready and has no url")
	f("too long", says(200, strings.Repeat(" ", maxAnswer+1)), "longer than")
	f("silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no answer within 5s")
	f("hangs in the body", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, "no answer within 5s")
	f("hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF")
}

// A URL that may not be used keeps its replica from being ready, not the others.
func TestWebhookReplicaWhoseURLIsNotUsed(t *testing.T) {
	for _, url := range []string{"ftp://h:1", "http://user@h:1", "http://h:1/v1", "nonsense"} {
		h := hookAt(t, WebhookConfig{URL: "http://scaler"})
		a, err := parseAnswer(fmt.Appendf(nil, `{"instances":[{"id":"b","url":%q,"ready":true},{"id":"a","url":"HTTP://H:1/","ready":true}]}`, url))
		if err != nil {
			t.Fatal(err)
		}
		x := h.actual(a, chat)
		if !x.Instances[0].Ready || x.Instances[0].Replica.URL != "http://h:1" {
			t.Errorf("the good one: %+v", x.Instances[0])
		}
		if i := x.Instances[1]; i.Ready || !strings.Contains(i.Problem, "b: its URL is not used") {
			t.Errorf("%s: %+v", url, i)
		}
	}
}

// After a failure the receiver is let alone, longer each time, and never longer than is
// bounded, whatever it asks for.
func TestWebhookRests(t *testing.T) {
	var at []time.Duration
	var began time.Time
	var status int
	header := ""
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		at = append(at, time.Since(began))
		w.Header().Set("Retry-After", header)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"instances":[]}`))
	})
	inHookBubble(t, handler, func(t *testing.T, h *Webhook) {
		try := func(d time.Duration) {
			t.Helper()
			at, began = nil, time.Now()
			for time.Since(began) < d {
				_, err := h.List(t.Context(), chat)
				if (err == nil) != (status == 200) {
					t.Errorf("status %d: %v", status, err)
				}
				time.Sleep(500 * time.Millisecond)
			}
		}
		wants := func(seconds ...int) {
			t.Helper()
			var got []int
			for _, d := range at {
				got = append(got, int(d/time.Second))
			}
			if !slices.Equal(got, seconds) {
				t.Errorf("called after %v s, want %v", got, seconds)
			}
		}
		status = 500
		try(100 * time.Second)
		wants(0, 1, 3, 7, 15, 31, 61, 91)
		time.Sleep(time.Minute)
		status = 200
		try(2 * time.Second)
		wants(0, 0, 1, 1)
		status, header = 503, "7"
		try(10 * time.Second)
		wants(0, 7)
		time.Sleep(time.Minute)
		header = "86400"
		try(70 * time.Second)
		wants(0, 60)
	})
}

// A call that ends with its term says nothing of the receiver.
func TestWebhookTermThatEnds(t *testing.T) {
	r := &receiver.Receiver{Secret: hookSecret}
	inHookBubble(t, r, func(t *testing.T, h *Webhook) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := h.Ensure(ctx, want(1, 1, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if _, err := h.Ensure(t.Context(), want(1, 1, 1)); err != nil {
			t.Errorf("the next term: %v", err)
		}
	})
}

func TestWebhookOverTLS(t *testing.T) {
	r := &receiver.Receiver{Secret: hookSecret}
	s := httptest.NewTLSServer(r)
	defer s.Close()
	if _, err := hookAt(t, WebhookConfig{URL: s.URL}).List(t.Context(), chat); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an authority nobody knows: %v", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	conf := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	conf.RootCAs = pool
	if _, err := hookAt(t, WebhookConfig{URL: s.URL, TLS: conf}).List(t.Context(), chat); err != nil {
		t.Error(err)
	}
}

func TestWebhookURLs(t *testing.T) {
	for _, bad := range []string{"", "scaler:80", "ftp://scaler", "http://", "http://user:pass@scaler/"} {
		_, err := NewWebhook(WebhookConfig{Pool: "chat", URL: bad, Secrets: func() ([][]byte, error) { return nil, nil }})
		if err == nil || strings.Contains(err.Error(), "pass") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	// What a URL's query holds may be secret.
	h := hookAt(t, WebhookConfig{URL: "http://127.0.0.1:1/x?token=hush"})
	if _, err := h.List(t.Context(), chat); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("%v", err)
	}
}
