package scan

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// str reads the string whose opening quote is at i and checks it: escapes, control characters, UTF-8.
func (c *Cursor) str(i int) (v Value, end int, ok bool) {
	if c.known {
		return c.knownStr(i)
	}
	doc := c.doc
	v = Value{Start: i, Kind: String}
	i++
	lastEscape, near := i, 0
	note := c.noteRuns(i)
	for {
		if i = ordinary(doc, i); i >= len(doc) {
			return Value{}, i, c.fail(Truncated, len(doc))
		}
		switch b := doc[i]; {
		case b == '"':
			v.End = i + 1
			if v.End-v.Start >= longBytes {
				c.noteLong(v, &note)
			}
			return v, i + 1, true
		case b == '\\':
			v.Escaped = true
			if i+1 >= len(doc) || shortEscape[doc[i+1]] == 0 {
				v.Wide, note.on = true, false
				if i, ok = c.unicodeEscape(i); !ok {
					return Value{}, i, false
				}
				continue
			}
			if near++; i-lastEscape >= sparse {
				near = 0
			}
			lastEscape = i
			if note.on {
				note.run(i)
			}
			if i += 2; near >= crowd {
				if near = 0; !note.worth(i) {
					i = escapedBlocks(doc, i)
				}
			}
		case b < 0x20:
			return Value{}, i, c.fail(BadControl, i)
		default:
			v.Wide = true
			if i, ok = c.wide(i); !ok {
				return Value{}, i, false
			}
		}
	}
}

// unicodeEscape checks the escape whose backslash is at i and that is none of the short ones.
func (c *Cursor) unicodeEscape(i int) (next int, ok bool) {
	from := i
	for i+6 <= len(c.doc) && c.doc[i] == '\\' && c.doc[i+1] == 'u' && hex4(c.doc[i+2:]) >= 0 {
		i += 6 // they come in runs
	}
	if i > from {
		return i, true
	}
	if i+1 < len(c.doc) && c.doc[i+1] != 'u' {
		return i, c.fail(BadEscape, i)
	}
	for j := i + 2; j < i+6; j++ {
		if j >= len(c.doc) {
			return i, c.fail(Truncated, len(c.doc))
		}
		if hexValue[c.doc[j]] < 0 {
			return i, c.fail(BadEscape, i)
		}
	}
	return i + 6, true
}

// wide checks the run of non-ASCII characters that starts at i.
func (c *Cursor) wide(i int) (next int, ok bool) {
	doc := c.doc
	for i < len(doc) && doc[i] >= 0x80 {
		// The three-byte forms without special cases are most of the world's text; the rest goes the long way.
		if i = threeByteRun(doc, i); i >= len(doc) || doc[i] < 0x80 {
			return i, true
		}
		if i+2 <= len(doc) && doc[i]-0xC2 < 0xE0-0xC2 && doc[i+1]&0xC0 == 0x80 {
			i += 2
			continue
		}
		r, n := utf8.DecodeRune(doc[i:])
		if r == utf8.RuneError && n == 1 {
			if !utf8.FullRune(doc[i:]) {
				return i, c.fail(Truncated, len(doc))
			}
			return i, c.fail(BadUTF8, i)
		}
		i += n
	}
	return i, true
}

// MinDecodeBuffer is the least length of the buffer that Decode needs to make progress.
const MinDecodeBuffer = 4

// Decode decodes a string's inner bytes (see Value.Inner) into dst until dst is full or raw is used up, and returns
// how many bytes it wrote and read. Escapes are decoded whole; other bytes may be split anywhere. len(dst) must be at
// least MinDecodeBuffer. Raw bytes that no cursor has accepted are decoded somehow, never with a panic.
func Decode(dst, raw []byte) (written, read int) {
	near := 0
	for {
		n := backslash(raw[read:min(len(raw), read+len(dst)-written)])
		if n <= 16 && read+16 <= len(raw) && written+16 <= len(dst) {
			// What is copied behind the backslash is written over.
			binary.LittleEndian.PutUint64(dst[written:], binary.LittleEndian.Uint64(raw[read:]))
			binary.LittleEndian.PutUint64(dst[written+8:], binary.LittleEndian.Uint64(raw[read+8:]))
		} else {
			copy(dst[written:], raw[read:read+n])
		}
		written, read = written+n, read+n
		if read == len(raw) || written == len(dst) {
			return written, read
		}
		if read+1 < len(raw) && shortEscape[raw[read+1]] != 0 {
			dst[written] = shortEscape[raw[read+1]]
			written, read = written+1, read+2
			if near++; n >= sparse {
				near = 0
			}
			if near >= crowd {
				w, r := decodeBlocks(dst[written:], raw[read:])
				written, read, near = written+w, read+r, 0
			}
			continue
		}
		w, r := decodeUnicode(dst[written:], raw[read:])
		if written, read = written+w, read+r; r > 0 {
			continue
		}
		if len(dst)-written < MinDecodeBuffer {
			return written, read
		}
		w, r = decodeEscape(dst[written:], raw[read:])
		written, read = written+w, read+r
	}
}

// decodeUnicode decodes a run of \u escapes that are one character each and not ASCII.
func decodeUnicode(dst, raw []byte) (written, read int) {
	for len(raw)-read >= 6 && len(dst)-written >= 4 {
		b := (*[6]byte)(raw[read:])
		if b[0] != '\\' || b[1] != 'u' {
			break
		}
		digits := (*[4]byte)(b[2:])
		out, n := threeByteEscape(digits), 3
		if out&notThreeBytes != 0 {
			if out, n = twoByteEscape(digits); n == 0 {
				break
			}
		}
		binary.LittleEndian.PutUint32(dst[written:], out)
		written, read = written+n, read+6
	}
	return written, read
}

// threeBytes has, for each of four hexadecimal digits, its share in the number's three bytes of UTF-8, the first byte
// lowest. The sum of the shares has a bit of notThreeBytes set where there is no such form.
var threeBytes = func() (t [4][256]uint32) {
	const (
		short, half = 1 << 24, 1 << 26 // below 0x800, a surrogate: where the first two digits say so
		wrong       = 1 << 28
	)
	for i, n := range hexValue {
		d := uint32(n)
		if n < 0 {
			t[0][i], t[1][i], t[2][i], t[3][i] = wrong, wrong, wrong, wrong
			continue
		}
		t[0][i], t[1][i] = 0x8080E0|d, d<<10
		t[2][i], t[3][i] = d>>2<<8|d&3<<20, d<<16
		switch {
		case d == 0:
			t[0][i] += short
		case d == 0xD:
			t[0][i] += half
		}
		if d < 8 {
			t[1][i] += short
		} else {
			t[1][i] += half
		}
	}
	return t
}()

const notThreeBytes = 1<<25 | 1<<27 | 7<<28

// threeByteEscape is the UTF-8 of a character from 0x800 to 0xFFFF by its digits, the first byte lowest.
func threeByteEscape(digits *[4]byte) uint32 {
	return threeBytes[0][digits[0]] + threeBytes[1][digits[1]] + threeBytes[2][digits[2]] + threeBytes[3][digits[3]]
}

// twoByteEscape is that of a character from 0x80 to 0x7FF. n is 0 where there is none.
func twoByteEscape(digits *[4]byte) (out uint32, n int) {
	r := uint32(hex4(digits[:]))
	if r-0x80 >= 0x800-0x80 {
		return 0, 0
	}
	return 0x80C0 | r>>6 | r<<8&0x3F00, 2
}

// AppendDecoded appends a string's inner bytes, decoded, to dst.
func AppendDecoded(dst, raw []byte) []byte {
	var buf [MinDecodeBuffer]byte
	for len(raw) > 0 {
		k := bytes.IndexByte(raw, '\\')
		if k < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:k]...)
		n, used := decodeEscape(buf[:], raw[k:])
		dst = append(dst, buf[:n]...)
		raw = raw[k+used:]
	}
	return dst
}

// decodeEscape decodes the escape raw starts with, two where they are a surrogate pair, into dst of at least
// MinDecodeBuffer bytes.
func decodeEscape(dst, raw []byte) (written, read int) {
	if len(raw) < 2 {
		dst[0] = '\\'
		return 1, len(raw)
	}
	if b := shortEscape[raw[1]]; b != 0 {
		dst[0] = b
		return 1, 2
	}
	if r := hex4(raw[2:]); raw[1] == 'u' && r >= 0 {
		if r >= 0xD800 && r < 0xDC00 && len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' {
			if low := hex4(raw[8:]); low >= 0xDC00 && low < 0xE000 {
				return utf8.EncodeRune(dst, 0x10000+(r-0xD800)<<10+(low-0xDC00)), 12
			}
		}
		if r >= 0xD800 && r < 0xE000 { // a lone surrogate: WTF-8
			dst[0], dst[1], dst[2] = 0xED, byte(0x80|r>>6&0x3F), byte(0x80|r&0x3F)
			return 3, 6
		}
		return utf8.EncodeRune(dst, r), 6
	}
	dst[0] = raw[1]
	return 1, 2
}

func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	h0, h1, h2, h3 := rune(hexValue[b[0]]), rune(hexValue[b[1]]), rune(hexValue[b[2]]), rune(hexValue[b[3]])
	if h0|h1|h2|h3 < 0 {
		return -1
	}
	return h0<<12 | h1<<8 | h2<<4 | h3
}

// hexValue is a hexadecimal digit's value, -1 for any other byte.
var hexValue = func() (t [256]int8) {
	for i := range t {
		t[i] = -1
	}
	for i := range 10 {
		t['0'+i] = int8(i)
	}
	for i := range 6 {
		t['a'+i], t['A'+i] = int8(10+i), int8(10+i)
	}
	return t
}()

// shortEscape is what a byte behind a backslash stands for, 0 where it is no escape by itself.
var shortEscape = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// squeezedEscape is shortEscape with a quote marked as one that closes no string, the first byte lowest.
var squeezedEscape = func() (t [256]uint16) {
	for i, b := range shortEscape {
		t[i] = uint16(b)
	}
	t['"'] = InnerQuote | '"'<<8
	return t
}()

// noShortEscape is 1 where shortEscape is 0.
var noShortEscape = func() (t [256]byte) {
	for i, b := range shortEscape {
		if b == 0 {
			t[i] = 1
		}
	}
	return t
}()

// AppendQuoted appends s as a JSON string with quotes. Bytes that are not valid UTF-8 become U+FFFD.
func AppendQuoted(dst []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r < 0x20 || r == 0x7F:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}
