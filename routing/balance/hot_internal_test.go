package balance

import (
	"testing"

	"github.com/hearsay-llm/hearsay/state/prefix"
)

// Among few requests a single one is no hot prefix; one that comes again is.
func TestSinglePromptsAreNotHot(t *testing.T) {
	var h hot
	offer := func(hash uint64) {
		h.offer([]prefix.Mark{{Hash: hash, ASCII: 500}}, []int32{128})
	}
	for i := range uint64(12) {
		offer(i + 1)
	}
	if list := h.top(10); len(list) != 0 {
		t.Errorf("twelve strangers: %+v", list)
	}
	offer(1)
	if list := h.top(10); len(list) != 1 || list[0].Mark != 1 {
		t.Errorf("one came twice: %+v", list)
	}
}
