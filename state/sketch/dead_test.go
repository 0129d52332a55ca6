package sketch

import (
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// What is passed on comes out a little later each time. It must not be news for
// ever, nor creep on with every round; but a later clearing is news.
func TestDeadBeforeIsPassedOnOnce(t *testing.T) {
	w := newWorld()
	x, y := w.index(3, Bounds{}), w.index(4, Bounds{})
	w.at(10 * time.Second)
	pass := func(boot state.BootID, from, to *Index, cursor *uint64) (news int) {
		for _, op := range drain(from, cursor) {
			op.Boot, op.Stamp.Boot, op.Seq = boot, boot, 0
			op.Stamp.At += 300 * time.Microsecond
			if to.Apply(op, w.now) {
				news++
			}
		}
		return news
	}
	var c, d uint64
	rounds := func() (news int) {
		for range 50 {
			news += pass(3, x, y, &c) + pass(4, y, x, &d)
		}
		return news
	}
	x.Clear("a", state.Stamp{Boot: 3, At: time.Second})
	if n := rounds(); n != 1 {
		t.Errorf("it was news %d times", n)
	}
	if got := y.Stats("a").DeadBefore.Sub(epoch); got > time.Second+time.Millisecond {
		t.Errorf("it crept on to %v", got)
	}
	x.Clear("a", state.Stamp{Boot: 3, At: 2 * time.Second})
	if n, got := rounds(), y.Stats("a").DeadBefore.Sub(epoch); n != 1 || got < 2*time.Second {
		t.Errorf("the next one was news %d times and is %v", n, got)
	}
}
