package traces

import (
	"math"
	"slices"
)

// DefaultBytesPerToken is the mean length of a token of English text in common vocabularies, and what the simulated engine's
// tokeniser gives for this package's text.
const DefaultBytesPerToken = 4.3

// Text renders runs of made-up English words. The zero value is ready to use.
//
// A run is named by an id and a length in tokens. Equal seeds and ids give equal bytes, and the run of n tokens is a prefix of
// the run of m > n tokens. The bytes are ASCII letters and spaces only, so that they need no escaping in JSON. Words have at
// most 5 letters as long as BytesPerToken allows it: a tokeniser that makes one token of a short word and its space counts
// within 1 % of the tokens asked for.
type Text struct {
	Seed          uint64  // other seeds give other texts for the same ids
	BytesPerToken float64 // 0 means DefaultBytesPerToken; held to [2, 8]
}

const (
	minBytesPerToken = 2
	maxBytesPerToken = 8
	minLetters       = 1
	shortLetters     = 5 // a word and its space fill the 6 bytes of a simulated token
	maxLetters       = 8

	fixedBits = 16 // of the fraction in which the mean length is added up
	fixedOne  = 1 << fixedBits
)

// words by number of letters.
var words = [maxLetters + 1][]string{
	1: {"a", "I"},
	2: {"an", "as", "at", "be", "by", "do", "go", "he", "if", "in", "is", "it", "me", "my", "no", "of", "on", "or", "so", "to", "up", "us", "we", "am", "oh", "ax", "ox", "hi", "ad", "pi", "id", "ok"},
	3: {
		"the", "and", "for", "are", "but", "not", "you", "all", "any", "can", "had", "her", "was", "one", "our", "out", "day", "get", "has", "him", "his", "how", "man", "new", "now", "old", "see", "two", "way", "who", "boy", "did",
		"its", "let", "put", "say", "she", "too", "use", "map", "key", "row", "set", "log", "bit", "cup", "sun", "sea", "air", "arm", "art", "bag", "bed", "box", "bus", "car", "cat", "dog", "ear", "egg", "eye", "far", "few", "fly",
	},
	4: {
		"that", "with", "have", "this", "will", "your", "from", "they", "know", "want", "been", "good", "much", "some", "time", "very", "when", "come", "here", "just", "like", "long", "make", "many", "more", "only", "over", "such", "take", "than", "them", "well",
		"were", "what", "year", "back", "call", "came", "each", "even", "find", "give", "hand", "high", "keep", "last", "left", "life", "live", "look", "made", "most", "move", "must", "name", "need", "next", "open", "part", "play", "read", "same", "seem", "show",
	},
	5: {
		"about", "other", "which", "their", "there", "first", "would", "these", "click", "price", "state", "world", "music", "after", "books", "links", "years", "order", "items", "group", "under", "games", "could", "great", "store", "right", "local", "those", "using", "phone", "forum", "based",
		"black", "check", "index", "being", "women", "today", "south", "pages", "found", "house", "photo", "power", "while", "three", "total", "place", "think", "north", "posts", "media", "water", "since", "guide", "board", "white", "small", "times", "sites", "level", "hours", "image", "title",
	},
	6: {"number", "people", "little", "before", "mother", "answer", "around", "father", "school", "travel", "always", "family", "letter", "second", "almost", "enough", "system", "moment", "public", "market"},
	7: {"through", "another", "because", "between", "country", "thought", "nothing", "picture", "machine", "company", "problem", "service", "program", "perhaps", "morning", "meaning"},
	8: {"together", "children", "question", "sentence", "mountain", "possible", "language", "business", "computer", "building", "interest", "anything", "evidence", "distance", "practice", "pressure"},
}

// Bytes is the length in bytes of a run of the given tokens.
func (t Text) Bytes(tokens int) int {
	return int(math.Round(float64(tokens) * t.bytesPerToken()))
}

// Append appends the run of the given id and length to dst.
func (t Text) Append(dst []byte, id uint64, tokens int) []byte {
	if tokens <= 0 {
		return dst
	}
	bpt := t.bytesPerToken()
	step := int(bpt*fixedOne + 0.5)
	size := t.Bytes(tokens)
	dst = slices.Grow(dst, size+maxLetters+1)
	start, end := len(dst), len(dst)+size
	state := mix(t.Seed ^ mix(id+0x9e3779b97f4a7c15))
	var bits uint64
	left := 0
	for line := start*fixedOne + step; len(dst) < end; line += step {
		if left == 0 {
			state += 0x9e3779b97f4a7c15 // splitmix64
			bits, left = mix(state), 4
		}
		// Each word ends at most a letter away from the mean length's line, so that any cut is within a token or two of its size.
		jitter := int(bits&0xff) * 3 >> 8
		want := line>>fixedBits - len(dst) + jitter - 2
		list := words[clampLetters(want, bpt)]
		w := list[int(bits>>8&0xff)*len(list)>>8]
		bits >>= 16
		left--
		dst = append(dst, w...)
		dst = append(dst, ' ')
	}
	return dst[:end]
}

func (t Text) bytesPerToken() float64 {
	if t.BytesPerToken == 0 {
		return DefaultBytesPerToken
	}
	return min(max(t.BytesPerToken, minBytesPerToken), maxBytesPerToken)
}

// clampLetters keeps words inside a token's bytes unless the mean length asks for longer ones.
func clampLetters(n int, bytesPerToken float64) int {
	top := shortLetters
	if bytesPerToken > shortLetters {
		top = maxLetters
	}
	return min(max(n, minLetters), top)
}

// mix is splitmix64's finaliser (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	x ^= x >> 31
	return x
}

// textID names a run of generated text by what it is for and its place there.
func textID(kind string, index ...uint64) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(kind) {
		h = (h ^ uint64(kind[i])) * 1099511628211
	}
	h = mix(h)
	for _, i := range index {
		h = mix(h + 0x9e3779b97f4a7c15 ^ mix(i+1))
	}
	return h
}
