package scan

import (
	"encoding/binary"
	"math/bits"
)

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
// and dst has room for another four bytes, writes each as such, lowest byte first, and returns how many. The cursor must
// stand before an element; it then stands behind the last one that was read, where NextElem goes on.
func (c *Cursor) Ints(dst []byte) int {
	if c.fault.Problem != 0 {
		return 0
	}
	doc, n := c.doc, 0
	for i := skipSpace(doc, c.pos); ; {
		for len(doc)-i >= 80 && len(dst)-4*n >= 132 {
			size, last, next := shortInts((*[132]byte)(dst[4*n:]), (*[80]byte)(doc[i:]))
			if size == 0 {
				break
			}
			c.pos, c.first = i+last, false
			n += size / 4
			if i += next; next < 64 {
				break
			}
		}
		i = skipSpace(doc, i)
		v, end := uint32(0), i
		for ; end < len(doc) && doc[end]-'0' < 10; end++ {
			v = v*10 + uint32(doc[end]-'0')
		}
		if end == i || end-i > 9 || doc[i] == '0' && end-i > 1 || len(dst) < 4*n+4 {
			return n
		}
		if i = skipSpace(doc, end); i == len(doc) || doc[i] != ',' && doc[i] != ']' {
			return n
		}
		binary.LittleEndian.PutUint32(dst[4*n:], v)
		n++
		c.pos, c.first = end, false
		if doc[i] == ']' {
			return n
		}
		i = skipSpace(doc, i+1)
	}
}

// shortInts reads integers of at most seven digits with a comma behind them, then a blank or none. It returns how many
// bytes it wrote, where the last one ends and where the next one begins: from 64 on, or where there is something else.
func shortInts(dst *[132]byte, src *[80]byte) (size, end, next int) {
	for next < 64 {
		// The number ends where a byte has not this bit: digits have it, commas and blanks have not. Whether those before
		// are digits is no part of what the next step waits for.
		w := binary.LittleEndian.Uint64(src[next&63:])
		bit := bits.TrailingZeros64(^w&(ones*0x10)) - 4
		number := (w ^ ones*'0') << 1 << ((63 - bit) & 63) // zeros before the first digit, which is the lowest byte
		behind := w >> (bit & 63)
		if (number+ones*(0x80-10)|number)&highs != 0 || byte(behind) != ',' || bit == 0 || byte(w) == '0' && bit > 8 {
			return size, end, next
		}
		binary.LittleEndian.PutUint32(dst[size&127:], eightDigits(number))
		size += 4
		end = next + bit>>3
		if next = end + 2; uint16(behind) == ','|' '<<8 { // a jump that is foreseen, not a sum that is waited for
			continue
		}
		next = end + 1
	}
	return size, end, next
}

// eightDigits is the number whose digits' values are a word's bytes, the first one lowest: neighbours are added up three
// times.
func eightDigits(w uint64) uint32 {
	const even = 0x000000FF000000FF
	w = w*10 + w>>8
	return uint32((w&even*(100+1_000_000<<32) + w>>16&even*(1+10_000<<32)) >> 32)
}
