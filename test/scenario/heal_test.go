package scenario

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// Two halves of four routers can't reach each other for a minute, and both reach the
// replicas: each half counts its own requests as its own and the other's as foreign,
// never twice, and after healing all count the same.
func TestLoadIsCountedOnceOverAPartition(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 4, Engines: 2, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		long := streamed(chat(words("heal", 300), "Go on and on.", 4000)).Body()
		var open []*harness.Stream
		for i := range 4 {
			for range i + 1 { // 1 + 2 | 3 + 4
				open = append(open, b.Open(i, long))
			}
		}
		for _, s := range open {
			s.Next()
		}
		counted := func(want [4]int64, foreign [4]int64) func() error {
			return func() error {
				return each(b, func(r *harness.Router) error {
					var own, strange int64
					for _, e := range b.Engines() {
						v := r.Replica(e.ID)
						own += v.Load().InFlight
						n, known := v.Foreign(time.Now())
						if !known {
							return errors.New("foreign load is not known")
						}
						strange += n
					}
					i := int(r.Name[1] - '0')
					if own != want[i] || strange != foreign[i] {
						return fmt.Errorf("%d in flight and %d foreign, want %d and %d", own, strange, want[i], foreign[i])
					}
					return nil
				})
			}
		}
		b.Within(time.Second, "ten in flight", counted([4]int64{10, 10, 10, 10}, [4]int64{}))
		b.Partition([]int{0, 1}, []int{2, 3})
		b.Within(5*time.Second, "each half its own", counted([4]int64{3, 3, 7, 7}, [4]int64{7, 7, 3, 3}))
		for range 20 {
			time.Sleep(3 * time.Second)
			if err := counted([4]int64{3, 3, 7, 7}, [4]int64{7, 7, 3, 3})(); err != nil {
				t.Error(err)
				break
			}
		}
		b.Net.HealAll()
		took := b.Within(5*time.Second, "ten in flight again", counted([4]int64{10, 10, 10, 10}, [4]int64{}))
		t.Logf("one count %v after healing", took)
		for _, s := range open {
			s.Close()
		}
		b.Idle(3 * time.Second)
	})
}
