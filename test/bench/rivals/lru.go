package main

import "time"

// hold says that a replica has used a thing (a tree's node, a block) and when. All
// holds of one replica form a list in order of use, which is what the LRU rule
// and the time to live go by.
type hold[T any] struct {
	of      *T
	replica uint8
	used    time.Time
	prev    *hold[T] // used before this one
	next    *hold[T] // used after this one
}

// lru is one replica's holds. size is in the unit of its owner (bytes, blocks).
type lru[T any] struct {
	oldest, newest *hold[T]
	size           int
}

// add puts h in as the newest.
func (l *lru[T]) add(h *hold[T]) {
	if h.prev = l.newest; l.newest != nil {
		l.newest.next = h
	} else {
		l.oldest = h
	}
	l.newest = h
}

// addAfter puts h in as used just after old.
func (l *lru[T]) addAfter(h, old *hold[T]) {
	h.prev, h.next = old, old.next
	if old.next = h; h.next != nil {
		h.next.prev = h
	} else {
		l.newest = h
	}
}

// remove takes h out of the list.
func (l *lru[T]) remove(h *hold[T]) {
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		l.oldest = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	} else {
		l.newest = h.prev
	}
	h.prev, h.next = nil, nil
}

// touch makes h the newest.
func (l *lru[T]) touch(h *hold[T], now time.Time) {
	h.used = now
	if l.newest == h {
		return
	}
	l.remove(h)
	l.add(h)
}

// rule is how an index that only sees requests decides what a replica has
// forgotten. Zero values mean no bound.
type rule struct {
	size int           // per replica, in the index's unit
	ttl  time.Duration // since the last use
}

// over reports whether the oldest hold must go.
func (r rule) over(size int, oldest time.Time, now time.Time) bool {
	return r.size > 0 && size > r.size || r.ttl > 0 && now.Sub(oldest) > r.ttl
}

// holders are the holds of one thing, ascending by replica, and the same as a bit
// set. There are at most 64 replicas: the rivals are given that simplification.
type holders[T any] struct {
	list []*hold[T]
	set  uint64
}

func (h *holders[T]) find(replica uint8) (int, bool) {
	lo, hi := 0, len(h.list)
	for lo < hi {
		if mid := (lo + hi) / 2; h.list[mid].replica < replica {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, h.set&(1<<replica) != 0
}

func (h *holders[T]) put(at int, x *hold[T]) {
	h.list = append(h.list, nil)
	copy(h.list[at+1:], h.list[at:])
	h.list[at] = x
	h.set |= 1 << x.replica
}

func (h *holders[T]) drop(replica uint8) {
	at, _ := h.find(replica)
	h.list = append(h.list[:at], h.list[at+1:]...)
	h.set &^= 1 << replica
}
