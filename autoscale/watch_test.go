package autoscale

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// follower is what a router that does not lead sees.
type follower struct{ *state.Store }

func (follower) Live() []state.RouterID { return []state.RouterID{"me"} }

func (follower) Commit(context.Context, state.Command) error { return errDied }

// A router that never led has watched the demand: rates and trends are there when it is
// elected.
func TestEveryRouterWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := state.NewStore(state.Config{Self: "me", Clock: state.NewClock(1, time.Now()), Pools: []state.PoolSpec{spec()}})
		f := follower{store}
		l, err := New(Config{Self: "me", Cluster: f, Committer: f})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Watch(ctx) }()
		for range 180 {
			time.Sleep(time.Second)
			store.View().PoolNamed("chat").Counter.Came(500)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		v := store.View()
		o := l.observe(v, v.PoolNamed("chat"), chat, time.Now())
		if o.PrefillRate < 480 || o.PrefillRate > 520 {
			t.Errorf("%v tokens/s", o.PrefillRate)
		}
		if n := len(l.watches[chat].trends[byPrefill].points); n < 11 || n > 13 {
			t.Errorf("%d points of a trend", n)
		}
		store.SetPools(nil)
		l.look(time.Now())
		if len(l.watches) != 0 {
			t.Error("a pool that is gone is watched")
		}
	})
}
