package scenario

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/harness"
)

var (
	churnSizes = flag.String("churn-sizes", "6,12", "numbers of routers of TestLearnersComeAndGo, the least first")
	churnFor   = flag.Duration("churn-for", 20*time.Second, "how long they come and go, in simulated time")
)

const (
	churnEvery = 6 * time.Second // ten a minute
	awayFor    = 2 * time.Second
	factsEvery = 9 * time.Second
	factsByAll = time.Second // from the first router that has what was written to the last one that is ready
)

// Ten times a minute a learner is killed or stopped, and comes back as the same or as a new router. Raft's
// configuration does not change by it, what is committed reaches all others within a second, and how often the leader
// sends beyond what a learner does, which is what leading costs, does not grow with their number.
func TestLearnersComeAndGo(t *testing.T) {
	var list []churned
	for _, s := range strings.Split(*churnSizes, ",") {
		var n int
		if _, err := fmt.Sscan(s, &n); err != nil || n < 5 {
			t.Fatalf("-churn-sizes: %q is no number of routers from 5 on", s)
		}
		t.Run(s, func(t *testing.T) {
			harness.InBubble(t, harness.BubbleConfig{
				Routers: n, Delay: time.Millisecond, Jitter: time.Millisecond,
				RouterFile: func(_ int, c *node.Config) { c.Log.Level = "info" }, // all of it is kept
			}, func(t *testing.T, b *harness.Bubble) {
				c := churn(t, b)
				t.Logf("%d routers, %d times one went: facts on all after %v at most; leader %v, voters %v, learners %v (medians); to lead costs %v",
					c.routers, c.went, c.slowest, c.leader, c.voters, c.learners, c.leads())
				list = append(list, c)
			})
		})
	}
	if len(list) == 0 {
		return
	}
	least := list[0].leads()
	for i := range list {
		c := &list[i]
		// Bytes are told, not judged: whoever a newcomer asks sends it all it knows at once.
		if x := c.leads(); x.sends > 1.3*least.sends+5 {
			t.Errorf("to lead %d routers costs %v, to lead %d of them %v", c.routers, x, list[0].routers, least)
		}
	}
}

// cost is what a router sent and got in a second, and how often it sent.
type cost struct{ bytes, sends float64 }

func (c cost) String() string { return fmt.Sprintf("%.1f kB/s in %.0f sends/s", c.bytes/1e3, c.sends) }

// churned is what came of one size.
type churned struct {
	routers, went            int
	slowest                  time.Duration
	leader, voters, learners cost
}

// leads is what the leader sent and got beyond what a learner did.
func (c *churned) leads() cost {
	return cost{c.leader.bytes - c.learners.bytes, c.leader.sends - c.learners.sends}
}

func churn(t *testing.T, b *harness.Bubble) churned {
	b.Within(30*time.Second, "three voters", voting(b, 3))
	l, _ := waitLeader(b, 5*time.Second)
	voters := l.Node().Info().Raft.Voters
	var learners []*harness.Router
	for _, r := range b.Routers() {
		if !slices.Contains(voters, string(r.ID())) {
			learners = append(learners, r)
		}
	}
	out := churned{routers: len(b.Routers())}
	rng := rand.New(rand.NewPCG(1, uint64(len(learners))))
	before := sentSoFar(b)
	steady := map[string]bool{} // was there all the time
	for _, r := range b.Routers() {
		steady[r.Name] = true
	}
	began := time.Now()
	nextChurn, nextFact := began.Add(churnEvery), began.Add(factsEvery)
	for target := 2; time.Since(began) < *churnFor; {
		now := time.Now()
		switch {
		case !now.Before(nextChurn):
			nextChurn = nextChurn.Add(churnEvery)
			r := learners[rng.IntN((len(learners)+1)/2)] // the others tell what a learner costs
			steady[r.Name] = false
			goAndCome(t, b, r, rng.IntN(3))
			out.went++
		case !now.Before(nextFact):
			nextFact = nextFact.Add(factsEvery)
			target = 2 + target%5
			out.slowest = max(out.slowest, spread(t, b, rng, target))
		}
		time.Sleep(10 * time.Millisecond)
	}
	span := time.Since(began).Seconds()
	after := sentSoFar(b)
	if now := l.Node().Info(); now.Raft.Leader != now.ID || !slices.Equal(now.Raft.Voters, voters) {
		t.Errorf("%s led, %v voted; now %s leads, %v vote", l.Name, voters, now.Raft.Leader, now.Raft.Voters)
	}
	if n := strings.Count(afterInstant(l.Log(), began), `"voters changed"`); n != 0 {
		t.Errorf("Raft's configuration changed %d times", n)
	}
	var ofVoters, ofLearners []cost
	for i, r := range b.Routers() {
		c := cost{float64(after[i].bytes-before[i].bytes) / span, float64(after[i].sends-before[i].sends) / span}
		switch {
		case r == l:
			out.leader = c
		case !steady[r.Name]:
		case slices.Contains(voters, string(r.ID())):
			ofVoters = append(ofVoters, c)
		default:
			ofLearners = append(ofLearners, c)
		}
	}
	if len(ofVoters) == 0 || len(ofLearners) == 0 {
		t.Fatalf("of %d routers %d voters and %d learners were there all the time", len(b.Routers()), len(ofVoters), len(ofLearners))
	}
	out.voters, out.learners = middle(ofVoters), middle(ofLearners)
	return out
}

// goAndCome ends a learner in one of three ways and brings one back.
func goAndCome(t *testing.T, b *harness.Bubble, r *harness.Router, way int) {
	t.Helper()
	switch way {
	case 0: // killed, and back on its disk
		r.Kill()
	case 1: // killed, and another one in its place
		r.Kill()
		r.Wipe()
	default:
		if err := r.Stop(); err != nil {
			t.Errorf("stop %s: %v", r.Name, err)
		}
	}
	b.Settle(awayFor)
	r.Restart()
}

// spread commits a target through any router and takes the time from the first router that has it to the last one.
func spread(t *testing.T, b *harness.Bubble, rng *rand.Rand, to int) time.Duration {
	t.Helper()
	alive := b.Alive()
	asked := alive[rng.IntN(len(alive))]
	done := make(chan int, 1)
	go func() { // the answer waits for the others, also for those that just went
		status, err := asked.Admin("PUT", "/admin/v1/pools/"+harness.Pool+"/target", console.TargetRequest{To: &to}, nil)
		if err != nil {
			status = -1
		}
		done <- status
	}()
	key := state.TargetKey{Pool: harness.Pool, Role: state.RoleBoth}
	has := func(r *harness.Router) bool { return r.Node().View().Facts.Targets[key] == to }
	b.Within(5*time.Second, "the target is committed", func() error { // a router asked that has just started finds the leader first
		if !slices.ContainsFunc(b.Alive(), has) {
			return errNothing
		}
		return nil
	})
	took := b.Within(factsByAll, "the target on all", func() error {
		return each(b, func(r *harness.Router) error {
			if has(r) {
				return nil
			}
			if ready, _ := r.Node().Ready(); ready { // one that has just started joins first
				return fmt.Errorf("facts at %d", r.Node().View().Facts.Index)
			}
			return nil
		})
	})
	if status := <-done; status != http.StatusOK {
		t.Errorf("a write through %s: status %d", asked.Name, status)
	}
	return took
}

type moved struct{ bytes, sends int64 }

// sentSoFar is what each router has sent and got so far.
func sentSoFar(b *harness.Bubble) (out []moved) {
	for _, r := range b.Routers() {
		t := b.Net.Host(r.Name).Traffic()
		out = append(out, moved{t.StreamOut + t.StreamIn + t.PacketOut + t.PacketIn, t.Sends})
	}
	return out
}

// middle is the median of each figure.
func middle(list []cost) (m cost) {
	if len(list) == 0 {
		return m
	}
	var bytes, sends []float64
	for _, c := range list {
		bytes, sends = append(bytes, c.bytes), append(sends, c.sends)
	}
	slices.Sort(bytes)
	slices.Sort(sends)
	return cost{bytes[len(bytes)/2], sends[len(sends)/2]}
}

// afterInstant are the lines of a log from an instant on.
func afterInstant(log string, at time.Time) string {
	var out []string
	for _, line := range strings.Split(log, "\n") {
		_, rest, ok := strings.Cut(line, `"time":"`)
		stamp, _, _ := strings.Cut(rest, `"`)
		if when, err := time.Parse(time.RFC3339, stamp); ok && err == nil && !when.Before(at.Truncate(time.Second)) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}
