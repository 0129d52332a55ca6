package scan

import "math/bits"

// InnerQuote is a byte that no string holds. Squeeze writes it before a quote inside a string.
const InnerQuote = 0xFE

// Squeeze copies valid JSON text from raw to dst without the white space between its tokens and with strings decoded, in
// which InnerQuote stands before a quote. It stops before an escape that is no short one and no single character from
// 0x80 on, and before a block with a backslash outside strings, which no valid text has. It returns how many bytes it
// wrote and read; inside says whether raw begins inside a string, and then whether the rest does. It works by blocks: it
// reads nothing where raw or dst has less than 80 bytes left.
func Squeeze(dst, raw []byte, inside bool) (written, read int, insideNow bool) {
	var in uint64 // all ones inside a string
	if inside {
		in = ^in
	}
	for len(raw)-read >= 80 && len(dst)-written >= 80 {
		src := (*[80]byte)(raw[read:])
		b := (*block)(src[:])
		slashes := where(b, ones*'\\')
		escaped := escapedBy(slashes)
		starts := slashes &^ escaped
		strings := prefixXOR(where(b, ones*'"')&^escaped) ^ in
		if starts&^strings != 0 {
			break
		}
		var drops uint64
		if ^strings != 0 {
			drops = upToBlank(b, 0, 0) &^ strings
		}
		// White space and escapes rarely stand in one block: those of the kind that comes first go first.
		out := (*[80]byte)(dst[written:])
		belowDrop, belowStart := drops&-drops-1, starts&-starts-1
		var end, w, r int
		if belowDrop < belowStart {
			end = bits.TrailingZeros64(starts)
			w, r = leaveOut(out, src, drops&belowStart, end)
		} else {
			end = bits.TrailingZeros64(drops)
			w, r = unescape(out, src, starts&belowDrop, end, &squeezedEscape)
		}
		written, read = written+w, read+r
		in = -(strings >> min(r, 63) & 1)
		if r < end {
			if w, r = decodeUnicode(dst[written:], raw[read:]); r == 0 {
				break
			}
			written, read = written+w, read+r
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
