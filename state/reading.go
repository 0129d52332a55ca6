package state

import (
	"slices"
	"time"
)

const (
	// rowsLag is how late a row may tell of something that was so when an engine
	// was read. Gossip coalesces over 10 ms and delivers within 100 (p99).
	rowsLag = 100 * time.Millisecond
	// maxDownReaders bounds the readers remembered that found a replica unreachable.
	maxDownReaders = 8
)

// ApplyReading takes a reading of a replica, own or another router's. The one
// taken last wins; it reports false for one that is not newer, or of a replica that
// is not listed. A missed one (nothing came in time, or nothing readable) leaves the
// figures before it in place while they are useful: they only age.
func (s *Store) ApplyReading(r Reading) (news bool) {
	s.change(func() {
		e := s.entries[r.Replica]
		if e == nil {
			return
		}
		now := s.now()
		at, _ := s.clock.Place(r.At, now, s.clock.Since(now))
		t := s.clock.Time(at)
		if !t.After(e.askedAt) {
			return
		}
		news = true
		e.askedAt = t
		e.noteDown(&r, t)
		s.pending.mark(e)
		missed := !r.OK && !r.Loading && !r.Refused
		if missed && e.reading.OK && t.Sub(e.readingAt) < ReadingUseful {
			return
		}
		if e.noteAdapters(&r) {
			s.pending.adapters = true
		}
		e.reading, e.readingAt = r.sane(), t
		// Own load is exact at any instant; others' rows come late, so the most they
		// said until a little after the reading was there at the engine. Too much
		// known only hides foreign load, too little invents it.
		e.knownOwn = e.cell.past.at(at)
		e.knownOthers = e.past.most(at, at+rowsLag)
	})
	return news
}

// refreshEvery bounds how often replies refresh one replica's reading: each one
// makes a new View.
const refreshEvery = 20 * time.Millisecond

// RefreshReading takes what an engine said in passing, with a reply that came at
// now: its KV use (0..1) and its waiting requests, negative where unknown. It
// corrects the present reading and makes it no younger; without a useful one it
// does nothing. What ran there past us is taken to be as much as at the reading.
// It may be called for every reply, and is not shared with other routers.
func (s *Store) RefreshReading(r *ReplicaView, now time.Time, kvUsage, waiting float64) {
	since := s.clock.Since(now)
	last := r.Cell.refreshed.Load()
	if since-time.Duration(last) < refreshEvery || !r.Cell.refreshed.CompareAndSwap(last, int64(since)) {
		return
	}
	s.change(func() {
		e := s.entries[r.ID]
		if e == nil || !e.reading.OK || !now.After(e.readingAt) || now.Sub(e.readingAt) >= ReadingUseful {
			return
		}
		next := e.reading
		if kvUsage >= 0 && kvUsage <= 1 {
			next.KVUsage = kvUsage
		}
		if waiting >= 0 && waiting <= maxFigure && next.Running >= 0 {
			own, others := e.cell.past.at(since), e.past.at(since)
			total := next.Running + max(0, next.Waiting) + float64(own.InFlight+others.InFlight-e.knownOwn.InFlight-e.knownOthers.InFlight)
			next.Waiting, next.Running = waiting, max(0, total-waiting)
			e.knownOwn, e.knownOthers = own, others
		}
		e.reading = next
		s.pending.mark(e)
	})
}

// noteDown keeps since when, and by how many readers, the replica is unreachable.
// What answers can be reached, whatever it says.
func (e *entry) noteDown(r *Reading, t time.Time) {
	if r.OK || r.Loading || r.Answered {
		e.downSince, e.downReaders = time.Time{}, nil
		return
	}
	if e.downSince.IsZero() {
		e.downSince = t
	}
	if len(e.downReaders) < maxDownReaders && !slices.Contains(e.downReaders, r.Reader) {
		e.downReaders = append(e.downReaders, r.Reader)
	}
}
