package routing

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/state"
)

// shares are all routers' shares of a replica, as each of them works it out alone.
func shares(limit int64, demands []int64, replica state.ReplicaID, second int64, replicas int) (list []int64) {
	sum := int64(len(demands))
	for _, d := range demands {
		sum += d
	}
	name := func(i int) state.RouterID { return state.RouterID(fmt.Sprintf("router-%d", i)) }
	for self := range demands {
		v := &state.View{Self: name(self)}
		d := demandOf{own: demands[self]}
		for i, n := range demands {
			if i != self {
				v.Routers = append(v.Routers, state.RouterView{ID: name(i)})
				d.others = append(d.others, n)
			}
		}
		share, rest := split(limit, demands[self], sum)
		if rest > 0 && d.gets(replica, v, limit, sum, second, replicas) {
			share++
		}
		list = append(list, share)
	}
	return list
}

// Routers that know the same come to exactly the limit together, each within one of
// what is its due.
func TestSharesComeToTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 300).Draw(t, "limit")
		demands := rapid.SliceOfN(rapid.Int64Range(0, 500), 1, 40).Draw(t, "demands")
		replica := state.ReplicaID(rapid.StringN(1, 8, -1).Draw(t, "replica"))
		second := rapid.Int64Range(0, 1<<40).Draw(t, "second")
		got := shares(limit, demands, replica, second, rapid.IntRange(1, 100).Draw(t, "replicas"))
		sum, all := int64(0), int64(len(demands))
		for _, d := range demands {
			all += d
		}
		for i, n := range got {
			sum += n
			if due := float64(limit) * float64(demands[i]+1) / float64(all); float64(n) < due-1 || float64(n) > due+1 {
				t.Fatalf("router %d gets %d, its due is %v", i, n, due)
			}
		}
		if sum != limit {
			t.Fatalf("%v come to %d, the limit is %d", got, sum, limit)
		}
	})
}

// Whoever has something to do gets a place within some seconds, however much others
// have to do.
func TestNobodyStarves(t *testing.T) {
	f := func(limit int64, replicas int, demands ...int64) {
		t.Helper()
		last := make([]int64, len(demands))
		for second := range int64(2000) {
			got := make([]int64, len(demands))
			for r := range replicas {
				for i, n := range shares(limit, demands, state.ReplicaID(fmt.Sprint("r", r)), second, replicas) {
					got[i] += n
				}
			}
			for i, n := range got {
				if n > 0 {
					last[i] = second
				}
				if demands[i] > 0 && second-last[i] > 40 {
					t.Fatalf("limit %d, demands %v: router %d got nothing for 40 s", limit, demands, i)
				}
			}
		}
	}
	f(8, 1, 200, 1, 1, 1)
	f(1, 1, 50, 50, 50, 50)
	f(1, 1, 200, 1)
	f(2, 1, 500, 3, 0, 0, 1, 1)
	f(8, 8, 1000, 1, 1, 1)
}
