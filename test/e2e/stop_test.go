package e2e

import (
	"bufio"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// SIGTERM: the router says at once that it wants no more traffic, finishes the
// stream it runs, and exits with code 0.
func TestSIGTERMFinishesTheStream(t *testing.T) {
	t.Parallel()
	p := cluster(t, harness.ProcsConfig{Routers: 1, Engines: 1})
	r := p.Routers[0]
	resp := post(t.Context(), t, r.API+"/v1/chat/completions", chat("a long story", 150, true, ""))
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReader(resp.Body)
	events(t, in, 3)
	if err := r.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	poll(t, patience, "readiness is off, with its reason", func() (bool, string) {
		code, body, _ := get(t, r.Admin+"/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "shutting down"), body
	})
	if rec := recorded(t, p.Engines, resp.Header.Get("X-Request-Id")); rec == nil || rec.Outcome != "active" {
		t.Errorf("readiness went off only after the stream: %+v", rec)
	}
	rest := events(t, in, 1000)
	if len(rest) < 147 || rest[len(rest)-1] != "[DONE]" {
		t.Errorf("the stream was cut after %d further events", len(rest))
	}
	if err := r.Wait(patience); err != nil {
		t.Errorf("the router ended with %v\n%s", err, r.Log())
	}
}
