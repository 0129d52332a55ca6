package main

import (
	"bytes"
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
