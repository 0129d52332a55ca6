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

// gather makes a byte's worth of mask of a word's flags.
func gather(flags uint64) uint64 { return (flags >> 7) * 0x0102040810204080 >> 56 }

// isBackslash flags backslashes, all of them certain.
func isBackslash(w uint64) uint64 {
	s := w ^ ones*'\\'
	return ^(s&lows + lows | s) & highs
}

// isOther flags the other special bytes, all of them certain.
func isOther(w uint64) uint64 {
	return (^((w^ones*0x02)&lows + ones*(0x80-0x21)) | w) & highs
}

func backslashes(b *block) uint64 {
	return gather(isBackslash(binary.LittleEndian.Uint64(b[0:]))) |
		gather(isBackslash(binary.LittleEndian.Uint64(b[8:])))<<8 |
		gather(isBackslash(binary.LittleEndian.Uint64(b[16:])))<<16 |
		gather(isBackslash(binary.LittleEndian.Uint64(b[24:])))<<24 |
		gather(isBackslash(binary.LittleEndian.Uint64(b[32:])))<<32 |
		gather(isBackslash(binary.LittleEndian.Uint64(b[40:])))<<40 |
		gather(isBackslash(binary.LittleEndian.Uint64(b[48:])))<<48 |
		gather(isBackslash(binary.LittleEndian.Uint64(b[56:])))<<56
}

func others(b *block) uint64 {
	return gather(isOther(binary.LittleEndian.Uint64(b[0:]))) |
		gather(isOther(binary.LittleEndian.Uint64(b[8:])))<<8 |
		gather(isOther(binary.LittleEndian.Uint64(b[16:])))<<16 |
		gather(isOther(binary.LittleEndian.Uint64(b[24:])))<<24 |
		gather(isOther(binary.LittleEndian.Uint64(b[32:])))<<32 |
		gather(isOther(binary.LittleEndian.Uint64(b[40:])))<<40 |
		gather(isOther(binary.LittleEndian.Uint64(b[48:])))<<48 |
		gather(isOther(binary.LittleEndian.Uint64(b[56:])))<<56
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
		slashes := backslashes(b)
		escaped := escapedBy(slashes)
		end := bits.TrailingZeros64(others(b) &^ escaped)
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

// decodeBlocks decodes blocks full of short escapes, and returns how many bytes it wrote and read. It reads whole
// escapes only, and nothing where dst or raw is too short.
func decodeBlocks(dst, raw []byte) (written, read int) {
	for len(raw)-read >= 80 && len(dst)-written >= 80 {
		src, out := (*[80]byte)(raw[read:]), (*[80]byte)(dst[written:])
		slashes := backslashes((*block)(src[:]))
		starts := slashes &^ escapedBy(slashes)
		end := 64
		if starts>>63 != 0 {
			end, starts = 63, starts<<1>>1 // its escape goes on in the next block
		}
		n := bits.OnesCount64(starts)
		w, from := 0, 0
		for ; starts != 0; starts &= starts - 1 {
			at := bits.TrailingZeros64(starts) & 63
			// Sixteen bytes at a time, of which most runs need no more; what is too much is written over.
			copy16(out, src, w, from)
			for k := 16; k < at-from; k += 16 {
				copy16(out, src, w+k, from+k)
			}
			short := shortEscape[src[at+1]]
			if w += at - from; short == 0 {
				return written + w, read + at
			}
			out[w&63] = short
			w, from = w+1, at+2
		}
		for k := 0; k < end-from; k += 16 {
			copy16(out, src, w+k, from+k)
		}
		written, read = written+w+end-from, read+end
		if n < crowd {
			break
		}
	}
	return written, read
}

// copy16 copies sixteen bytes between places that are less than 64.
func copy16(out, src *[80]byte, to, from int) {
	*(*[16]byte)(out[to&63:]) = *(*[16]byte)(src[from&63:])
}
