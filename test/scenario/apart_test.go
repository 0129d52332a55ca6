package scenario

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// eventually is Bubble.Within for checks that cost something: it looks twice a second.
func eventually(b *harness.Bubble, d time.Duration, what string, check func() error) {
	b.T.Helper()
	for range d / (500 * time.Millisecond) {
		if check() == nil {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	if err := check(); err != nil {
		b.T.Fatalf("%s: not within %v: %v", what, d, err)
	}
}

// Two clusters that were founded apart meet: every router's status says that they
// are two, and what to do; each keeps its leader, its facts and its service. What
// is told is what mends it.
func TestTwoClustersThatMeet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		join := map[int]int{1: 0} // r0 and r1 are a cluster, r2 is another one
		b := harness.NewBubble(t, harness.BubbleConfig{Routers: 3, Delay: time.Millisecond, RouterFile: func(i int, c *node.Config) {
			c.Cluster.Join, c.Cluster.BootstrapExpect = nil, 1
			if to, ok := join[i]; ok {
				c.Cluster.Join = []string{fmt.Sprintf("r%d:7946", to)}
			}
		}})
		ids := func() (list []string) {
			for _, r := range b.Routers() {
				list = append(list, r.Node().Info().Raft.ClusterID)
			}
			return list
		}
		eventually(b, 20*time.Second, "two clusters", func() error {
			if l := ids(); l[0] == "" || l[0] != l[1] || l[2] == "" || l[2] == l[0] {
				return fmt.Errorf("cluster ids %q", l)
			}
			return nil
		})
		before := ids()

		join[2] = 0
		if err := b.Router(2).Stop(); err != nil {
			t.Fatal(err)
		}
		b.Router(2).Restart()
		const told = "it is of another cluster, the two were founded apart"
		says := func(r *harness.Router, of string) error {
			for line := range strings.SplitSeq(warnings(t, r), "\n") {
				if strings.HasPrefix(line, "router "+of+":") {
					if !strings.Contains(line, told) || !strings.Contains(line, "rm -r <data_dir>/raft") {
						return fmt.Errorf("%s says: %s", r.Name, line)
					}
					return nil
				}
			}
			return fmt.Errorf("%s says nothing of %s: %s", r.Name, of, warnings(t, r))
		}
		all := func() error {
			return errors.Join(says(b.Router(0), "r2"), says(b.Router(1), "r2"), says(b.Router(2), "r0"), says(b.Router(2), "r1"))
		}
		eventually(b, 15*time.Second, "both sides are told", all)
		for i := range 30 { // longer than it takes to make a router a voter, or to replace one
			ok(t, b.Chat(i%3, streamed(chat("Apart.", "Still served?", 2))))
			time.Sleep(2 * time.Second)
			if err := all(); err != nil {
				t.Fatalf("after %d turns: %v", i, err)
			}
		}
		if got := ids(); !slices.Equal(got, before) {
			t.Errorf("cluster ids %q, they were %q", got, before)
		}
		for i, leader := range []string{"r0", "r0", "r2"} {
			var st console.Status
			if _, err := b.Router(i).Admin("GET", "/admin/v1/status", nil, &st); err != nil || st.Router.Raft.LeaderName != leader {
				t.Errorf("r%d: leader %q, %v, want %s", i, st.Router.Raft.LeaderName, err, leader)
			}
		}
		for _, m := range b.Router(0).Node().Members() {
			if want := map[string]string{"r0": "leader", "r1": "learner", "r2": ""}[m.Name]; m.Raft != want {
				t.Errorf("%s is %q for r0, want %q", m.Name, m.Raft, want)
			}
		}
		began := time.Now()
		for _, i := range []int{0, 2} {
			if code, err := b.Router(i).Admin("POST", "/admin/v1/replicas/"+string(b.Engine(0).ID)+"/drain", nil, nil); code != 200 || err != nil {
				t.Errorf("drain at r%d: %d, %v", i, code, err)
			}
			if code, err := b.Router(i).Admin("POST", "/admin/v1/replicas/"+string(b.Engine(0).ID)+"/undrain", nil, nil); code != 200 || err != nil {
				t.Errorf("undrain at r%d: %d, %v", i, code, err)
			}
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("edits took %v: they wait for routers of the other cluster", d)
		}

		// The remedy, as it is told.
		if err := b.Router(2).Stop(); err != nil {
			t.Fatal(err)
		}
		b.Router(2).ForgetRaft()
		if _, err := os.Stat(b.Router(2).Data("node-id")); err != nil {
			t.Error(err)
		}
		b.Router(2).Restart()
		eventually(b, 20*time.Second, "one cluster", func() error {
			if l := ids(); l[2] != before[0] {
				return fmt.Errorf("cluster ids %q", l)
			}
			return oneGroup(b, 1)()
		})
		eventually(b, 30*time.Second, "three voters", func() error {
			if v := b.Router(0).Node().Info().Raft.Voters; len(v) != 3 {
				return fmt.Errorf("voters %v", v)
			}
			return nil
		})
		b.Settle(15 * time.Second)
		for _, r := range b.Routers() {
			if list := warnings(t, r); strings.Contains(list, "router") {
				t.Errorf("%s still warns: %s", r.Name, list)
			}
		}
	})
}
