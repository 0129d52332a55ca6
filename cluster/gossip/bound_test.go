package gossip

import (
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/simnet"
)

// bound is the published bound on the bytes a router sends in a second to each of
// the others (cluster/DESIGN.md): q requests a second of its own with l new links
// each, r replicas it has load at, n routers in all.
func bound(n, r int, q, l float64) float64 {
	const (
		row      = 80  // a message of one changed row, framed
		ops      = 115 // place, first and end, without links
		link     = 10
		fullRow  = 32
		constant = 400 // beacons, replies, pings, membership
	)
	return q*(3*row+ops+l*link) + fullRow*float64(r) + constant + 16*float64(n)
}

func TestTrafficStaysWithinItsBound(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		const (
			routers = 6
			rate    = 50 // requests a second and router
			links   = 10
			span    = 6 * time.Second
		)
		r := group(t, n, routers, options{})
		time.Sleep(10 * time.Second)
		f := func(name string, load func(), limit float64) {
			before := make([]int64, routers)
			sum := func(x simnet.Traffic) int64 { return x.StreamOut + x.PacketOut }
			for i, x := range r {
				before[i] = sum(x.host.Traffic())
			}
			load()
			for i, x := range r {
				rate := float64(sum(x.host.Traffic())-before[i]) / span.Seconds() / (routers - 1)
				if i == 0 {
					t.Logf("%s: %.0f bytes a second to each peer, bound %.0f", name, rate, limit)
				}
				if rate > limit {
					t.Errorf("%s: router %d sends %.0f bytes a second to each peer, the bound is %.0f", name, i, rate, limit)
				}
			}
		}
		f("idle", func() { time.Sleep(span) }, bound(routers, 0, 0, 0))
		f("busy", func() {
			for k := range rate * int(span/time.Second) {
				for i, x := range r {
					ticket := x.begin((k+i)%replicas, 100)
					x.learn((k+i)%replicas, links)
					time.AfterFunc(300*time.Millisecond, func() { ticket.FirstToken() })
					time.AfterFunc(900*time.Millisecond, func() { ticket.End() })
				}
				time.Sleep(time.Second / rate)
			}
		}, bound(routers, replicas, rate, links))
		// What was told is told: nothing goes on being sent for its own sake.
		time.Sleep(5 * time.Second)
		f("idle again", func() { time.Sleep(span) }, bound(routers, 0, 0, 0))
	})
}
