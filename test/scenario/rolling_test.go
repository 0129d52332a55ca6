package scenario

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// Every router is stopped in order and started again, one after another, under
// traffic: no stream is cut, clients that find a router closed go to another one,
// and afterwards all know the prefixes still.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 3, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		waitLeader(b, 5*time.Second)
		time.Sleep(10 * time.Second) // all three vote
		k := teach(t, b, 1)

		done := make(chan struct{})
		var clients sync.WaitGroup
		var mu sync.Mutex
		served, refused := 0, 0
		for c := range 6 {
			clients.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-done:
						return
					default:
					}
					body := streamed(chat("Be brief.", words(fmt.Sprint("roll", c, "/", i), 300), 60)).Body()
					var r *harness.Reply
					for try := range 3 {
						if r = b.Do((c+i+try)%3, body); r.Status == 200 {
							break
						}
					}
					mu.Lock()
					if r.OK() {
						served++
					} else {
						refused++
						t.Errorf("client %d, request %d: %v", c, i, r)
					}
					mu.Unlock()
				}
			})
		}
		for i := range 3 {
			time.Sleep(3 * time.Second)
			if err := b.Router(i).Stop(); err != nil {
				t.Errorf("r%d: %v", i, err)
			}
			time.Sleep(time.Second)
			b.Router(i).Restart()
			b.WaitReady()
			if n := k.inherited(b.Router(i)); n < 9 {
				t.Errorf("r%d knows %d of 10 prefixes after its restart", i, n)
			}
		}
		close(done)
		clients.Wait()
		if served < 50 {
			t.Errorf("%d requests were served, %d not", served, refused)
		}
		b.Idle(2 * time.Second)
		l, _ := waitLeader(b, 5*time.Second)
		if _, status := setTarget(t, l, 3); status != 200 {
			t.Errorf("a write afterwards: %d", status)
		}
	})
}
