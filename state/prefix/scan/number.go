package scan

// number reads RFC 8259, section 6: -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
func (c *Cursor) number(i int) (end int, ok bool) {
	doc := c.doc
	if doc[i] == '-' {
		i++
	}
	digits := func() bool {
		from := i
		for i < len(doc) && doc[i]-'0' < 10 {
			i++
		}
		if i > from {
			return true
		}
		if i >= len(doc) {
			return c.fail(Truncated, i)
		}
		return c.fail(BadNumber, i)
	}
	if i < len(doc) && doc[i] == '0' {
		i++
		if i < len(doc) && doc[i]-'0' < 10 {
			return i, c.fail(BadNumber, i)
		}
	} else if !digits() {
		return i, false
	}
	if i < len(doc) && doc[i] == '.' {
		i++
		if !digits() {
			return i, false
		}
	}
	if i < len(doc) && doc[i]|0x20 == 'e' {
		i++
		if i < len(doc) && (doc[i] == '+' || doc[i] == '-') {
			i++
		}
		if !digits() {
			return i, false
		}
	}
	return i, true
}

// Int returns the value of a Number that is written as an integer and fits into an int64: no fraction, no exponent.
func Int(raw []byte) (n int64, ok bool) {
	negative := len(raw) > 0 && raw[0] == '-'
	digits := raw
	if negative {
		digits = raw[1:]
	}
	if len(digits) == 0 || len(digits) > 19 {
		return 0, false
	}
	var u uint64
	for _, d := range digits {
		if d -= '0'; d > 9 {
			return 0, false
		}
		u = u*10 + uint64(d)
	}
	if u > 1<<63-1 {
		return 0, false
	}
	if negative {
		return -int64(u), true
	}
	return int64(u), true
}

// Ints reads elements of the array the cursor is in as long as they are integers of at most nine digits without a sign
// and dst has room, and returns how many. The cursor must stand before an element; it then stands behind the last one
// that was read, where NextElem goes on.
func (c *Cursor) Ints(dst []uint32) int {
	if c.fault.Problem != 0 {
		return 0
	}
	doc, n := c.doc, 0
	for i := skipSpace(doc, c.pos); n < len(dst); n++ {
		start, v := i, uint32(0)
		for i < len(doc) && doc[i]-'0' < 10 {
			v = v*10 + uint32(doc[i]-'0')
			i++
		}
		if digits := i - start; digits == 0 || digits > 9 || digits > 1 && doc[start] == '0' || i == len(doc) {
			break
		}
		end := i
		if i = skipSpace(doc, i); i == len(doc) || doc[i] != ',' && doc[i] != ']' {
			break
		}
		dst[n], c.pos, c.first = v, end, false
		if doc[i] == ']' {
			n++
			break
		}
		i = skipSpace(doc, i+1)
	}
	return n
}
