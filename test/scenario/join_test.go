package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// warned looks for a warning of a router's status.
func warned(t *testing.T, r *harness.Router, want string) {
	t.Helper()
	if list := warnings(t, r); !strings.Contains(list, want) {
		t.Errorf("%s warns of %q, not of %q", r.Name, list, want)
	}
}

// warnings are those of a router's status, one a line.
func warnings(t *testing.T, r *harness.Router) string {
	t.Helper()
	var st console.Status
	if _, err := r.Admin("GET", "/admin/v1/status", nil, &st); err != nil {
		t.Fatal(err)
	}
	return strings.Join(st.Warn, "\n")
}

// A router that can't join says so at once in its log and in its status, and why.
func TestFailedJoinIsTold(t *testing.T) {
	t.Parallel()
	secrets := []string{
		0: "",
		1: "the-secret-of-the-first-cluster",
		2: "the-secret-of-another-cluster",
	}
	f := func(t *testing.T, here, there int, want string) {
		t.Helper()
		dir := t.TempDir()
		harness.InBubble(t, harness.BubbleConfig{Delay: time.Millisecond, RouterFile: func(i int, c *node.Config) {
			s := secrets[there]
			if i > 0 {
				s = secrets[here]
			}
			if s != "" {
				file := filepath.Join(dir, s)
				if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
					t.Fatal(err)
				}
				c.Cluster.SecretFile, c.Cluster.Insecure = file, false
			}
			c.Cluster.BootstrapExpect = 1
		}}, func(t *testing.T, b *harness.Bubble) {
			r := b.AddRouter()
			b.Settle(3 * time.Second)
			warned(t, r, "this router founds no cluster, it only joins one")
			warned(t, r, "can't join "+b.Net.Host("r0").IP().String()+":7946: "+want)
			if !strings.Contains(r.Log(), want) {
				t.Errorf("the log does not say %q", want)
			}
		})
	}
	t.Run("it has a secret, this one none", func(t *testing.T) { f(t, 0, 1, "it asks for a secret, cluster.secret_file is not set here") })
	t.Run("this one has a secret, it none", func(t *testing.T) { f(t, 1, 0, "it has no secret, this router has one") })
	t.Run("another secret", func(t *testing.T) { f(t, 2, 1, "it has another secret than this router") })
}

// Nobody listens: the warning comes, is not repeated with every attempt, and goes
// when somebody is there.
func TestJoinWhereNobodyIs(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 2, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		if err := b.Router(1).Stop(); err != nil {
			t.Fatal(err)
		}
		if err := b.Router(0).Stop(); err != nil {
			t.Fatal(err)
		}
		b.Router(0).Restart()
		b.Settle(20 * time.Second)
		warned(t, b.Router(0), "can't join "+b.Net.Host("r1").IP().String()+":7946: ")
		if n := strings.Count(b.Router(0).Log(), "can't join a peer"); n < 1 || n > 2 {
			t.Errorf("warned %d times in 20 seconds", n)
		}
		b.Router(1).Restart()
		b.Within(10*time.Second, "one group", oneGroup(b, 1))
		if list := warnings(t, b.Router(0)); strings.Contains(list, "can't join") {
			t.Errorf("still warns: %s", list)
		}
	})
}

// A secret changed on one router alone: the other one's status says what is wrong.
func TestSecretsThatDifferAreTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(i int) string { return filepath.Join(dir, string(rune('a'+i))) }
	write := func(i int, secret string) {
		t.Helper()
		if err := os.WriteFile(file(i), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(0, "the-secret-of-the-first-cluster")
	write(1, "the-secret-of-the-first-cluster")
	harness.InBubble(t, harness.BubbleConfig{Routers: 2, Delay: time.Millisecond, RouterFile: func(i int, c *node.Config) {
		c.Cluster.SecretFile, c.Cluster.Insecure = file(i), false
	}}, func(t *testing.T, b *harness.Bubble) {
		b.Within(10*time.Second, "one group", oneGroup(b, 1))
		write(1, "the-secret-of-another-cluster")
		b.Settle(30 * time.Second)
		warned(t, b.Router(0), "membership refused, shared secrets differ (here ")
	})
}
