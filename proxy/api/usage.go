package api

import (
	"math"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// Family is the way a kind of engine writes usage. It is chosen by the pool's engine kind, never guessed from fields.
type Family uint8

// The families.
const (
	Inclusive Family = iota // OpenAI, vLLM, SGLang, DeepSeek, Gemini's compatible API: prompt_tokens holds the cached ones
	LlamaCpp                // inclusive; timings{cache_n,prompt_n,predicted_n} count where they are present
	Exclusive               // Anthropic: input_tokens leaves out what was read from or written to the cache
)

// Source says where a usage record's numbers come from.
type Source uint8

// The sources. None means that nothing is known.
const (
	None      Source = iota
	Reported         // the engine's own numbers for the whole request
	Estimated        // counted by the router
	Partial          // the engine's or the router's numbers up to where the answer broke off
)

// String returns the source's name as usage records have it.
func (s Source) String() string {
	switch s {
	case Reported:
		return "reported"
	case Estimated:
		return "estimated"
	case Partial:
		return "partial"
	}
	return "none"
}

// Usage is what one request used, in tokens.
type Usage struct {
	InputTotal  int  // prompt tokens, cached ones included
	InputCached int  // of them read from the engine's cache; 0 unless CachedKnown
	CachedKnown bool // the engine said how many were cached; an engine that says nothing is not one that cached nothing
	CacheWrite  int  // of them written to a cache that is billed apart (Anthropic)
	Output      int  // tokens generated over all choices
	Reasoning   int  // of them reasoning
	Source      Source
}

// ParseUsage reads a usage object. Fields of an odd type count as absent. It returns false if nothing in it says how
// many tokens were used; null and other values than objects do not.
func ParseUsage(raw []byte, family Family) (Usage, bool) {
	c := scan.New(raw)
	u := readUsage(&c, raw, family)
	if c.End() != nil {
		return Usage{}, false
	}
	return u, u.Source == Reported
}

// ParseTimings reads llama.cpp's timings object into a usage record.
func ParseTimings(raw []byte) (Usage, bool) {
	c := scan.New(raw)
	if !c.EnterObject() {
		return Usage{}, false
	}
	cached, prompt, predicted := -1, -1, -1
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		switch string(key.Text(raw, scratch[:0])) {
		case "cache_n":
			cached = count(&c, raw)
		case "prompt_n":
			prompt = count(&c, raw)
		case "predicted_n":
			predicted = count(&c, raw)
		default:
			c.Skip()
		}
	}
	if c.End() != nil || prompt < 0 || predicted < 0 {
		return Usage{}, false
	}
	return Usage{
		InputTotal: prompt + max(cached, 0), InputCached: max(cached, 0), CachedKnown: cached >= 0,
		Output: predicted, Source: Reported,
	}, true
}

// ParseStreamUsage reads the usage of a stream whose start and end each told a part: what last says replaces what start
// said, and nothing is added up. Either may be nil.
func ParseStreamUsage(start, last []byte, family Family) (Usage, bool) {
	counts := unknown
	for _, raw := range [...][]byte{start, last} {
		c := scan.New(raw)
		before := counts
		if counts.read(&c, raw); c.End() != nil {
			counts = before
		}
	}
	u := counts.usage(family)
	return u, u.Source == Reported
}

func readUsage(c *scan.Cursor, doc []byte, family Family) Usage {
	counts := unknown
	counts.read(c, doc)
	return counts.usage(family)
}

// counts are a usage object's numbers, -1 for those that are not there.
type counts struct {
	input, output, total    int
	cached, hit, reasoning  int
	cacheRead, cacheWritten int
}

var unknown = counts{-1, -1, -1, -1, -1, -1, -1, -1}

// read takes over the numbers of the next value.
func (n *counts) read(c *scan.Cursor, doc []byte) {
	if !c.EnterObject() {
		c.Skip()
		return
	}
	var scratch [40]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		switch string(key.Text(doc, scratch[:0])) {
		case "prompt_tokens", "input_tokens":
			replace(&n.input, count(c, doc))
		case "completion_tokens", "output_tokens":
			replace(&n.output, count(c, doc))
		case "total_tokens":
			replace(&n.total, count(c, doc))
		case "prompt_tokens_details", "input_tokens_details":
			replace(&n.cached, countIn(c, doc, "cached_tokens"))
		case "completion_tokens_details", "output_tokens_details":
			replace(&n.reasoning, countIn(c, doc, "reasoning_tokens"))
		case "prompt_cache_hit_tokens":
			replace(&n.hit, count(c, doc))
		case "cache_read_input_tokens":
			replace(&n.cacheRead, count(c, doc))
		case "cache_creation_input_tokens":
			replace(&n.cacheWritten, count(c, doc))
		default:
			c.Skip()
		}
	}
}

func replace(old *int, n int) {
	if n >= 0 {
		*old = n
	}
}

func (n counts) usage(family Family) Usage {
	if n.output < 0 && n.input >= 0 && n.total >= n.input {
		n.output = n.total - n.input
	}
	if n.input < 0 && n.output >= 0 && n.total >= n.output {
		n.input = n.total - n.output
	}
	if n.input < 0 && n.output < 0 {
		return Usage{}
	}
	u := Usage{InputTotal: max(n.input, 0), Output: max(n.output, 0), Reasoning: max(n.reasoning, 0), Source: Reported}
	if family == Exclusive {
		u.CacheWrite = max(n.cacheWritten, 0)
		u.InputCached, u.CachedKnown = max(n.cacheRead, 0), n.cacheRead >= 0
		u.InputTotal += u.InputCached + u.CacheWrite
		return u
	}
	if n.cached < 0 {
		n.cached = n.hit
	}
	u.InputCached, u.CachedKnown = min(max(n.cached, 0), u.InputTotal), n.cached >= 0
	return u
}

// count reads a value as a number of tokens, -1 for anything else. Numbers with a fraction of zero are accepted, since
// some engines write them.
func count(c *scan.Cursor, doc []byte) int {
	v := c.Skip()
	if v.Kind != scan.Number {
		return -1
	}
	raw := v.Raw(doc)
	if n := len(raw); n > 2 && raw[n-2] == '.' && raw[n-1] == '0' {
		raw = raw[:n-2]
	}
	n, ok := scan.Int(raw)
	if !ok || n < 0 || n > math.MaxInt32 {
		return -1
	}
	return int(n)
}

// countIn reads one count of an object.
func countIn(c *scan.Cursor, doc []byte, name string) int {
	if !c.EnterObject() {
		c.Skip()
		return -1
	}
	n := -1
	var scratch [40]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		if string(key.Text(doc, scratch[:0])) == name {
			n = count(c, doc)
			continue
		}
		c.Skip()
	}
	return n
}
