package enginesim

import (
	"encoding/binary"
	"unicode/utf8"
	"unsafe"
)

// The tokeniser cuts text into pieces and names each by a hash. A piece is
//   - up to 6 bytes of letters, a single space before them included;
//   - up to 3 other printable ASCII characters, and a single space before them;
//   - up to 3 digits;
//   - up to 6 bytes of white space, without the space that belongs to the next piece;
//   - 2 bytes of a character outside ASCII (its last piece may be 1 or 2).
//
// English comes to about 4.3 bytes per token, code to 2.5, other scripts to 1.5-2. Cutting
// looks at most 6 bytes ahead, so the pieces of a text are those of any longer
// text that begins with it, except the last one.

const (
	maxPiece     = 6
	maxOther     = 3
	firstTextID  = 1000 // ids below are template marks
	classOther   = 0
	classLetter  = 1
	classDigit   = 2
	classSpace   = 3
	classUnicode = 4
)

var classes = func() (t [256]uint8) {
	for c := range 256 {
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_':
			t[c] = classLetter
		case c >= '0' && c <= '9':
			t[c] = classDigit
		case c == ' ' || c == '\n' || c == '\t' || c == '\r':
			t[c] = classSpace
		case c >= utf8.RuneSelf:
			t[c] = classUnicode
		}
	}
	return t
}()

// AppendTokens appends the token ids of text to dst and returns it.
func AppendTokens(dst []uint32, text string) []uint32 {
	for len(text) >= 8 {
		var n int
		// Most pieces are words: the loop of pieceLen, here without the call.
		if classes[text[0]] == classLetter || text[0] == ' ' && classes[text[1]] == classLetter {
			n = 1
			for n < maxPiece && classes[text[n]] == classLetter {
				n++
			}
		} else {
			n = pieceLen(text)
		}
		word := binary.LittleEndian.Uint64(unsafe.Slice(unsafe.StringData(text), 8))
		dst = append(dst, wordID(word&(1<<(8*n)-1), n))
		text = text[n:]
	}
	for len(text) > 0 {
		n := pieceLen(text)
		dst = append(dst, pieceID(text[:n]))
		text = text[n:]
	}
	return dst
}

// pieceLen returns the length of the first piece of a text that is not empty.
func pieceLen(s string) int {
	switch classes[s[0]] {
	case classLetter:
		return runLen(s, 0, classLetter, maxPiece)
	case classDigit:
		return runLen(s, 0, classDigit, 3)
	case classUnicode:
		_, n := utf8.DecodeRuneInString(s)
		if n > 2 {
			return 2 // the rest starts with continuation bytes: n = 1 each, joined below
		}
		if n == 1 && len(s) > 1 && s[1]&0xC0 == 0x80 && s[0]&0xC0 == 0x80 {
			return 2
		}
		return n
	case classSpace:
		n := 1
		if s[0] == ' ' && len(s) > 1 && classes[s[1]] <= classLetter {
			return runLen(s, 1, classes[s[1]], leadLimit(s[1]))
		}
		for n < len(s) && n < maxPiece && classes[s[n]] == classSpace {
			if s[n] == ' ' && n+1 < len(s) && classes[s[n+1]] <= classLetter {
				break
			}
			n++
		}
		return n
	default:
		return runLen(s, 0, classOther, maxOther)
	}
}

// leadLimit is the longest piece that begins with a space before c.
func leadLimit(c byte) int {
	if classes[c] == classLetter {
		return maxPiece
	}
	return maxOther + 1
}

func runLen(s string, from int, class uint8, limit int) int {
	n := from
	for n < len(s) && n < limit && classes[s[n]] == class {
		n++
	}
	return n
}

// pieceID maps a piece of at most 6 bytes to an id of 31 bits, at least firstTextID.
func pieceID(p string) uint32 {
	var b [8]byte
	copy(b[:], p)
	return wordID(binary.LittleEndian.Uint64(b[:]), len(p))
}

// wordID is pieceID of n bytes in the low end of a word, zeros above.
func wordID(w uint64, n int) uint32 {
	x := (w | uint64(n)<<56) * 0x9E3779B97F4A7C15
	x = (x ^ x>>32) * 0xD6E8FEB86659FD93
	return max(uint32(x>>33), firstTextID)
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// view reads bytes as a string without copying; the bytes must not change while
// the string is in use.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
