package sketch

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Running says that of what the router of a boot placed until now, only what the
// function names by Placement is still under way: so its snapshot told. The ends of
// the others were missed. They are treated like those of a dead router: they match
// as if used until now and pin nothing for ever, and what is told of them later
// counts in full. It is not relayed, since others have their own snapshots.
func (x *Index) Running(boot state.BootID, running func(placement uint64) bool, now time.Time) {
	if boot == x.clock.Boot() || boot == 0 {
		return
	}
	x.loseAll(boot, running, x.ownTime(now))
}

// loseAll loses the boot's placements but those still running; nil: none is.
func (x *Index) loseAll(boot state.BootID, running func(placement uint64) bool, t int64) {
	for _, r := range *x.bySlot.Load() {
		if r == nil {
			continue
		}
		r.mu.Lock()
		for k, f := range r.flights {
			if k.boot == boot && (running == nil || !running(k.id)) {
				r.lose(f, t)
			}
		}
		r.settle()
		r.mu.Unlock()
	}
}
