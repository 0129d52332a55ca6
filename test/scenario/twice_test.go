package scenario

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// A router is started on a copied data directory and joins another router than the
// one whose id it has. Soon everybody's status says so, the two's whether their
// streams are up or not, and says nothing of closed ports. Once the copy is stopped
// the router it was copied from counts again, and nothing is said any more.
func TestCopiedDataDirectory(t *testing.T) {
	t.Parallel()
	const copied = 3
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Delay: time.Millisecond, RouterFile: func(i int, c *node.Config) {
		if i == copied {
			c.Cluster.Join, c.Cluster.BootstrapExpect = c.Cluster.Join[:1], 1
		}
	}}, func(t *testing.T, b *harness.Bubble) {
		waitLeader(b, 5*time.Second)
		f := b.AddRouter()
		f.Kill()
		f.Wipe()
		id, err := os.ReadFile(b.Router(1).Data("node-id"))
		if err == nil {
			err = errors.Join(os.MkdirAll(f.Data("."), 0o700), os.WriteFile(f.Data("node-id"), id, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Restart()
		const told = "the same node id"
		all := func() error {
			return each(b, func(r *harness.Router) error {
				w := warnings(t, r)
				if strings.Contains(w, "is TCP blocked") || !strings.Contains(w, told) {
					return fmt.Errorf("%s says: %s", r.Name, w)
				}
				return nil
			})
		}
		eventually(b, 25*time.Second, "all say what is wrong", all)
		for range 20 {
			time.Sleep(1500 * time.Millisecond)
			if err := all(); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Stop(); err != nil {
			t.Fatal(err)
		}
		eventually(b, 10*time.Second, "it counts again", func() error {
			for _, i := range []int{0, 2} {
				for _, m := range b.Router(i).Node().Members() {
					if m.Name == "r1" && (m.State != "alive" || m.Mesh != "up" || m.Facts == nil || *m.Facts == 0) {
						return fmt.Errorf("r%d has %+v", i, m)
					}
				}
			}
			return nil
		})
		eventually(b, 20*time.Second, "nothing is said", func() error {
			return each(b, func(r *harness.Router) error {
				if w := warnings(t, r); strings.Contains(w, told) {
					return fmt.Errorf("%s says: %s", r.Name, w)
				}
				return nil
			})
		})
	})
}
