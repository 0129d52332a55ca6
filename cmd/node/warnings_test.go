package node

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/cluster/gossip"
)

// Every reason for which a router is called degraded has words for people.
func TestTroubleIsToldInWords(t *testing.T) {
	f := func(m gossip.Member, want string) {
		t.Helper()
		m.Addr, m.MeshAddr = "10.0.0.2:7946", "10.0.0.2:7947"
		if got := trouble(&m, []string{"42cee11e"}); !strings.Contains(got, want) || m.Degraded != "" && strings.Contains(got, "_") {
			t.Errorf("%+v: %q, want %q", m, got, want)
		}
	}
	f(gossip.Member{}, "")
	f(gossip.Member{Degraded: gossip.NotMember}, "are TCP and UDP open on its cluster port 10.0.0.2:7946?")
	f(gossip.Member{Degraded: gossip.NotMember, JoinErr: gossip.SecretsDiffer}, "membership refused, shared secrets differ (here 42cee11e)")
	f(gossip.Member{Degraded: gossip.NotMember, JoinErr: "it does not answer"}, "no member: it does not answer")
	f(gossip.Member{Degraded: gossip.NoStream}, "no stream to its mesh port 10.0.0.2:7947")
	f(gossip.Member{Degraded: gossip.UDPBlocked}, "is UDP open on its cluster port 10.0.0.2:7946")
	f(gossip.Member{Degraded: gossip.Silent}, "its load is not counted")
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
		"line 3: cluster.secret_file: /nonexistent/secret does not exist: make it: openssl rand -hex 32 > /nonexistent/secret",
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
