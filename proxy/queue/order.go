package queue

import (
	"container/heap"
	"slices"
)

// Lists that an entry is in.
const (
	inTenant = iota
	inBand
)

// link is an entry's place in a list.
type link struct{ prev, next *Entry }

// list is a line of entries, the oldest first.
type list struct {
	of          int // which of an entry's links
	first, last *Entry
}

func (l *list) push(e *Entry) {
	e.links[l.of] = link{prev: l.last}
	if l.last == nil {
		l.first = e
	} else {
		l.last.links[l.of].next = e
	}
	l.last = e
}

func (l *list) remove(e *Entry) {
	k := &e.links[l.of]
	if k.prev == nil {
		l.first = k.next
	} else {
		k.prev.links[l.of].next = k.next
	}
	if k.next == nil {
		l.last = k.prev
	} else {
		k.next.links[l.of].prev = k.prev
	}
	*k = link{}
}

// tenant is what one tenant has waiting in one band, and has had.
type tenant struct {
	name  string
	line  list
	had   float64 // tokens over weight, on the band's scale
	since uint64  // when it began to wait: the order of equals
	at    int     // in the heap; -1: it has nothing waiting
}

// band is what waits of one priority.
type band struct {
	all     list
	tenants map[string]*tenant
	heap    tenantHeap // of those that wait
	had     float64    // by the tenant served last, when it was served
	since   uint64
	due     float64 // tokens that the band should have had at least
}

func (b *band) push(e *Entry) {
	if b.tenants == nil {
		b.tenants, b.all.of = map[string]*tenant{}, inBand
	}
	t := b.tenants[e.Tenant]
	if t == nil {
		t = &tenant{name: e.Tenant, line: list{of: inTenant}, at: -1}
		b.tenants[e.Tenant] = t
	}
	e.of = t
	t.line.push(e)
	b.all.push(e)
	if t.at < 0 {
		b.since++
		t.had, t.since = max(t.had, b.had), b.since // idleness saves nothing up
		heap.Push(&b.heap, t)
	}
}

func (b *band) remove(e *Entry) {
	t := e.of
	t.line.remove(e)
	b.all.remove(e)
	e.of = nil
	if t.line.first == nil {
		heap.Remove(&b.heap, t.at)
	}
	switch {
	case b.all.first == nil: // what anybody had no longer counts
		clear(b.tenants)
		b.had, b.due = 0, 0
	case len(b.tenants) > 2*len(b.heap)+64:
		b.forget()
	}
}

// forget drops the tenants that owe nothing and wait for nothing.
func (b *band) forget() {
	for name, t := range b.tenants {
		if t.at < 0 && t.had <= b.had {
			delete(b.tenants, name)
		}
	}
}

// charge counts an entry that is placed. The caller holds mu.
func (q *Queue) charge(e *Entry) {
	cost := e.cost()
	own := &q.bands[e.Band.Rank()]
	for i := range q.bands {
		if b := &q.bands[i]; b.all.first != nil {
			b.due += MinShare * cost
		}
	}
	// What a band had beyond its due is not held against it.
	own.due = max(0, own.due-cost)
	own.had = max(own.had, e.of.had)
	e.of.had += cost / e.Weight
	heap.Fix(&own.heap, e.of.at)
}

// next is the entry to be offered a replica, of none of the classes that are blocked;
// nil: none. Bands that are due come first where due says so. The caller holds mu.
func (q *Queue) next(blocked []string, due bool) *Entry {
	if len(blocked) > 0 && q.special == 0 && slices.Contains(blocked, "") {
		return nil
	}
	look := maxLook
	// A band that is due comes before those of a higher rank.
	for i := range q.bands {
		if b := &q.bands[i]; due && i > 0 && b.due > 0 {
			if e := b.next(blocked, &look); e != nil && b.due >= e.cost() {
				e.due = true
				return e
			}
		}
	}
	for i := range q.bands {
		if e := q.bands[i].next(blocked, &look); e != nil {
			e.due = false
			return e
		}
	}
	return nil
}

// next is the band's: the tenant's that had least and has one.
func (b *band) next(blocked []string, look *int) *Entry {
	if len(b.heap) == 0 {
		return nil
	}
	if t := b.heap[0]; t.line.first.ready(blocked) {
		return t.line.first
	}
	var best *tenant
	var found *Entry
	for _, t := range b.heap {
		if best != nil && !t.before(best) {
			continue
		}
		for e := t.line.first; e != nil && *look > 0; e = e.links[inTenant].next {
			*look--
			if e.ready(blocked) {
				best, found = t, e
				break
			}
		}
	}
	return found
}

func (e *Entry) ready(blocked []string) bool {
	return e.status == waiting && !slices.Contains(blocked, e.Class)
}

func (t *tenant) before(o *tenant) bool {
	if t.had != o.had {
		return t.had < o.had
	}
	return t.since < o.since
}

// tenantHeap is container/heap's: the tenant to be served next is first.
type tenantHeap []*tenant

func (h tenantHeap) Len() int           { return len(h) }
func (h tenantHeap) Less(i, j int) bool { return h[i].before(h[j]) }
func (h tenantHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push is heap's.
func (h *tenantHeap) Push(x any) {
	t := x.(*tenant)
	t.at = len(*h)
	*h = append(*h, t)
}

// Pop is heap's.
func (h *tenantHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.at = -1
	return t
}
