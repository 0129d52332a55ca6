package cases

import (
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// A router that is started alone makes itself the leader and agrees with itself on what
// it runs. Until then nothing is wrong, and nothing is warned of.
func TestALoneRouterFormsWithoutAWarning(t *testing.T) {
	harness.InBubble(t, harness.BubbleConfig{}, func(t *testing.T, b *harness.Bubble) {
		look := func() (s console.Status) {
			t.Helper()
			if code, err := b.Router(0).Admin("GET", "/admin/v1/status", nil, &s); err != nil || code != 200 {
				t.Fatal(code, err)
			}
			for _, w := range s.Warn {
				if strings.Contains(w, "leader") || strings.Contains(w, "founded") || strings.Contains(w, "agreed") {
					t.Errorf("after %.1f s: %s", s.UptimeS, w)
				}
			}
			return s
		}
		for range 3 { // with an empty disk, then with what it kept
			began := time.Now()
			for s := look(); s.Router.Config.Revision == 0 || s.Router.Raft.Leader == ""; s = look() {
				if !s.Router.Raft.Forming {
					t.Fatalf("it neither forms nor leads: %+v", s.Router)
				}
				if time.Since(began) > 3*time.Second {
					t.Fatalf("not agreed with itself: %+v", s.Router)
				}
				time.Sleep(50 * time.Millisecond)
			}
			if s := look(); s.Router.Raft.Forming {
				t.Errorf("it forms for ever: %+v", s.Router)
			}
			if err := b.Router(0).Stop(); err != nil {
				t.Fatal(err)
			}
			b.Router(0).Restart()
		}
	})
}
