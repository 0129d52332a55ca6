package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// kill ends the first engine while requests run and come.
func (t *trial) kill(ctx context.Context) (string, error) {
	const requests = 12
	var mu sync.Mutex
	whole, retried, cut, refused := 0, 0, 0, 0
	var example string
	var wg sync.WaitGroup
	next := make(chan int)
	for range 2 {
		wg.Go(func() {
			for i := range next {
				a, err := ask(ctx, t.cluster.Routers[i%2].API, t.body(fmt.Sprintf("Chat %d begins. Tell me about the sea.", i), 24, stream+`,"ignore_eos":true`), nil)
				mu.Lock()
				switch {
				case err == nil && a.status == http.StatusOK && a.ended && a.finish != "":
					whole++
					if n := a.head.Get("X-Hearsay-Attempts"); n != "" && n != "1" {
						retried++
					}
				case err == nil && a.status != http.StatusOK:
					refused++
					example = a.message
				default:
					cut++
				}
				mu.Unlock()
			}
		})
	}
	for i := range requests {
		if i == 4 {
			t.cluster.Engines[0].Kill()
		}
		next <- i
	}
	close(next)
	wg.Wait()
	detail := fmt.Sprintf("%d whole (%d by a second try), %d cut off in mid-answer, %d refused", whole, retried, cut, refused)
	if refused > 0 || whole+cut != requests || cut > 2 {
		return "", fmt.Errorf("%s %s", detail, example)
	}
	return detail, nil
}

// back starts the engine again and looks at what it is believed to hold.
func (t *trial) back(ctx context.Context) (string, error) {
	e := t.cluster.Engines[0]
	if err := t.cluster.Start(e); err != nil {
		return "", err
	}
	if err := e.WaitReady(ctx, t.ready); err != nil {
		return "", err
	}
	begin := time.Now()
	for {
		list, err := t.list(ctx)
		if err != nil {
			return "", err
		}
		r := list[0]
		taken := r.State == "ready" || r.State == "slow_start"
		if taken && r.Sketch.LiveTokens == 0 {
			return fmt.Sprintf("%s after %.1f s, nothing believed to be held", r.State, time.Since(begin).Seconds()), nil
		}
		if time.Since(begin) > 60*time.Second {
			return "", fmt.Errorf("%s %s %s after a minute, %.0f tokens believed to be held", r.State, r.Reason, r.Trouble, r.Sketch.LiveTokens)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
