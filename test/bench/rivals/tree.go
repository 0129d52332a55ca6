package main

import (
	"bytes"
	"math/bits"
	"slices"
	"sync"
	"time"
)

// tree is a radix tree over the bytes of prompts. A node's text is split where two
// prompts part; each node knows which replicas saw it and when last. Beyond its
// bound a replica forgets its least recently used leaf. It knows every prompt
// exactly and needs no tokeniser and no hash; it holds all text it was given.
type tree struct {
	mu   sync.RWMutex
	root node          // guarded by mu
	lru  [64]lru[node] // guarded by mu; sizes in bytes
	rule rule          // size in bytes per replica
	held int           // guarded by mu; bytes of text in nodes
}

type node struct {
	text   []byte
	parent *node
	kids   []*node // ascending by first byte
	holders[node]
}

func newTree(r rule) *tree { return &tree{rule: r} }

// kid finds the child whose text begins with c, or where it would stand.
func (n *node) kid(c byte) (int, *node) {
	lo, hi := 0, len(n.kids)
	for lo < hi {
		if mid := (lo + hi) / 2; n.kids[mid].text[0] < c {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(n.kids) && n.kids[lo].text[0] == c {
		return lo, n.kids[lo]
	}
	return lo, nil
}

// common is the length of the longest common prefix.
func common(a, b []byte) int {
	n := min(len(a), len(b))
	const step = 64
	i := 0
	for i+step <= n && bytes.Equal(a[i:i+step], b[i:i+step]) {
		i += step
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// match fills dst[r] with the bytes of text that replica r saw; len(dst) is the
// number of replicas.
func (t *tree) match(dst []int, text []byte) {
	clear(dst)
	t.mu.RLock()
	defer t.mu.RUnlock()
	n, at := &t.root, 0
	alive := ^uint64(0) >> (64 - len(dst))
	leave := func(set uint64) { // those in set follow no further
		for ; set != 0; set &= set - 1 {
			dst[bits.TrailingZeros64(set)] = at
		}
	}
	for at < len(text) && alive != 0 {
		_, k := n.kid(text[at])
		if k == nil {
			break
		}
		leave(alive &^ k.set)
		alive &= k.set
		same := common(k.text, text[at:])
		at += same
		if same < len(k.text) {
			break
		}
		n = k
	}
	leave(alive)
}

// insert notes that the replica sees the text now.
func (t *tree) insert(text []byte, replica int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := &t.root
	for len(text) > 0 {
		i, k := n.kid(text[0])
		if k == nil {
			k = &node{text: slices.Clone(text), parent: n}
			t.held += len(text)
			n.kids = slices.Insert(n.kids, i, k)
			n = k
			break
		}
		same := common(k.text, text)
		if same < len(k.text) {
			k = t.split(k, i, same)
		}
		text = text[same:]
		n = k
	}
	// From the leaf up, so that an ancestor is always younger than its descendants
	// and the oldest hold of a replica is a leaf of its own.
	r := uint8(replica)
	l := &t.lru[r]
	for ; n != &t.root; n = n.parent {
		at, ok := n.find(r)
		if ok {
			l.touch(n.list[at], now)
			continue
		}
		h := &hold[node]{of: n, replica: r, used: now}
		n.put(at, h)
		l.add(h)
		l.size += len(n.text)
	}
	for l.oldest != nil && t.rule.over(l.size, l.oldest.used, now) {
		t.forget(l)
	}
}

// split cuts n, the i-th child of its parent, after so many bytes and returns the
// upper half. Both halves get a copy of their text: one shared array would live as
// long as either.
func (t *tree) split(n *node, i, at int) *node {
	up := &node{text: slices.Clone(n.text[:at]), parent: n.parent, kids: []*node{n}}
	n.parent.kids[i] = up
	n.parent, n.text = up, slices.Clone(n.text[at:])
	up.set = n.set
	up.list = make([]*hold[node], len(n.list))
	for j, old := range n.list {
		h := &hold[node]{of: up, replica: old.replica, used: old.used}
		up.list[j] = h
		t.lru[old.replica].addAfter(h, old)
	}
	return up
}

// forget removes a replica's oldest hold, and the node if it was the last.
func (t *tree) forget(l *lru[node]) {
	h := l.oldest
	n := h.of
	l.remove(h)
	l.size -= len(n.text)
	n.drop(h.replica)
	if n.set != 0 {
		return
	}
	i, _ := n.parent.kid(n.text[0])
	n.parent.kids = slices.Delete(n.parent.kids, i, i+1)
	t.held -= len(n.text)
}
