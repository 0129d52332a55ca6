package proxy

import (
	"math/bits"
	"sync"
)

// bodyPool keeps the buffers of bodies that are needed no more for those that come
// next. Memory that is new has to be cleared, and fetched from the system page by
// page: for long bodies that is more work than reading them.
//
// What lies here unused goes away: age, called once a second, gives up half of what
// nobody asked for meanwhile. At most bodySpare bytes are kept. Safe for concurrent
// use; a nil pool keeps nothing.
type bodyPool struct {
	mu   sync.Mutex
	free [bodyClasses]struct {
		bufs [][]byte // guarded by mu; all of the class' size
		low  int      // guarded by mu; the fewest that lay here since the last age
	}
	held int64 // guarded by mu; bytes in free

	spoil func([]byte) // nil, or what tests do to a buffer that came back
}

// Sizes of buffers: sixteen in each doubling, so that a buffer is at most a sixteenth
// larger than what it is for.
const (
	bodyLeast   = 2 << 10 // smaller ones are not worth keeping
	bodyMost    = 8 << 20 // larger ones are rare
	bodyClasses = 208     // from class 15 on, bodyLeast, to bodyMost
	bodySpare   = 32 << 20
)

// bodyClass is the class of a buffer for n bytes and the size of its buffers; -1 for
// what is not kept.
func bodyClass(n int) (class, size int) {
	if n < bodyLeast || n > bodyMost {
		return -1, n
	}
	shift := bits.Len(uint(n-1)) - 5
	steps := (n-1)>>shift + 1 // 17 to 32
	return (shift-6)*16 + steps - 17, steps << shift
}

// get returns an empty buffer for n bytes. It holds whatever it held before.
func (p *bodyPool) get(n int) []byte {
	class, size := bodyClass(n)
	if class < 0 || p == nil {
		return make([]byte, 0, size)
	}
	p.mu.Lock()
	c := &p.free[class]
	if last := len(c.bufs) - 1; last >= 0 {
		b := c.bufs[last]
		c.bufs[last] = nil
		c.bufs = c.bufs[:last]
		c.low = min(c.low, last)
		p.held -= int64(size)
		p.mu.Unlock()
		return b[:0]
	}
	p.mu.Unlock()
	return make([]byte, 0, size)
}

// put takes a buffer that nobody uses any more, be it from get or not.
func (p *bodyPool) put(b []byte) {
	class, size := bodyClass(cap(b))
	if class < 0 || size != cap(b) || p == nil {
		return
	}
	if p.spoil != nil {
		p.spoil(b[:size])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held+int64(size) > bodySpare {
		return
	}
	p.held += int64(size)
	c := &p.free[class]
	c.bufs = append(c.bufs, b[:0])
}

// age gives up half of the buffers that have lain here unused since the last time.
func (p *bodyPool) age() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.free {
		c := &p.free[i]
		if len(c.bufs) == 0 {
			continue
		}
		old := c.bufs[:(c.low+1)/2] // the longest unused ones come first
		for _, b := range old {
			p.held -= int64(cap(b))
		}
		rest := copy(c.bufs, c.bufs[len(old):])
		clear(c.bufs[rest:])
		if c.bufs = c.bufs[:rest]; rest == 0 {
			c.bufs = nil
		}
		c.low = rest
	}
}
