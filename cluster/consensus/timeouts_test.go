package consensus

import (
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

func TestTimeoutsFollowTheHeartbeats(t *testing.T) {
	f := func(heartbeat, exchange, tick time.Duration) {
		t.Helper()
		c := Config{HeartbeatTimeout: heartbeat}.withDefaults()
		if c.exchange() != exchange || c.LeaderWait != exchange || c.TickTimeout != tick || c.ElectionTimeout != c.HeartbeatTimeout {
			t.Errorf("%v: exchange %v, leader wait %v, tick %v, election %v", heartbeat, c.exchange(), c.LeaderWait, c.TickTimeout, c.ElectionTimeout)
		}
	}
	f(0, 2*time.Second, 5*time.Second)
	f(200*time.Millisecond, 2*time.Second, 5*time.Second)
	f(500*time.Millisecond, 2*time.Second, 5*time.Second)
	f(2*time.Second, 8*time.Second, 5*time.Second)
	f(10*time.Second, 10*time.Second, 20*time.Second)
}

// Voters have unlike heartbeat time-outs, while they are changed. A leader whose heartbeats come too seldom for a majority
// is replaced, once, by one of that majority. One router alone that wants them more often changes nothing.
func TestUnlikeHeartbeats(t *testing.T) {
	run := func(name string, few, many time.Duration, lasts bool) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fleet) {
				f.started(3, 3)
				l := f.waitLeader()
				// The others are started again with their value, then the leader, which is made the leader again.
				others := slicesWithout(names(3), l.id)
				set := func(id state.RouterID, d time.Duration) {
					f.kill(id)
					f.start(id, func(c *Config) { c.HeartbeatTimeout = d })
					f.until(time.Minute, "it has a leader", func() bool { return f.leader() != nil && f.member(id).Status().Leader == f.leader().id })
				}
				set(others[0], many)
				set(others[1], few)
				set(l.id, many)
				for i := 0; ; i++ { // the next leader is one with the value that two have
					l = f.waitLeader()
					if l.cfg.HeartbeatTimeout == many || i > 20 {
						break
					}
					_ = l.Resign(t.Context())
					time.Sleep(time.Second)
				}
				began := l.Status().Term
				time.Sleep(2 * time.Minute)
				after := f.waitLeader()
				t.Logf("%v leads in term %d, before %d", after.cfg.HeartbeatTimeout, after.Status().Term, began)
				if terms := after.Status().Term - began; lasts && terms != 0 || terms > 3 {
					t.Errorf("%d terms in two minutes", terms)
				}
				must(t, after, replica(1))
			})
		})
	}
	run("one wants them more often", 500*time.Millisecond, 10*time.Second, true)
	run("one wants them more seldom", 10*time.Second, 500*time.Millisecond, true)
	run("four times as often", 500*time.Millisecond, 2*time.Second, true)
}
