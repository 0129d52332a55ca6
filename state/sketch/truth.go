package sketch

import (
	"slices"
	"unsafe"
)

// PredictionStats is how well this router's own predictions of one replica met
// what its engine reported, over the last truthWindow reports. Reports where
// nothing was predicted and nothing was cached are left out: they are right too
// easily.
type PredictionStats struct {
	Reports uint64  // since the replica is known
	Tokens  float64 // median of |predicted - reported| cached tokens
	Share   float64 // median of the same over the larger of the two, 0..1
	Bias    float64 // mean of (predicted - reported) over the larger, -1..1: above 0 the sketch promises too much
}

const truthWindow = 128

// truth keeps the errors of the last predictions. A window, not a running
// quantile: it is exact, and forgets what a restart or a new capacity made wrong.
type truth struct {
	last  []miss // a ring
	next  int
	count uint64
}

// miss is one error: in tokens, and its signed share.
type miss struct{ tokens, share float32 }

const missBytes = int64(unsafe.Sizeof(miss{}))

func (t *truth) add(predicted, reported float64) {
	top := max(predicted, reported)
	if top <= 0 {
		return
	}
	d := predicted - reported
	m := miss{tokens: float32(max(d, -d)), share: float32(d / top)}
	t.count++
	if len(t.last) < truthWindow {
		t.last = append(t.last, m)
		return
	}
	t.last[t.next] = m
	t.next = (t.next + 1) % truthWindow
}

func (t *truth) stats() PredictionStats {
	s := PredictionStats{Reports: t.count}
	n := len(t.last)
	if n == 0 {
		return s
	}
	tokens, share := make([]float32, n), make([]float32, n)
	for i, m := range t.last {
		tokens[i], share[i] = m.tokens, max(m.share, -m.share)
		s.Bias += float64(m.share) / float64(n)
	}
	slices.Sort(tokens)
	slices.Sort(share)
	s.Tokens, s.Share = float64(tokens[n/2]), float64(share[n/2])
	return s
}
