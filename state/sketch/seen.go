package sketch

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// window remembers which of an origin's last windowOps ops were seen.
type window struct {
	top   uint64 // highest sequence seen
	heard int64  // own time
	bits  [windowOps / 64]uint64
}

const (
	windowOps  = 1 << 13 // about ten seconds of one router's ops under load
	maxWindows = 1024    // origins; the one heard from least recently is forgotten
)

type novelty uint8

const (
	novel    novelty = iota
	repeated         // seen before
	late             // so far behind that it may have been seen
)

// note records the sequence.
func (w *window) note(seq uint64) novelty {
	if seq > w.top {
		if seq-w.top >= windowOps {
			clear(w.bits[:])
		} else {
			for s := w.top + 1; s < seq; s++ {
				w.bits[s%windowOps/64] &^= 1 << (s % 64)
			}
		}
		w.top = seq
		w.bits[seq%windowOps/64] |= 1 << (seq % 64)
		return novel
	}
	if w.top-seq >= windowOps {
		return late
	}
	word, bit := &w.bits[seq%windowOps/64], uint64(1)<<(seq%64)
	if *word&bit != 0 {
		return repeated
	}
	*word |= bit
	return novel
}

// note records that (boot, seq) came.
func (x *Index) note(boot state.BootID, seq uint64, now int64) novelty {
	x.seenMu.Lock()
	defer x.seenMu.Unlock()
	w := x.seen[boot]
	if w == nil {
		if len(x.seen) >= maxWindows {
			var oldest state.BootID
			first := true
			for b, w := range x.seen {
				if first || w.heard < x.seen[oldest].heard {
					oldest, first = b, false
				}
			}
			delete(x.seen, oldest)
			x.totals.originsDropped.Add(1)
		}
		w = new(window)
		x.seen[boot] = w
		x.origins.Store(int64(len(x.seen)) * windowBytes)
	}
	w.heard = now
	return w.note(seq)
}

// dropped reports whether the router that made something at t was found dead
// since.
func (x *Index) dropped(boot state.BootID, t int64) (at int64, ok bool) {
	x.seenMu.Lock()
	defer x.seenMu.Unlock()
	at, ok = x.drops[boot]
	return at, ok && t <= at
}

// drop notes that the boot was found dead at now and returns the latest instant at
// which it was.
func (x *Index) drop(boot state.BootID, now int64) int64 {
	x.seenMu.Lock()
	defer x.seenMu.Unlock()
	if len(x.drops) >= maxWindows {
		for b, at := range x.drops {
			if now-at > int64(time.Hour) || len(x.drops) >= 2*maxWindows {
				delete(x.drops, b)
			}
		}
	}
	if at, ok := x.drops[boot]; ok {
		now = max(now, at)
	}
	x.drops[boot] = now
	return now
}
