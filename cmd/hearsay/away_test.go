package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Where no router answers every command that asks one says so in one line, with what to
// do next.
func TestEveryCommandSaysThatNoRouterAnswers(t *testing.T) {
	request := writeTemp(t, "request.json", hello)
	given := map[string][][]string{
		"status": {{}}, "members": {{}}, "replicas": {{}, {"--pool", "chat"}}, "models": {{}}, "diagnose": {{}, {"chat"}}, "events": {{}},
		"explain": {{"-f", request}, {"some-id"}},
		"drain":   {{"h:1"}}, "undrain": {{"h:1"}}, "replica add": {{"http://h:1"}}, "replica rm": {{"h:1"}},
		"pool policy": {{"chat", "ttft"}, {"chat", "--release"}},
		"scale":       {{}, {"chat"}, {"chat", "--to", "1"}, {"chat", "--release"}}, "scale log": {{}, {"d1"}},
		"member remove": {{"r2"}}, "leave": {{}}, "reload": {{}}, "log-level": {{"info"}}, "config show": {{}},
		"snapshot save": {{request + ".facts"}}, "snapshot restore": {{request}},
		"keyring list": {{}}, "keyring add": {{}}, "keyring use": {{"0badcafe"}}, "keyring remove": {{"0badcafe"}},
	}
	const nobody = "http://127.0.0.1:1" // a port that nobody serves
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.Flags().Lookup("server") == nil {
			return
		}
		path := strings.TrimPrefix(c.CommandPath(), "hearsay ")
		calls := given[path]
		delete(given, path)
		if len(calls) == 0 {
			t.Errorf("%s is not tried", path)
		}
		for _, args := range calls {
			args = append(append(strings.Fields(path), args...), "--server", nobody)
			r := call(t, args...)
			r.wants(t, 1, "no router answers at "+nobody, "start one with 'hearsay serve', or name another's admin address with --server")
			if strings.Count(r.errOut, "\n") != 1 {
				t.Errorf("%q takes more than a line:\n%s", args, r.errOut)
			}
		}
	}
	walk(newRoot())
	for path := range given {
		t.Errorf("there is no command %s", path)
	}
	call(t, "replay", "--requests", "1", "--target", nobody).wants(t, 1, "can't be reached", "start a router or an engine there, or name another one with --target")
	call(t, "replay", "--what-if", "policy=ttft,session", "--target", nobody).wants(t, 1, "no router answers at "+nobody, "start one with 'hearsay serve', or name another's admin address with --target")
}

// So does one that meets a server whose certificate is not trusted, or half an answer.
func TestServersThatAreNotSound(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	call(t, "status", "--server", s.URL).wants(t, 1, "the certificate of "+s.URL+" is not trusted here", "SSL_CERT_FILE")
	half := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("{"))
	}))
	defer half.Close()
	call(t, "status", "--server", half.URL).wants(t, 1, "ended before it was complete", "ask again, or another router with --server")
	odd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }))
	defer odd.Close()
	call(t, "status", "--server", odd.URL).wants(t, 1, "did not answer as a hearsay admin API", "give the router's admin address with --server")
}
