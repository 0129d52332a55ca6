package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

func TestAgreementOfALearner(t *testing.T) {
	f := func(r console.Raft, want string) {
		t.Helper()
		r.Role = "learner"
		if got := agreement(&r); !strings.Contains(got, want) {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
	f(console.Raft{}, "no cluster is formed yet")
	f(console.Raft{ClusterID: "c", Facts: 7}, "no leader, facts at 7: no voter that is alive is known")
	f(console.Raft{ClusterID: "c", Leader: "r1", LeaderName: "one", Facts: 7, Removed: true}, "leader one, facts at 7: no longer a voter")
	f(console.Raft{ClusterID: "c", Leader: "r1", LeaderName: "one"}, "leader one, facts at 0 (not one of the voters")
}

func TestWideStatusShowsFingerprintsOfSecrets(t *testing.T) {
	f := func(secrets []string, want string) {
		t.Helper()
		var b bytes.Buffer
		if err := printStatus(&b, &console.Status{Router: console.Info{Secrets: secrets}}, true); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) {
			t.Errorf("lacks %q:\n%s", want, b.String())
		}
	}
	f([]string{"42cee11e", "0badcafe"}, "secrets  42cee11e 0badcafe\n")
	f(nil, "secrets  none\n")
}

// Why a replica is not ready is shown in words where there are some; programs get the
// code, too.
func TestReplicasShowsTroubleInWords(t *testing.T) {
	list := []console.Replica{
		{ID: "a:1", State: "ejected", Reason: "failures", Trouble: "5 failures in a row, tried again in 8s"},
		{ID: "b:1", State: "draining", Reason: "to be replaced"},
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(list) }))
	defer srv.Close()
	t.Setenv("HEARSAY_SERVER", srv.URL)
	r := call(t, "replicas")
	r.wants(t, 0, "a:1", "ejected", "5 failures in a row, tried again in 8s", "b:1", "to be replaced")
	if strings.Contains(r.out, " failures\n") {
		t.Errorf("a code is shown to people:\n%s", r.out)
	}
	call(t, "replicas", "-o", "json").wants(t, 0, `"reason":"failures"`)
}
