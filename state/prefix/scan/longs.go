package scan

import "sort"

// Longs are the long strings of a document, ascending, as a strict cursor found them.
// Who reads the document again then need not look for their ends, nor at what they are
// made of.
type Longs []Value

// longBytes is the least length of a long string: shorter ones are found as fast as
// looked up.
const longBytes = 4 << 10

// MostLongs is how many long strings a document of so many bytes may have.
func MostLongs(size int) int { return size / longBytes }

// NoteLongs makes a strict cursor note the long strings that it reads from here on in
// room, as many as it has capacity for, and their runs in runs, as far as that has. Noted
// and NotedRuns say how many they are so far.
func (c *Cursor) NoteLongs(room Longs, runs Runs) { c.longs, c.runs = room[:0], runs[:0] }

// Noted is how many long strings NoteLongs has made it note: room[:Noted()].
func (c *Cursor) Noted() int { return len(c.longs) }

// NotedRuns is how many runs NoteLongs has made it note: runs[:NotedRuns()].
func (c *Cursor) NotedRuns() int { return len(c.runs) }

// noteLong notes a string that was read to its end, with its runs if they are known.
func (c *Cursor) noteLong(v Value, note *runNote) {
	n := len(c.longs)
	if n == cap(c.longs) {
		return
	}
	if note.on && v.Escaped {
		v.Runs = uint32(note.first) + 1
		end := len(note.runs) // the same memory
		c.runs = c.runs[:end+1]
		c.runs[end] = lastRun
	}
	c.longs = c.longs[:n+1]
	c.longs[n] = v
}

// Reread is as the function of that name. The value may be a part of doc, whose long
// strings l are, or any other.
func (l Longs) Reread(doc, value []byte) Cursor {
	c := Reread(value)
	if len(l) == 0 || len(value) == 0 {
		return c
	}
	// A part of a slice ends where its capacity ends, unless that was cut.
	at := cap(doc) - cap(value)
	if at < 0 || at >= len(doc) || &doc[at] != &value[0] {
		return c
	}
	c.base, c.longs = at, l[sort.Search(len(l), func(i int) bool { return l[i].Start >= at }):]
	return c
}

// long returns the long string whose opening quote is at i, if it is known. The cursor
// does not come back before i.
func (c *Cursor) long(i int) (v Value, ok bool) {
	for len(c.longs) > 0 && c.longs[0].Start < c.base+i {
		c.longs = c.longs[1:]
	}
	if len(c.longs) == 0 || c.longs[0].Start != c.base+i {
		return Value{}, false
	}
	v = c.longs[0]
	v.Start, v.End = i, v.End-c.base
	return v, v.End <= len(c.doc)
}
