package scenario

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// The shared secret of three routers is changed through one of them, with three calls.
// Every router stays a living member; what would cut one off is refused.
func TestKeyringChangesTheSecretOfAll(t *testing.T) {
	dir := t.TempDir()
	file := func(i int) string { return filepath.Join(dir, fmt.Sprint("secret", i)) }
	for i := range 3 {
		if err := os.WriteFile(file(i), []byte("the-secret-of-last-year\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := harness.BubbleConfig{Routers: 3, Engines: 1, Delay: time.Millisecond, RouterFile: func(i int, c *node.Config) {
		c.Cluster.SecretFile, c.Cluster.Insecure = file(i), false
	}}
	harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
		b.Within(15*time.Second, "three voters", voting(b, 3))
		keyring := func(i, want int, op, key string) (list []console.Keys) {
			t.Helper()
			op, force := strings.CutSuffix(op, " by force")
			method, in := "POST", any(console.KeyringRequest{Op: op, Key: key, Force: force})
			if op == "list" {
				method, in = "GET", nil
			}
			var out any = &list
			if want != http.StatusOK {
				out = nil
			}
			status, err := b.Router(i).Admin(method, "/admin/v1/keyring", in, out)
			if err != nil || status != want {
				t.Fatalf("r%d: %s %s: status %d, want %d, %v", i, op, key, status, want, err)
			}
			for _, k := range list {
				if k.Error != "" && !k.Away {
					t.Errorf("r%d: %s %s: %+v", i, op, key, k)
				}
			}
			return list
		}
		all := func(list []console.Keys, want ...string) {
			t.Helper()
			if len(list) != 3 {
				t.Errorf("%d routers", len(list))
			}
			for _, k := range list {
				if !slices.Equal(k.Keys, want) {
					t.Errorf("%s has %q, want %q", k.Name, k.Keys, want)
				}
			}
		}
		old := keyring(0, http.StatusOK, "list", "")[0].Keys[0]
		list := keyring(0, http.StatusOK, "add", "")
		fresh := list[0].Keys[1]
		all(list, old, fresh)
		for _, k := range list {
			if k.Added != fresh {
				t.Errorf("%s marks %q as added, want %q", k.Name, k.Added, fresh)
			}
		}
		keyring(1, http.StatusBadRequest, "remove", old)
		keyring(1, http.StatusNotFound, "use", "12345678")
		all(keyring(1, http.StatusOK, "use", fresh), fresh, old)
		b.Settle(5 * time.Second)
		if err := oneGroup(b, 1)(); err != nil {
			t.Error(err)
		}
		all(keyring(2, http.StatusOK, "remove", old), fresh)
		b.Settle(20 * time.Second)
		if err := oneGroup(b, 1)(); err != nil {
			t.Error(err)
		}
		for _, r := range b.Routers() {
			if w := warnings(t, r); w != "" {
				t.Errorf("%s warns: %s", r.Name, w)
			}
		}
		all(keyring(0, http.StatusOK, "list", ""), fresh)

		// While one is away it takes force; it is named, and lacks what was added meanwhile.
		b.Router(2).Kill()
		b.Settle(20 * time.Second)
		keyring(0, http.StatusBadRequest, "add", "")
		list = keyring(0, http.StatusOK, "add by force", "")
		next := list[len(list)-1].Keys[1]
		if i := slices.IndexFunc(list, func(k console.Keys) bool { return k.Away }); i < 0 || list[i].Name != "r2" {
			t.Errorf("%+v", list)
		}
		b.Router(2).Restart()
		b.Within(30*time.Second, "one group", oneGroup(b, 1))
		keyring(0, http.StatusBadRequest, "use", next)
		all(keyring(0, http.StatusOK, "add", next), fresh, next)
		all(keyring(0, http.StatusOK, "use", next), next, fresh)
	})
}
