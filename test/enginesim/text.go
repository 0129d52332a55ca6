package enginesim

import (
	"bytes"
	"math"
)

// generator makes the text of one answer: word-like pieces that are a function
// of a seed and the position alone, so that nothing has to be stored. Each
// piece is one token when the whole text is tokenised from its beginning.
type generator struct {
	seed   uint64
	spaced bool // the first piece has a space before it too (text completion)
	tokens int  // pieces, the end mark included
	eos    bool // the last token is the end mark, which has no text

	thinking int    // leading pieces that are thoughts, a text of their own
	stop     string // the stop sequence that ends the answer; "" = none
	cut      int    // with stop: bytes of the text before it
	written  int    // of a stream: bytes of the text so far, with what comes behind stop
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

// appendBlock appends the text of the tokens from..to of a text that begins where the
// thoughts end, or with the thoughts.
func (g *generator) appendBlock(dst []byte, from, to int) []byte {
	for i := from; i < to; i++ {
		n := len(dst)
		dst = g.appendPiece(dst, i)
		if i > 0 && i == g.thinking && len(dst) > n {
			dst = append(dst[:n], dst[n+1:]...) // no space begins a text
		}
	}
	return dst
}

// visible is the part of a text that comes before the stop sequence; before bytes of
// the answer's text went ahead of it.
func (g *generator) visible(text []byte, before int) []byte {
	if g.stop == "" {
		return text
	}
	return text[:min(len(text), max(0, g.cut-before))]
}

// shape gives a generated answer thoughts and an end, as it was asked for.
func (g *generator) shape(req *request) {
	if req.thinking != 0 {
		g.think(req.thinking)
	}
	if req.tool == "" {
		g.stopAt(req.stops)
	}
}

// think makes a share of the answer thoughts: half, and at most limit tokens unless
// that is negative.
func (g *generator) think(limit int) {
	g.thinking = g.tokens / 2
	if limit >= 0 {
		g.thinking = min(g.thinking, limit)
	}
}

// stopAt ends the answer with the token that completes the first of the sequences in
// its text. Thoughts don't count.
func (g *generator) stopAt(sequences []string) {
	longest := 0
	for _, s := range sequences {
		longest = max(longest, len(s))
	}
	if longest == 0 {
		return
	}
	var text []byte
	for i := g.thinking; i < g.tokens; i++ {
		from := max(0, len(text)-longest+1)
		text = g.appendBlock(text, i, i+1)
		for _, s := range sequences {
			if at := bytes.Index(text[from:], []byte(s)); at >= 0 && (g.stop == "" || from+at < g.cut) {
				g.stop, g.cut = s, from+at
			}
		}
		if g.stop != "" {
			g.tokens, g.eos = i+1, false
			return
		}
	}
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
