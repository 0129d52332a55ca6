package proxy

import (
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

const (
	// tallySpan is what a tally counts together, and tallySpans how many of these are
	// remembered: those of a minute, and the one that goes on.
	tallySpan  = 5 * time.Second
	tallySpans = int(time.Minute/tallySpan) + 1
	// maxTallied bounds the pools and reasons that are told apart.
	maxTallied = 1024
)

// tally counts the requests that were refused in the last minute. Safe for concurrent
// use; the zero value is ready.
type tally struct {
	mu   sync.Mutex
	rows map[shedKey]*[tallySpans]spanCount // guarded by mu
}

type shedKey struct{ pool, reason string }

// spanCount is a count within one span of time, counted from the epoch.
type spanCount struct{ span, n int64 }

func (t *tally) add(k shedKey, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	row := t.rows[k]
	if row == nil {
		if t.rows == nil {
			t.rows = map[shedKey]*[tallySpans]spanCount{}
		}
		if len(t.rows) >= maxTallied {
			clear(t.rows)
		}
		row = &[tallySpans]spanCount{}
		t.rows[k] = row
	}
	span := now.UnixNano() / int64(tallySpan)
	c := &row[span%int64(tallySpans)]
	if c.span != span {
		*c = spanCount{span: span}
	}
	c.n++
}

// of is what a pool's requests of the last minute were refused for, by reason; nil if
// none was.
func (t *tally) of(pool string, now time.Time) (sum map[string]int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	oldest := now.UnixNano()/int64(tallySpan) - int64(tallySpans) + 1
	for k, row := range t.rows {
		if k.pool != pool {
			continue
		}
		for _, c := range row {
			if c.n > 0 && c.span >= oldest {
				if sum == nil {
					sum = map[string]int64{}
				}
				sum[k.reason] += c.n
			}
		}
	}
	return sum
}

// shed counts a request that is refused for want of capacity.
func (c *Core) shed(pool, reason string) {
	c.metrics.shed.WithLabelValues(pool, reason).Inc()
	c.refusals.add(shedKey{pool, reason}, time.Now())
}

// Pressure is what waits for a pool at this router, and what was refused there.
type Pressure struct {
	Bands   [state.Bands]int64 // requests that wait, by priority
	Refused map[string]int64   // in the last minute, by reason; nil: none
	// Wait is what a request that comes now would wait, by estimate; negative: there is
	// no replica to wait for.
	Wait time.Duration
}

// Refused is what this router's requests of the last minute were refused for before their
// pool was known, by reason; nil if none was.
func (c *Core) Refused() map[string]int64 { return c.refusals.of(unknownPool, time.Now()) }

// Pressure is what waits for a pool of the View. Nothing is picked.
func (c *Core) Pressure(v *state.View, pool *state.PoolView) Pressure {
	name := pool.Spec.Name
	p := Pressure{Refused: c.refusals.of(name, time.Now())}
	q := c.queues.of(name, c.metrics)
	for b := range q.here {
		p.Bands[b] = q.here[b].Load()
	}
	req := routing.Request{Pool: pool, Role: state.RoleBoth, DryRun: true}
	if pool.Split {
		req.Role = state.RoleDecode
	}
	var choice routing.Choice
	err := c.picker.Pick(&choice, &req, v, c.now())
	freed, kind := lackOf(err)
	switch {
	case err == nil && q.Len() == 0:
	case err == nil || kind == routing.ErrSaturated:
		p.Wait = drainTime(v, pool, freed)
	default:
		p.Wait = -1
	}
	return p
}
