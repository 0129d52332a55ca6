package node

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/cluster/gossip"
	"github.com/hearsay-llm/hearsay/cluster/mesh"
)

// Every reason for which a router is called degraded has words for people.
func TestTroubleIsToldInWords(t *testing.T) {
	secrets := []string{"42cee11e"}
	refused := ""
	f := func(m gossip.Member, want string) {
		t.Helper()
		m.Addr, m.MeshAddr = "10.0.0.2:7946", "10.0.0.2:7947"
		if got := trouble(&m, refused, secrets); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%+v, refused %q: %q, want %q", m, refused, got, want)
		}
	}
	f(gossip.Member{State: gossip.Alive}, "")
	f(gossip.Member{State: gossip.Dead, JoinErr: "connection refused"}, "")
	f(gossip.Member{State: gossip.Dead, JoinErr: gossip.SecretsDiffer, Answers: true}, "can't be made a member again: it has another secret")
	f(gossip.Member{State: gossip.Left, JoinErr: gossip.SecretsDiffer, Answers: true}, "")
	f(gossip.Member{Degraded: gossip.NotMember}, "are TCP and UDP open on its cluster port 10.0.0.2:7946?")
	f(gossip.Member{Degraded: gossip.NotMember, JoinErr: gossip.SecretsDiffer}, "membership refused, shared secrets differ (here 42cee11e)")
	f(gossip.Member{Degraded: gossip.NotMember, JoinErr: "it does not answer"}, "no member: it does not answer")
	f(gossip.Member{Degraded: gossip.NoStream}, "no stream to its mesh port 10.0.0.2:7947")
	f(gossip.Member{Degraded: gossip.UDPBlocked}, "is UDP open on its cluster port 10.0.0.2:7946")
	f(gossip.Member{Degraded: gossip.Silent}, "its load is not counted")

	// What a stream was refused for goes before what else may be wrong.
	refused = mesh.ReasonClusterID
	f(gossip.Member{Degraded: gossip.NoStream}, "it is of another cluster, the two were founded apart")
	f(gossip.Member{Degraded: gossip.NotMember, JoinErr: "connection refused"}, "it is of another cluster, the two were founded apart")
	f(gossip.Member{State: gossip.Dead, JoinErr: "connection refused"}, "rm -r <data_dir>/raft")
	f(gossip.Member{State: gossip.Left}, "")
	refused = mesh.ReasonSecret
	f(gossip.Member{Degraded: gossip.NoStream}, "shared secrets differ, or it has none (here 42cee11e)")
	secrets = nil
	f(gossip.Member{Degraded: gossip.NoStream}, "it has a secret, this router none")
	for _, refused = range mesh.Reasons() {
		got := trouble(&gossip.Member{Degraded: gossip.NoStream}, refused, []string{"42cee11e"})
		if refused != mesh.ReasonDuplicate && (len(got) < 80 || strings.Contains(got, "is TCP open")) {
			t.Errorf("%s has no words: %q", refused, got)
		}
	}
}

func TestRoutersNotLetInAreToldOf(t *testing.T) {
	f := func(r gossip.Refused, want string) {
		t.Helper()
		r.ID, r.Addr = "abcd", "10.0.0.2:7946"
		if got := notLetIn(&r, "self"); !strings.Contains(got, " at 10.0.0.2:7946 is not let in: ") || !strings.Contains(got, want) {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
	f(gossip.Refused{Name: "r2", Reason: gossip.RefusedScheme, Scheme: "7"}, "router r2 at")
	f(gossip.Refused{Name: "r2", Reason: gossip.RefusedScheme, Scheme: "7"}, "by scheme 7, this router by "+scheme)
	f(gossip.Refused{Name: "r2", Reason: gossip.RefusedVersion, MinVersion: 71, Version: 72}, "wire versions 71 to 72")
	f(gossip.Refused{Reason: gossip.RefusedMalformed}, "router abcd at")
	f(gossip.Refused{Reason: gossip.RefusedTwice}, "another router has the same node id")
	if got := notLetIn(&gossip.Refused{ID: "self", Reason: gossip.RefusedTwice}, "self"); !strings.Contains(got, "this router's node id") {
		t.Error(got)
	}
}

func TestSecretsThatEverybodyCanReadAreWarnedOf(t *testing.T) {
	f := func(mode os.FileMode, want bool) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte("a-secret-of-some-length"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		n := &Node{log: zerolog.New(&b)}
		n.warnReadable("cluster.secret_file", path)
		if got := strings.Contains(b.String(), "chmod 600"); got != want {
			t.Errorf("mode %o: %q", mode, b.String())
		}
	}
	f(0o644, true)
	f(0o640, false)
	f(0o600, false)
}

// A secret that is missing is told with its line, among the other faults.
func TestMissingSecretsAreToldWithTheRest(t *testing.T) {
	got := faultsOf(t, "cluster:\n  voters: 2\n  secret_file: /nonexistent/secret\n"+minimal+"    api_key_env: NO_SUCH_KEY\n")
	all := strings.Join(got, "\n")
	for _, want := range []string{
		"line 2: cluster.voters: is 2",
		"line 3: cluster.secret_file: /nonexistent/secret does not exist: all routers share it: make it once and copy it to each: (umask 077; openssl rand -hex 32 > /nonexistent/secret)",
		"pools[0].api_key_env: NO_SUCH_KEY is not set in the environment",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("lacks %q:\n%s", want, all)
		}
	}
	if len(got) != 3 {
		t.Errorf("%d faults:\n%s", len(got), all)
	}
	if _, err := load(t, minimal+"    api_key_env: A_KEY\n", "A_KEY="); err != nil {
		t.Errorf("a key that is set, if empty: %v", err)
	}
}
