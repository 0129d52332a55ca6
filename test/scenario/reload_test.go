package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// A router's file is changed while streams run: what has a fault changes nothing, a
// good one is taken at once, and what needs a restart is named. Until all routers run
// the same, each says who differs and the leader scales nothing of it; then the
// configuration is committed under a new revision.
func TestConfigurationIsReloaded(t *testing.T) {
	var version [3]atomic.Int32 // of each router's file
	file := func(i int, c *node.Config) {
		p := &c.Pools[0]
		p.Scale.Min, p.Scale.Max = 1, 8
		switch version[i].Load() {
		case 1: // half of it is impossible
			p.Policy, p.Replicas = "no such policy", nil
		case 2:
			p.Aliases, p.Policy = []string{"fresh"}, "round_robin"
			p.Replicas = slices.Delete(slices.Clone(p.Replicas), 1, 2)
			c.API.MaxConnections = 5
			c.Gateway.RequireKey = false
			more := *p
			more.Name, more.Model, more.Aliases, more.Replicas = "second", "second-model", nil, nil
			c.Pools = append(c.Pools, more)
		}
	}
	cfg := harness.BubbleConfig{Routers: 3, Engines: 2, Delay: time.Millisecond, RouterFile: file}
	harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
		revision := func(want uint64) func() error {
			return func() error {
				return each(b, func(r *harness.Router) error {
					if c := r.Node().Info().Config; c.Revision != want || c.Digest == "" {
						return fmt.Errorf("runs %+v, want revision %d", c, want)
					}
					return nil
				})
			}
		}
		b.Within(30*time.Second, "the first configuration is agreed on", revision(1))
		// The leader's file is changed first, so that it could win, and then the others'.
		l, _ := waitLeader(b, 5*time.Second)
		at := slices.Index(b.Routers(), l)
		order := []int{at, (at + 1) % 3, (at + 2) % 3}
		r := func(i int) *harness.Router { return b.Router(order[i]) }
		first := r(0).Node().Info().Config.Digest
		stream := b.Open(order[0], streamed(chat(words("long", 300), "Go on and on.", 1500)).Body())
		if !stream.Next() {
			t.Fatal(stream)
		}

		version[order[0]].Store(1)
		if status, _, text := reload(t, r(0)); status != http.StatusBadRequest || !strings.Contains(text, "no such policy") {
			t.Errorf("a file with a fault: status %d, %s", status, text)
		}
		warned(t, r(0), "was not reloaded")
		if c := r(0).Node().Info().Config; c.Digest != first {
			t.Errorf("half of a bad file was taken: %+v", c)
		}
		ok(t, b.Chat(order[0], chat(words("meanwhile", 100), "And?", 5)))

		for i := range 6 { // what is learned of a replica outlives reloads
			ok(t, b.Chat(order[0], chat(words(fmt.Sprint("learned", i), 300), "And?", 5)))
		}
		b.Settle(time.Second)
		kept := b.Engine(0).ID
		learned, slot := r(0).Node().Sketch(kept).Entries, r(0).Replica(kept).Slot
		version[order[0]].Store(2)
		status, done, text := reload(t, r(0))
		if status != http.StatusOK || !slices.Contains(done.Changed, "pools.chat.policy") || !slices.Contains(done.Changed, "pools.second") {
			t.Errorf("status %d, %s", status, text)
		}
		if !slices.Equal(done.Restart, []string{"api.max_connections"}) {
			t.Errorf("a restart is needed for %q", done.Restart)
		}
		if n := r(0).Node().Sketch(kept).Entries; learned == 0 || n < learned || r(0).Replica(kept).Slot != slot {
			t.Errorf("%d marks of %s were known, %d after the reload", learned, kept, n)
		}
		v := r(0).Node().View()
		if p := v.PoolNamed("chat"); p == nil || len(p.Replicas) != 1 || p.Spec.Policy != "round_robin" || v.PoolNamed("second") == nil {
			t.Errorf("pools %+v", v.Pools)
		}
		if w := warnings(t, r(0)); strings.Contains(w, "was not reloaded") {
			t.Errorf("it still warns: %s", w)
		}
		b.Within(15*time.Second, "each says who differs", func() error {
			for i := range order {
				other := r(0)
				if i == 0 {
					other = r(1)
				}
				w := strings.Join(r(i).Node().Info().Warnings, "\n")
				if !strings.Contains(w, "router "+other.Name+" runs other pools than this one (chat, second)") {
					return fmt.Errorf("%s warns: %s", r(i).Name, w)
				}
			}
			return nil
		})
		for i, want := range []float64{2, 1, 1} {
			if n := metrics(t, r(i)).sum("hearsay_config_differing_routers"); n != want {
				t.Errorf("r%d: %v routers differ, want %v", i, n, want)
			}
		}
		var list []console.Member
		if _, err := r(1).Admin("GET", "/admin/v1/members", nil, &list); err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if m.Config == nil || (m.Config.Revision == 1) != (m.Name != r(0).Name) {
				t.Errorf("%s runs %+v", m.Name, m.Config)
			}
		}
		for stream.Next() {
		}
		ok(t, stream.Reply)
		b.Settle(time.Minute)
		if c := r(1).Node().Info().Config; c.Revision != 1 {
			t.Errorf("the file of one router has won: %+v", c)
		}

		for i := 1; i < 3; i++ {
			version[order[i]].Store(2)
			if status, _, text := reload(t, r(i)); status != http.StatusOK {
				t.Errorf("r%d: status %d, %s", i, status, text)
			}
		}
		b.Within(15*time.Second, "the new one is agreed on", revision(2))
		b.Within(3*time.Second, "nobody warns any more", func() error {
			return each(b, func(r *harness.Router) error {
				if w := warnings(t, r); strings.Contains(w, "other pools") {
					return errors.New(w)
				}
				return nil
			})
		})
		// A router that starts with another file does not win either.
		version[order[2]].Store(0)
		if err := r(2).Stop(); err != nil {
			t.Fatal(err)
		}
		r(2).Restart()
		b.Within(30*time.Second, "it says so itself", func() error {
			if w := r(2).Node().Info().Warnings; !slices.ContainsFunc(w, func(s string) bool { return strings.Contains(s, "runs other pools than this one (chat, second)") }) {
				return fmt.Errorf("warns: %q", w)
			}
			return nil
		})
		if m := metrics(t, r(0)); m.sum("hearsay_config_reloads_total", "result", "refused") != 1 || m.sum("hearsay_config_reloads_total", "result", "done") != 1 {
			t.Error("reloads are not counted")
		}
	})
}

// reload makes a router read its file again.
func reload(t *testing.T, r *harness.Router) (status int, out console.Reloaded, text string) {
	t.Helper()
	status, err := r.Admin("POST", "/admin/v1/config/reload", nil, &text)
	if err = errors.Join(err, json.Unmarshal([]byte(text), &out)); err != nil {
		t.Fatal(err)
	}
	return status, out, text
}
