package scenario

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// allDrain objects unless every running router has the replica draining, or none.
func allDrain(b *harness.Bubble, id state.ReplicaID, want bool) func() error {
	return func() error {
		return each(b, func(r *harness.Router) error {
			if r.Replica(id).Draining != want {
				return fmt.Errorf("draining is %v", !want)
			}
			return nil
		})
	}
}

// A drained replica gets no new work from any router, finishes what it has, and
// gets work again when the drain ends.
func TestDrainIsSeenByAll(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 2, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		waitLeader(b, 5*time.Second)
		system := words("drain", 2000)
		running := b.Open(0, streamed(chat(system, "Take your time.", 200)).Body())
		running.Next()
		time.Sleep(100 * time.Millisecond)
		e := b.Find(running.Replica)
		path := "/admin/v1/replicas/" + string(e.ID)
		if status, err := b.Router(1).Admin("POST", path+"/drain", console.ReasonRequest{Reason: "test"}, nil); err != nil || status != http.StatusOK {
			t.Fatalf("drain: %d %v", status, err)
		}
		b.Within(2*time.Second, "all see the drain", allDrain(b, e.ID, true)) // learners ask now and then
		for i := range 9 {                                                    // its prefix is warm there, and yet
			if r := ok(t, b.Chat(i%3, streamed(chat(system, "Quick one.", 3)))); r.Replica == e.ID {
				t.Errorf("r%d sent work to the drained replica", i%3)
			}
		}
		for running.Next() {
		}
		ok(t, running.Reply)
		if status, err := b.Router(2).Admin("POST", path+"/undrain", nil, nil); err != nil || status != http.StatusOK {
			t.Fatalf("undrain: %d %v", status, err)
		}
		b.Within(2*time.Second, "all see its end", allDrain(b, e.ID, false))
	})
}

// A router that was cut off drains a replica alone. The undrain that is committed
// through another one later ends that too, on voters and learners.
func TestCommittedUndrainEndsADrainMadeAlone(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 4, Engines: 2, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		waitLeader(b, 5*time.Second)
		time.Sleep(10 * time.Second) // three vote
		id := b.Router(0).Node().View().Pools[0].Replicas[0].ID
		path := "/admin/v1/replicas/" + string(id)
		b.Partition([]int{0}, []int{1}, []int{2}, []int{3})
		for i := range 4 {
			b.Within(10*time.Second, "no leader", func() error {
				if l := b.Router(i).Node().Info().Raft.Leader; l != "" {
					return fmt.Errorf("r%d follows %s", i, l)
				}
				return nil
			})
			var done struct{ Local bool }
			if status, err := b.Router(i).Admin("POST", path+"/drain", nil, &done); err != nil || status != http.StatusAccepted || !done.Local {
				t.Fatalf("r%d: drain: %d %v", i, status, err)
			}
		}
		b.Net.HealAll()
		waitLeader(b, 10*time.Second)
		b.Within(5*time.Second, "streams between all", func() error {
			return each(b, func(r *harness.Router) error {
				for _, m := range r.Node().Members() {
					if !m.Self && m.Mesh != "up" {
						return errors.New("no stream to " + m.Name)
					}
				}
				return nil
			})
		})
		if err := allDrain(b, id, true)(); err != nil {
			t.Fatalf("healing alone ended a drain: %v", err)
		}
		if status, err := b.Router(1).Admin("POST", path+"/undrain", nil, nil); err != nil || status != http.StatusOK {
			t.Fatalf("undrain: %d %v", status, err)
		}
		b.Within(2*time.Second, "all see its end", allDrain(b, id, false))
	})
}
