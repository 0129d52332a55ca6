package gossip

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hearsay-llm/hearsay/test/simnet"
)

// What status and metrics say of delay, age and lag follows what really happens.
func TestDelaysAndAgesAreShown(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 3, options{})
		time.Sleep(3 * time.Second)
		busy := func(rounds int) {
			for range rounds {
				ticket := r[0].begin(0, 10)
				r[0].learn(1, 3)
				time.Sleep(100 * time.Millisecond)
				ticket.End()
				time.Sleep(100 * time.Millisecond)
			}
		}
		busy(50)
		m := r[1].member("r0")
		if m.Delay < 0 || m.Delay > 20*time.Millisecond || time.Since(m.RowsAt) > 1300*time.Millisecond {
			t.Errorf("delay %v, rows %v ago", m.Delay, time.Since(m.RowsAt))
		}
		s := r[1].gossip.Status()
		if s.Streams != 2 || s.OldestRows > 1300*time.Millisecond || s.Behind != 0 || s.RowsNews < 0.95 || s.OpsNews < 0.9 || len(s.Degraded) != 0 {
			t.Errorf("%+v", s)
		}
		// The link becomes slow.
		n.SetLinks("r0", "r1", simnet.Link{Delay: 300 * time.Millisecond})
		busy(50)
		if m := r[1].member("r0"); m.Delay < 200*time.Millisecond || m.Delay > 400*time.Millisecond {
			t.Errorf("a delay of %v is shown of a link of 300 ms", m.Delay)
		}
		if m := r[2].member("r0"); m.Delay > 20*time.Millisecond {
			t.Errorf("a delay of %v is shown of a fast link", m.Delay)
		}
		// And holds everything.
		n.Cut("r0", "r1")
		n.Cut("r0", "r2")
		time.Sleep(1900 * time.Millisecond)
		for range 100 {
			r[0].learn(1, 3)
		}
		if s := r[1].gossip.Status(); s.OldestRows < 1500*time.Millisecond {
			t.Errorf("oldest rows are %v old", s.OldestRows)
		}
		n.HealAll()
		time.Sleep(5 * time.Second)
		for _, name := range []string{"hearsay_gossip_rows_age_seconds", "hearsay_gossip_journal_lag", "hearsay_gossip_peer_delay_seconds"} {
			if got, err := testutil.GatherAndCount(r[1].reg, name); err != nil || got != 2 {
				t.Errorf("%s: %d series, %v", name, got, err)
			}
		}
		if got := testutil.CollectAndCount(r[1].gossip.metrics.news); got != 2 {
			t.Errorf("%d histograms of news", got)
		}
	})
}

// What is known otherwise is told to have been repeated.
func TestNewsRatio(t *testing.T) {
	c := newNewsCounter("x", "y")
	if got := c.ratio(); got != -1 {
		t.Errorf("ratio %v of nothing", got)
	}
	c.add(3, 1)
	if got := c.ratio(); got != 0.75 {
		t.Errorf("ratio %v", got)
	}
}
