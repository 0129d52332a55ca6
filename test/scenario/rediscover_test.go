package scenario

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// A pool's replicas are found elsewhere from a reload on, under traffic: who is in both
// lists stays, with all that is known of it, and no request fails. A pool that is taken
// out and put back is the same pool again, on which the routers agree.
func TestDiscoverIsReloadedUnderTraffic(t *testing.T) {
	dir := t.TempDir()
	one, two := &listed{t, filepath.Join(dir, "one.yaml")}, &listed{t, filepath.Join(dir, "two.yaml")}
	one.engines(0, 1, 2)
	var version atomic.Int32 // of all routers' files
	cfg := harness.BubbleConfig{Routers: 2, Engines: 3, Delay: time.Millisecond, RouterFile: func(_ int, c *node.Config) {
		p := &c.Pools[0]
		p.Replicas, p.Discover.File, p.Discover.Grace = nil, one.path, 30*time.Second
		more := node.PoolConfig{Name: "more", Model: "more", Discover: node.DiscoverConfig{File: filepath.Join(dir, "more.yaml")}}
		switch version.Load() {
		case 0:
			c.Pools = append(c.Pools, more)
		case 1:
			p.Discover.File, p.Discover.Grace = two.path, 20*time.Second
		case 2:
			p.Discover.File = two.path
			c.Pools = append(c.Pools, more)
		}
	}}
	harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
		revision := func(want uint64) func() error {
			return func() error {
				return each(b, func(r *harness.Router) error {
					if c := r.Node().Info().Config; c.Revision != want {
						return fmt.Errorf("runs %+v, want revision %d", c, want)
					}
					return nil
				})
			}
		}
		b.Within(30*time.Second, "agreed", revision(1))
		stop := traffic(t, b)
		time.Sleep(5 * time.Second)
		known := func(r *harness.Router, id state.ReplicaID) (entries int, slot state.Slot) {
			return r.Node().Sketch(id).Entries, r.Replica(id).Slot
		}
		was, slot := known(b.Router(0), "e1:8000")

		version.Store(1)
		for _, r := range b.Routers() {
			status, done, text := reload(t, r)
			if status != http.StatusOK || len(done.Restart) > 0 || !slices.Contains(done.Changed, "pools.chat.discover.file") || !slices.Contains(done.Changed, "pools.more") {
				t.Errorf("%s: status %d, %s", r.Name, status, text)
			}
		}
		time.Sleep(10 * time.Second) // its file is not there yet
		if err := haveListed(b, "e0:8000", "e1:8000", "e2:8000")(); err != nil {
			t.Error(err)
		}
		if err := warning(b.Router(0), "two.yaml: can't be read"); err != nil {
			t.Error(err)
		}
		two.engines(1, 2)
		b.Within(2*time.Second, "e0 drains", haveListed(b, "-e0:8000", "e1:8000", "e2:8000"))
		if n, s := known(b.Router(0), "e1:8000"); was == 0 || n < was || s != slot {
			t.Errorf("%d marks at slot %v, before %d at %v", n, s, was, slot)
		}
		b.Within(30*time.Second, "e0 is gone", haveListed(b, "e1:8000", "e2:8000"))
		b.Within(15*time.Second, "agreed again", revision(2))
		if served := stop(); served["e1:8000"] == 0 {
			t.Errorf("served %v", served)
		}

		version.Store(2)
		for _, r := range b.Routers() {
			if status, _, text := reload(t, r); status != http.StatusOK {
				t.Errorf("%s: status %d, %s", r.Name, status, text)
			}
		}
		b.Within(15*time.Second, "agreed on the pool that is back", revision(3))
		if err := each(b, func(r *harness.Router) error {
			if w := warnings(t, r); strings.Contains(w, "other pools") || strings.Count(w, "more.yaml") != 1 {
				return fmt.Errorf("%s warns: %s", r.Name, w)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}
