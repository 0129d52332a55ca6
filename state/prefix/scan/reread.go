package scan

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// What has been read before is known to be right, so only the ends of its strings need to be found.

// knownStr reads the string whose opening quote is at i without checking it.
func (c *Cursor) knownStr(i int) (v Value, end int, ok bool) {
	if len(c.longs) > 0 {
		if v, ok = c.long(i); ok {
			return v, v.End, true
		}
	}
	end, short, ok := c.knownEnd(i)
	if !ok {
		return Value{}, end, false
	}
	v = Value{Start: i, End: end, Kind: String, Wide: true}
	v.Escaped = !short && bytes.IndexByte(c.doc[i:end], '\\') >= 0
	return v, end, true
}

// knownEnd finds the end of the string whose opening quote is at i. short says that it has been seen to hold no escape.
func (c *Cursor) knownEnd(i int) (end int, short, ok bool) {
	doc := c.doc
	i++
	from := i
	// Keys and other short strings end within a few words.
	for k := i; k < i+32 && k+8 <= len(doc); k += 8 {
		w := binary.LittleEndian.Uint64(doc[k:])
		q, s := w^ones*'"', w^ones*'\\'
		if flags := ((q-ones)&^q | (s-ones)&^s) & highs; flags != 0 {
			if k += bits.TrailingZeros64(flags) >> 3; doc[k] == '"' {
				return k + 1, true, true
			}
			break
		}
	}
	for near := 0; ; {
		n := bytes.IndexByte(doc[i:], '"')
		if n < 0 {
			return i, false, c.fail(Truncated, len(doc))
		}
		if i += n; !isEscaped(doc, from, i) {
			return i + 1, false, true
		}
		i++
		if near++; n >= 64 {
			near = 0
		}
		if near < crowd {
			continue
		}
		if i, ok = endInBlocks(doc, from, i); ok {
			return i + 1, false, true
		}
		near = 0
	}
}

// endInBlocks looks for the closing quote of a string that began at from where many quotes stand in every block. Without
// one it returns how far it came.
func endInBlocks(doc []byte, from, i int) (at int, closing bool) {
	for i+64 <= len(doc) {
		m := where((*block)(doc[i:]), ones*'"')
		many := m & (m - 1)
		for ; m != 0; m &= m - 1 {
			if at = i + bits.TrailingZeros64(m); !isEscaped(doc, from, at) {
				return at, true
			}
		}
		if i += 64; many == 0 {
			break
		}
	}
	return i, false
}

// isEscaped says whether an odd number of backslashes stands before i, as far back as from.
func isEscaped(doc []byte, from, i int) bool {
	n := i
	for n > from && doc[n-1] == '\\' {
		n--
	}
	return (i-n)&1 != 0
}

// knownCompound finds the end of the array or object at i.
func (c *Cursor) knownCompound(i int) (end int, ok bool) {
	for level := 0; i < len(c.doc); {
		switch c.doc[i] {
		case '"':
			if len(c.longs) > 0 {
				if v, ok := c.long(i); ok {
					i = v.End
					continue
				}
			}
			if i, _, ok = c.knownEnd(i); !ok {
				return i, false
			}
			continue
		case '{', '[':
			level++
		case '}', ']':
			if level--; level == 0 {
				return i + 1, true
			}
		}
		i++
	}
	return i, c.fail(Truncated, i)
}
