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
// is not listed.
func (s *Store) ApplyReading(r Reading) (news bool) {
	s.change(func() {
		e := s.entries[r.Replica]
		if e == nil {
			return
		}
		now := s.now()
		at, _ := s.clock.Place(r.At, now, s.clock.Since(now))
		t := s.clock.Time(at)
		if !t.After(e.readingAt) {
			return
		}
		news = true
		e.reading, e.readingAt = r.sane(), t
		e.noteDown(&r, t)
		// Own load is exact at any instant; others' rows come late, so the most they
		// said until a little after the reading was there at the engine. Too much
		// known only hides foreign load, too little invents it.
		e.knownOwn = e.cell.past.at(at)
		e.knownOthers = e.past.most(at, at+rowsLag)
		s.pending.mark(e)
	})
	return news
}

// noteDown keeps since when, and by how many readers, the replica is unreachable.
func (e *entry) noteDown(r *Reading, t time.Time) {
	if r.OK || r.Loading {
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
