package state

import (
	"sync"
	"time"
)

// maxOrigins bounds how many boots a Clock remembers; past it the origin heard
// from least recently is forgotten.
const maxOrigins = 4096

// offsetWindow is how long a smallest offset is kept, at least: twice that at most.
// Monotonic clocks drift apart by up to some 50 ppm, 30 ms in ten minutes; kept for
// ever, a day's drift would make every reading of a slower origin four seconds old.
const offsetWindow = 5 * time.Minute

// Clock places other routers' stamps on this router's own monotonic clock. For
// each origin it keeps the smallest offset seen of late (arrival here minus time
// there), which is the clock difference plus the fastest delivery, so that no
// event grows younger by travelling. Safe for concurrent use.
type Clock struct {
	boot  BootID
	start time.Time

	mu      sync.RWMutex
	origins map[BootID]origin // guarded by mu
}

type origin struct {
	offset time.Duration // own time minus origin time, smallest of this window and the last
	recent time.Duration // smallest of this window
	since  time.Duration // own time when this window began
	heard  time.Duration // own time of the last observation
}

// NewClock returns the clock of the boot that begins at start, which must carry
// a monotonic reading.
func NewClock(boot BootID, start time.Time) *Clock {
	return &Clock{boot: boot, start: start, origins: make(map[BootID]origin)}
}

// Boot is this process's boot id.
func (c *Clock) Boot() BootID { return c.boot }

// Since is the time from this boot's start to now.
func (c *Clock) Since(now time.Time) time.Duration { return now.Sub(c.start) }

// Time is the instant a given time after this boot's start.
func (c *Clock) Time(d time.Duration) time.Time { return c.start.Add(d) }

// Stamp is now as other routers will receive it.
func (c *Clock) Stamp(now time.Time) Stamp { return Stamp{Boot: c.boot, At: now.Sub(c.start)} }

// Observe notes that something said by boot at its time sent arrived at now.
// Call it for messages that come from that boot directly, not for relayed ones.
func (c *Clock) Observe(boot BootID, sent time.Duration, now time.Time) {
	if boot == c.boot || boot == 0 {
		return
	}
	own := now.Sub(c.start)
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.origins[boot]
	if !ok && len(c.origins) >= maxOrigins {
		c.forgetOldest()
	}
	switch offset := own - sent; {
	case !ok:
		o = origin{offset: offset, recent: offset, since: own}
	case own-o.since >= offsetWindow: // the last window's smallest is forgotten
		o.offset, o.recent, o.since = min(o.recent, offset), offset, own
	default:
		o.recent = min(o.recent, offset)
		o.offset = min(o.offset, offset)
	}
	o.heard = own
	c.origins[boot] = o
}

// Place gives s on this router's clock as the time since its own start, which is
// negative for what happened before it. A stamp of an origin never heard from
// directly is placed by fallback, and ok is false. No stamp is placed later than
// now.
func (c *Clock) Place(s Stamp, now time.Time, fallback time.Duration) (at time.Duration, ok bool) {
	own := now.Sub(c.start)
	if s.Boot == c.boot {
		return min(s.At, own), true
	}
	c.mu.RLock()
	o, ok := c.origins[s.Boot]
	c.mu.RUnlock()
	if !ok {
		return min(fallback, own), false
	}
	return min(s.At+o.offset, own), true
}

// forgetOldest drops the origin that was heard from least recently. The caller
// holds mu.
func (c *Clock) forgetOldest() {
	var oldest BootID
	first := true
	for b, o := range c.origins {
		if first || o.heard < c.origins[oldest].heard {
			oldest, first = b, false
		}
	}
	delete(c.origins, oldest)
}
