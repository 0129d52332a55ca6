package scan

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Words of eight bytes. A test sets the high bit of each byte that passes.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
	lows  = ^uint64(highs)
)

// sparse is the distance, in bytes, from which escapes are taken one by one. Nearer ones come in crowds, and a block of
// 64 bytes is looked at as a whole, in which no step waits for where the step before it ended.
const sparse = 24

// special flags what is not an ordinary byte of a string: quotes, backslashes, control characters, bytes of non-ASCII
// characters. Subtractions may borrow from the byte above one that is flagged, so only the lowest flag is certain. A
// quote with one bit turned is the byte behind the control characters, so one subtraction finds both.
func special(w uint64) uint64 {
	return (w ^ ones*0x02 - ones*0x21) | (w ^ ones*'\\' - ones) | w
}

// ordinary returns the position of the first byte from i on that special flags, len(doc) if there is none.
func ordinary(doc []byte, i int) int {
	if i+8 <= len(doc) {
		if w := special(binary.LittleEndian.Uint64(doc[i:])) & highs; w != 0 {
			return i + bits.TrailingZeros64(w)>>3
		}
		i += 8
	}
	for i+32 <= len(doc) {
		b := doc[i : i+32 : i+32]
		w0, w1 := special(binary.LittleEndian.Uint64(b)), special(binary.LittleEndian.Uint64(b[8:]))
		w2, w3 := special(binary.LittleEndian.Uint64(b[16:])), special(binary.LittleEndian.Uint64(b[24:]))
		switch {
		case (w0|w1|w2|w3)&highs == 0:
			i += 32
		case w0&highs != 0:
			return i + bits.TrailingZeros64(w0&highs)>>3
		case w1&highs != 0:
			return i + 8 + bits.TrailingZeros64(w1&highs)>>3
		case w2&highs != 0:
			return i + 16 + bits.TrailingZeros64(w2&highs)>>3
		default:
			return i + 24 + bits.TrailingZeros64(w3&highs)>>3
		}
	}
	for i < len(doc) {
		if b := doc[i]; b < 0x20 || b >= 0x80 || b == '"' || b == '\\' {
			break
		}
		i++
	}
	return i
}

// threeByteRun returns the position behind the characters from i on that are three bytes long and of lead bytes after
// which any two continuation bytes may follow.
func threeByteRun(doc []byte, i int) int {
	const (
		leads0, want0 = 0xC0F0C0C0F0C0C0F0, 0x80E08080E08080E0 // lead, two behind, lead, two, lead, one
		leads1, want1 = 0xC0C0F0C0, 0x8080E080                 // one, lead, two
		low0, low1    = 0x000F00000F00000F, 0x000F00           // the leads' low halves
		d0, d1        = 0x000D00000D00000D, 0x000D00
		ones0, ones1  = 0x0001000001000001, 0x000100
		high0, high1  = 0x0010000010000010, 0x001000
	)
	for i+12 <= len(doc) {
		w0, w1 := binary.LittleEndian.Uint64(doc[i:]), uint64(binary.LittleEndian.Uint32(doc[i+8:]))
		// A lead whose low half is 0 or 13 has rules of its own: what is added or taken away carries out of the half.
		l0, l1 := w0&low0, w1&low1
		zero := (high0 | l0) - ones0
		zero1 := (high1 | l1) - ones1
		thirteen := (high0 | l0 ^ d0) - ones0
		thirteen1 := (high1 | l1 ^ d1) - ones1
		if w0&leads0 != want0 || w1&leads1 != want1 || zero&thirteen&high0 != high0 || zero1&thirteen1&high1 != high1 {
			break
		}
		i += 12
	}
	for i+4 <= len(doc) {
		w := binary.LittleEndian.Uint32(doc[i:])
		if w&0x00C0C0F0 != 0x008080E0 || byte(w) == 0xE0 || byte(w) == 0xED {
			break
		}
		i += 3
	}
	return i
}

// Plain returns the length of the longest prefix of b without a quote and without a backslash.
func Plain(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		q, s := w^ones*'"', w^ones*'\\'
		if flags := ((q-ones)&^q | (s-ones)&^s) & highs; flags != 0 {
			return i + bits.TrailingZeros64(flags)>>3
		}
	}
	for ; i < len(b) && b[i] != '"' && b[i] != '\\'; i++ {
	}
	return i
}

// backslash returns the position of the first backslash, len(b) if there is none.
func backslash(b []byte) int {
	for i := 0; i < 32; i += 8 {
		if i+8 > len(b) {
			for ; i < len(b) && b[i] != '\\'; i++ {
			}
			return i
		}
		s := binary.LittleEndian.Uint64(b[i:]) ^ ones*'\\'
		if flags := (s - ones) &^ s & highs; flags != 0 {
			return i + bits.TrailingZeros64(flags)>>3
		}
	}
	if i := bytes.IndexByte(b[32:], '\\'); i >= 0 {
		return 32 + i
	}
	return len(b)
}

// block is 64 bytes, a bit of a mask for each.
type block = [64]byte

// gather makes a byte's worth of mask of a word's flags: each moves to its place in the highest byte, and no two of the
// products that add up there meet.
func gather(flags uint64) uint64 { return flags & highs * 0x0002040810204081 >> 56 }

// where is the mask of the bytes of a block that are the one of which pattern is made. What is other is flagged, which is
// a step less, and turned at the end.
func where(b *block, pattern uint64) uint64 {
	w0, w1 := binary.LittleEndian.Uint64(b[0:])^pattern, binary.LittleEndian.Uint64(b[8:])^pattern
	w2, w3 := binary.LittleEndian.Uint64(b[16:])^pattern, binary.LittleEndian.Uint64(b[24:])^pattern
	w4, w5 := binary.LittleEndian.Uint64(b[32:])^pattern, binary.LittleEndian.Uint64(b[40:])^pattern
	w6, w7 := binary.LittleEndian.Uint64(b[48:])^pattern, binary.LittleEndian.Uint64(b[56:])^pattern
	return ^(gather(w0&lows+lows|w0) | gather(w1&lows+lows|w1)<<8 | gather(w2&lows+lows|w2)<<16 | gather(w3&lows+lows|w3)<<24 |
		gather(w4&lows+lows|w4)<<32 | gather(w5&lows+lows|w5)<<40 | gather(w6&lows+lows|w6)<<48 | gather(w7&lows+lows|w7)<<56)
}

// upToBlank is the mask of the bytes of a block that are at most a blank once the bits of flip are turned, which has no
// high ones, and of those that are not ASCII where wide is highs and not 0.
func upToBlank(b *block, flip, wide uint64) uint64 {
	const above = ones * (0x80 - 0x21)
	w0, w1 := binary.LittleEndian.Uint64(b[0:])^flip, binary.LittleEndian.Uint64(b[8:])^flip
	w2, w3 := binary.LittleEndian.Uint64(b[16:])^flip, binary.LittleEndian.Uint64(b[24:])^flip
	w4, w5 := binary.LittleEndian.Uint64(b[32:])^flip, binary.LittleEndian.Uint64(b[40:])^flip
	w6, w7 := binary.LittleEndian.Uint64(b[48:])^flip, binary.LittleEndian.Uint64(b[56:])^flip
	w0, w1, w2, w3 = w0&lows+above|w0^w0&wide, w1&lows+above|w1^w1&wide, w2&lows+above|w2^w2&wide, w3&lows+above|w3^w3&wide
	w4, w5, w6, w7 = w4&lows+above|w4^w4&wide, w5&lows+above|w5^w5&wide, w6&lows+above|w6^w6&wide, w7&lows+above|w7^w7&wide
	return ^(gather(w0) | gather(w1)<<8 | gather(w2)<<16 | gather(w3)<<24 | gather(w4)<<32 | gather(w5)<<40 | gather(w6)<<48 | gather(w7)<<56)
}

// escapedBy returns the bytes that a backslash before them escapes, given the backslashes of a block that does not
// begin with an escaped byte: every second one of a run of backslashes, and what follows a run of odd length (Langdale
// and Lemire, "Parsing gigabytes of JSON per second", section 3.1.1).
func escapedBy(backslashes uint64) uint64 {
	const even = 0x5555555555555555
	follows := backslashes << 1
	oddStarts := backslashes &^ even &^ follows
	return (even ^ (oddStarts+backslashes)<<1) & follows
}

// crowd is how many escapes a block must hold for the next one to be looked at as a whole.
const crowd = 4

// escapedBlocks reads blocks full of short escapes from i on, which is not inside an escape. It returns the position of
// the first byte that it has not found in order, between characters and escapes.
func escapedBlocks(doc []byte, i int) int {
	for i+64 <= len(doc) {
		b := (*block)(doc[i:])
		slashes := where(b, ones*'\\')
		escaped := escapedBy(slashes)
		// A quote with one bit turned is the byte behind the control characters.
		end := bits.TrailingZeros64(upToBlank(b, ones*0x02, highs) &^ escaped)
		escaped &= 1<<end - 1
		unknown := byte(0)
		for m := escaped; m != 0; m &= m - 1 {
			unknown |= noShortEscape[b[bits.TrailingZeros64(m)&63]]
		}
		if unknown != 0 {
			return i
		}
		n := bits.OnesCount64(escaped)
		if end == 64 && (slashes&^escaped)>>63 != 0 {
			end = 63 // its escape goes on in the next block
		}
		if i += end; end < 63 || n < crowd {
			return i
		}
	}
	return i
}

// decodeBlocks decodes blocks full of escapes, and returns how many bytes it wrote and read. It reads whole escapes
// only, and nothing where dst or raw is too short.
func decodeBlocks(dst, raw []byte) (written, read int) {
	for len(raw)-read >= 80 && len(dst)-written >= 80 {
		src := (*[80]byte)(raw[read:])
		slashes := where((*block)(src[:]), ones*'\\')
		starts := slashes &^ escapedBy(slashes)
		w, r := unescape((*[80]byte)(dst[written:]), src, starts, 64, &shortEscape)
		if written, read = written+w, read+r; r < 64 || bits.OnesCount64(starts) < crowd {
			break
		}
	}
	return written, read
}

// unescape copies src up to end, 64 at most, with the escapes decoded that begin at starts, of which the last one may go
// on behind. It stops before an escape that is not in the table, and returns how many bytes it wrote and read. A table of
// bytes makes each escape one byte, which is less to wait for.
func unescape[T byte | uint16](dst, src *[80]byte, starts uint64, end int, short *[256]T) (written, read int) {
	gone, from := 0, 0 // bytes less so far: what lies at i goes to i-gone
	for ; starts != 0; starts &= starts - 1 {
		at := bits.TrailingZeros64(starts) & 63
		copyRun(dst, src, from-gone, from, at)
		e := short[src[at+1]]
		if e == 0 {
			return at - gone, at
		}
		binary.LittleEndian.PutUint16(dst[(at-gone)&63:], uint16(e))
		gone, from = gone+1, at+2
		if e > 0xFF {
			gone--
		}
	}
	if from >= end {
		return from - gone, from
	}
	copyRun(dst, src, from-gone, from, end)
	return end - gone, end
}

// leaveOut copies src up to end, 64 at most, without the bytes of drops, and returns how many bytes it wrote and read.
func leaveOut(dst, src *[80]byte, drops uint64, end int) (written, read int) {
	gone, from := 0, 0
	for drops != 0 {
		at := bits.TrailingZeros64(drops) & 63
		copyRun(dst, src, from-gone, from, at)
		n := bits.TrailingZeros64(^(drops >> at))
		gone, from = gone+n, at+n
		drops &^= 1<<from - 1
	}
	copyRun(dst, src, from-gone, from, end)
	return end - gone, end
}

// copyRun copies what lies between two places of src, sixteen bytes at a time, of which most runs need no more; what is
// too much is written over.
func copyRun(dst, src *[80]byte, to, from, end int) {
	copy16(dst, src, to, from)
	if end-from > 16 {
		for k := 16; k < end-from; k += 16 {
			copy16(dst, src, to+k, from+k)
		}
	}
}

// copy16 copies sixteen bytes between places that are less than 64.
func copy16(dst, src *[80]byte, to, from int) {
	*(*[16]byte)(dst[to&63:]) = *(*[16]byte)(src[from&63:])
}
