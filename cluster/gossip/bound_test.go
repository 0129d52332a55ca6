package gossip

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/simnet"
)

// bound is a quarter above what is predicted.
func bound(s Size) float64 { return 1.25 * untaught(s) }

// untaught is what is predicted where nobody teaches lessons.
func untaught(s Size) float64 {
	b := Traffic(s)
	return b.Total() - b.Lessons
}

func TestTrafficStaysWithinItsBound(t *testing.T) {
	const links = 10
	f := func(name string, routers, allPairs, replicas, rate int, span time.Duration) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *simnet.Net) {
				r := make([]*router, routers)
				n.Host("r00")
				for i := range r {
					r[i] = start(t, options{
						n: n, host: fmt.Sprintf("r%02d", i), join: []string{"r00"}, replicas: replicas,
						tweak: func(c *Config) { c.AllPairs = allPairs },
					})
				}
				time.Sleep(2 * span)
				rng := rand.New(rand.NewPCG(1, 2))
				load := func(s Size) {
					s.Routers, s.AllPairs, s.Lasting = routers, allPairs, 600*time.Millisecond
					sum := func() (out int64) {
						for _, x := range r {
							t := x.host.Traffic()
							out += t.StreamOut + t.PacketOut
						}
						return out
					}
					before := sum()
					if s.Rate == 0 {
						time.Sleep(span)
					}
					for k := range int(s.Rate * span.Seconds()) {
						for i, x := range r {
							time.AfterFunc(time.Duration(rng.Int64N(int64(20*time.Millisecond))), func() { x.request((7*k+i)%replicas, links) })
						}
						time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / s.Rate))
					}
					got := float64(sum()-before) / span.Seconds() / float64(routers)
					t.Logf("%+v: %.0f bytes a second, predicted %.0f", s, got, untaught(s))
					if got > bound(s) || got < untaught(s)/1.4 {
						t.Errorf("%+v: %.0f bytes a second, the bound is %.0f", s, got, bound(s))
					}
				}
				load(Size{})
				load(Size{Rate: float64(rate), Links: links})
				// What was told is told: nothing goes on being sent for its own sake.
				time.Sleep(2 * time.Second)
				load(Size{})
			})
		})
	}
	f("few", 3, 128, 8, 20, 3*time.Second)
	f("busy", 4, 128, 40, 50, 3*time.Second)
	f("few streams each", 12, 4, 8, 2, 5*time.Second)
}

// request is a request's course, answered after 0.2 s and over after 0.6 s.
func (r *router) request(i, marks int) {
	ticket, p := r.begin(i, 100), r.place(i, marks)
	time.AfterFunc(200*time.Millisecond, func() {
		ticket.FirstToken()
		p.First(time.Now())
	})
	time.AfterFunc(600*time.Millisecond, func() {
		ticket.End()
		p.Evidence(0, 100*marks, 0)
		p.End(time.Now())
	})
}
