package actuator

import (
	"context"
	"syscall"
	"time"
)

// StopAll ends every process of the directory, for a cluster that is going away
// as a whole: asked to end first, killed after grace. It returns when all are gone
// or ctx ends. No router may lead with this directory any more: it would start
// them again.
func (p *Process) StopAll(ctx context.Context, grace time.Duration) error {
	tick := time.NewTicker(lockEvery)
	defer tick.Stop()
	for {
		left := 0
		err := p.locked(ctx, func(b *book) error {
			p.refresh(b, nil)
			now := time.Now()
			for _, r := range b.Processes {
				switch {
				case r.StopAt.IsZero():
					r.StopAt = now.Add(grace)
					p.signal(r, syscall.SIGTERM)
				case now.After(r.StopAt):
					p.signal(r, syscall.SIGKILL)
				}
				if r.PID != 0 {
					left++
				}
			}
			p.forget(b)
			return nil
		})
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
