package enginesim

import "math"

// generator makes the text of one answer: word-like pieces that are a function
// of a seed and the position alone, so that nothing has to be stored. Each
// piece is one token when the whole text is tokenised from its beginning.
type generator struct {
	seed   uint64
	spaced bool // the first piece has a space before it too (text completion)
	tokens int  // pieces, the end mark included
	eos    bool // the last token is the end mark, which has no text
}

const (
	consonants = "bcdfghklmnprstvw"
	vowels     = "aeiou"
)

// appendPiece appends the text of token i to dst.
func (g *generator) appendPiece(dst []byte, i int) []byte {
	if g.eos && i == g.tokens-1 {
		return dst
	}
	x := mix(g.seed ^ uint64(i)*0x9E3779B97F4A7C15)
	if i > 0 || g.spaced {
		dst = append(dst, ' ')
	}
	n := 2 + int(x&3) // 2-5 letters
	x >>= 2
	for k := range n {
		if k&1 == 0 {
			dst = append(dst, consonants[x&15])
			x >>= 4
		} else {
			dst = append(dst, vowels[x&0xFF%5])
			x >>= 8
		}
	}
	return dst
}

// id returns the token id of token i.
func (g *generator) id(i int) uint32 {
	if g.eos && i == g.tokens-1 {
		return markEnd
	}
	var buf [maxPiece]byte
	return pieceID(view(g.appendPiece(buf[:0], i)))
}

// drawLength draws an output length with the given mean from an exponential
// distribution, at least 1: the shape that public traces roughly have.
func drawLength(seed uint64, mean int) int {
	u := (float64(mix(seed^0xA5A5A5A5)>>11) + 0.5) / (1 << 53)
	return max(1, int(math.Round(-math.Log(u)*float64(mean))))
}
