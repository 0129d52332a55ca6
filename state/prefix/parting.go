package prefix

import (
	"net/netip"
	"strings"
	"time"
)

// Parting says where two prompts that are sent one after the other part, and how much
// of them is alike behind that. It holds nothing of what they say.
type Parting struct {
	Path   string // where they part, as in messages[0].content; or what splits the cache before the first byte: cache_salt
	Byte   int    // in the decoded string there, where the value that differs begins
	Value  string // what the values look like, one of the Value constants
	Shared int    // bytes they begin with alike
	Prompt int    // bytes of the second one
	Again  int    // bytes of the second one behind the parting that stand in the first one's rest too
}

// Values of a Parting, by their looks.
const (
	ValueTimestamp = "timestamp"
	ValueDate      = "date"
	ValueTime      = "time"
	ValueUUID      = "UUID"
	ValueNumber    = "number"
	ValueAddress   = "address"
	ValueID        = "id"
	ValueSalt      = "salt"
	ValueText      = "text"
)

// Part compares two prompts. It reports false where there is nothing to say: they are
// the same, one goes on from the other, or they are of different kinds or models.
func Part(seedA Seed, a Input, seedB Seed, b Input) (Parting, bool) {
	d, err := Compare(seedA, a, seedB, b)
	if err != nil || d.Same || d.Seed != "" && d.Seed != "cache_salt" {
		return Parting{}, false
	}
	if d.Seed != "" { // the salt parts all, also what is alike
		p := Parting{Path: d.Seed, Value: ValueSalt}
		p.Prompt, p.Again = d.Bytes, d.Bytes
		if d.A.Path != "" && d.B.Path != "" {
			rest, again := repeats(&a, &d.A, &b, &d.B)
			p.Prompt, p.Again = d.Bytes+rest, d.Bytes+again
		}
		return p, true
	}
	if d.A.Ended || d.B.Ended {
		return Parting{}, false
	}
	rest, again := repeats(&a, &d.A, &b, &d.B)
	p := Parting{Path: d.A.Path, Byte: d.A.Byte, Shared: d.Bytes, Prompt: d.Bytes + rest, Again: again}
	var back int
	if p.Value, back = valueAt(&a, &d.A, &b, &d.B); p.Value != ValueText {
		p.Byte = max(0, p.Byte-back)
	}
	return p, true
}

// from is the rest of the field in which a place stands, and the fields behind it.
func (in *Input) from(p *Place) (rest [][]byte) {
	for _, f := range in.fields() {
		switch at := offsetIn(f.raw, p.at); {
		case at >= 0:
			rest = append(rest[:0], f.raw[at:])
		case len(rest) > 0 && len(f.raw) > 0:
			rest = append(rest, f.raw)
		}
	}
	return rest
}

// block is the least run of bytes that counts as a repetition.
const block = 48

// repeats counts the bytes of b behind its place, and those of them that stand behind
// a's place too: in runs of a block or more, wherever they stand.
func repeats(a *Input, pa *Place, b *Input, pb *Place) (rest, again int) {
	known := map[uint64]struct{}{}
	for _, raw := range a.from(pa) {
		for ; len(raw) >= block; raw = raw[block:] {
			known[sum(raw[:block])] = struct{}{}
		}
	}
	for _, raw := range b.from(pb) {
		rest += len(raw)
		if len(raw) < block {
			continue
		}
		h := sum(raw[:block])
		covered := 0 // of raw, already counted
		for i := 0; ; i++ {
			if _, ok := known[h]; ok {
				again += i + block - max(i, covered)
				covered = i + block
			}
			if i+block >= len(raw) {
				break
			}
			h = (h-uint64(raw[i])*leaving)*radix + uint64(raw[i+block])
		}
	}
	return rest, again
}

// A rolling hash: a polynomial over the bytes, as of Rabin and Karp, modulo 2^64. It
// only counts; nothing hangs on a collision.
const radix = 0x9e3779b97f4a7c15

// leaving is radix^(block-1).
var leaving = func() uint64 {
	x := uint64(1)
	for range block - 1 {
		x *= radix
	}
	return x
}()

func sum(b []byte) (h uint64) {
	for _, c := range b {
		h = h*radix + uint64(c)
	}
	return h
}

// valueAt says what the values at two places look like, and how many bytes before the
// place a's begins.
func valueAt(a *Input, pa *Place, b *Input, pb *Place) (value string, back int) {
	x, back := a.word(pa)
	y, _ := b.word(pb)
	if value = looks(x); value != looks(y) {
		return ValueText, 0
	}
	return value, back
}

// maxWord bounds a value that is looked at.
const maxWord = 64

// word is the value that a place stands in, and how far from its beginning.
func (in *Input) word(p *Place) (w string, back int) {
	for _, f := range in.fields() {
		at := offsetIn(f.raw, p.at)
		if at < 0 {
			continue
		}
		from, to := at, at
		for from > 0 && at-from < maxWord && ofWord(f.raw[from-1]) {
			from--
		}
		if from > 0 && from < at && f.raw[from-1] == '\\' { // the letter of an escape
			from++
		}
		for to < len(f.raw) && to-at < maxWord && ofWord(f.raw[to]) {
			to++
		}
		w = string(f.raw[from:to])
		if name, rest, ok := strings.Cut(w, ":"); ok && len(name) < at-from && onlyLetters(name) {
			w = rest // as in time:12:00
		}
		w = strings.TrimLeft(w, punctuation)
		return strings.TrimRight(w, punctuation), max(0, at-(to-len(w)))
	}
	return "", 0
}

// punctuation stands within values, and around them too.
const punctuation = "-:._+/"

func onlyLetters(s string) bool {
	return s != "" && strings.IndexFunc(s, func(c rune) bool { return c < 'A' || c > 'z' || c > 'Z' && c < 'a' }) < 0
}

func ofWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte(punctuation, c) >= 0
}

// looks says what a value looks like.
func looks(w string) string {
	digits, hex, letters := 0, 0, 0
	for i := range len(w) {
		switch c := w[i]; {
		case c >= '0' && c <= '9':
			digits++
			hex++
		case c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F':
			hex++
			letters++
		case c >= 'g' && c <= 'z' || c >= 'G' && c <= 'Z':
			letters++
		}
	}
	parses := func(layouts ...string) bool {
		for _, l := range layouts {
			if _, err := time.Parse(l, w); err == nil {
				return true
			}
		}
		return false
	}
	address := func() bool {
		if _, err := netip.ParseAddr(w); err == nil {
			return true
		}
		_, err := netip.ParseAddrPort(w)
		return err == nil
	}
	switch {
	case w == "":
		return ValueText
	case digits == len(w) && (len(w) == 10 || len(w) == 13) && w[0] == '1': // Unix seconds or ms, until 2033
		return ValueTimestamp
	case digits == len(w):
		return ValueNumber
	case parses("2006-01-02T15:04:05.999999999Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", "20060102T150405Z", "2006-01-02T15:04:05Z0700"):
		return ValueTimestamp
	case parses("2006-01-02", "02/01/2006", "01/02/2006", "2006/01/02", "02.01.2006", "Monday", "Mon", "January", "Jan"):
		return ValueDate
	case parses("15:04:05", "15:04", "15:04:05Z07:00", "3:04PM", "3:04:05PM"):
		return ValueTime
	case len(w) == 36 && hex == 32 && strings.Count(w, "-") == 4:
		return ValueUUID
	case digits > 0 && address():
		return ValueAddress
	case len(w) >= 8 && digits > 0 && (letters > 0 || strings.ContainsAny(w, "-_")) && !strings.ContainsAny(w, "./"):
		return ValueID
	case digits > 0 && letters == 0:
		return ValueNumber
	}
	return ValueText
}
