package scan

import (
	"encoding/binary"
	"math/bits"
)

// Squeeze copies valid JSON text from raw to dst without the white space between its tokens, up to a backslash, and
// returns how many bytes it wrote and read. inside says whether raw begins inside a string, and then whether the rest
// does. It works by blocks: it reads nothing where raw or dst has less than 80 bytes left.
func Squeeze(dst, raw []byte, inside bool) (written, read int, insideNow bool) {
	var in uint64 // all ones inside a string
	if inside {
		in = ^in
	}
	for len(raw)-read >= 80 && len(dst)-written >= 80 {
		src, out := (*[80]byte)(raw[read:]), (*[80]byte)(dst[written:])
		slashes, quotes, spaces := jsonMasks((*block)(src[:]))
		end := bits.TrailingZeros64(slashes)
		if end == 0 {
			break
		}
		upTo := uint64(1)<<end - 1
		quotes &= upTo
		strings := prefixXOR(quotes) ^ in
		w, from := 0, 0
		for drop := spaces &^ strings & upTo; drop != 0; drop &= drop - 1 {
			at := bits.TrailingZeros64(drop) & 63
			copy16(out, src, w, from)
			for k := 16; k < at-from; k += 16 {
				copy16(out, src, w+k, from+k)
			}
			w, from = w+at-from, at+1
		}
		for k := 0; k < end-from; k += 16 {
			copy16(out, src, w+k, from+k)
		}
		written, read = written+w+end-from, read+end
		if bits.OnesCount64(quotes)&1 != 0 {
			in = ^in
		}
		if end < 64 {
			break
		}
	}
	return written, read, in != 0
}

// prefixXOR sets each bit to the parity of the bits up to it.
func prefixXOR(x uint64) uint64 {
	x ^= x << 1
	x ^= x << 2
	x ^= x << 4
	x ^= x << 8
	x ^= x << 16
	return x ^ x<<32
}

// isQuote flags quotes, isSpace what is at most a blank; all flags are certain.
func isQuote(w uint64) uint64 {
	q := w ^ ones*'"'
	return ^(q&lows + lows | q) & highs
}

func isSpace(w uint64) uint64 { return ^(w&lows + ones*(0x80-0x21) | w) & highs }

func jsonMasks(b *block) (slashes, quotes, spaces uint64) {
	for k := 0; k < 64; k += 8 {
		w := binary.LittleEndian.Uint64(b[k : k+8])
		slashes |= gather(isBackslash(w)) << k
		quotes |= gather(isQuote(w)) << k
		spaces |= gather(isSpace(w)) << k
	}
	return slashes, quotes, spaces
}
