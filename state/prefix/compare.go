package prefix

import (
	"bytes"
	"iter"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// Place is where in a request a byte of its prompt stands.
type Place struct {
	Path  string `json:"path"`            // as in messages[2].content[0].text; "" where a request holds no prompt
	Byte  int    `json:"byte"`            // in the decoded string, or in the raw value where it is none
	Ended bool   `json:"ended,omitempty"` // the prompt ends here

	at []byte // the rest of the field from there on
}

// Offset is the place's byte offset in the body the Input was cut from, -1 where it is another body or none. For a
// byte of a character that is written as an escape it is the offset of the escape.
func (p *Place) Offset(body []byte) int { return offsetIn(body, p.at) }

// Divergence says where two prompts part. Seed and places are apart: prompts of two seeds may hold the same text.
type Divergence struct {
	Same   bool   `json:"same"`           // they do not
	Seed   string `json:"seed,omitempty"` // what splits the cache before the first byte: kind, model, adapter, cache_salt or tenant
	Shared int    `json:"shared"`         // marks they share
	Marks  [2]int `json:"marks"`          // marks each has
	Bytes  int    `json:"bytes"`          // bytes of text they share
	A      Place  `json:"a"`              // where A goes another way; empty where it does not
	B      Place  `json:"b"`
}

// Compare says where two prompts part. White space, escapes and whatever else hashes alike is no difference. It reads
// each input once to hash it and once more down to the place, side by side, in memory that does not grow with them but
// for their marks. It fails with *scan.Error where an input is not valid JSON; what it found before stands.
func Compare(seedA Seed, a Input, seedB Seed, b Input) (Divergence, error) {
	var d Divergence
	d.Seed = splits(seedA, a, seedB, b)
	left, right := newSide(seedA, a), newSide(seedB, b)
	defer left.stop()
	defer right.stop()
	left.fill()
	right.fill()
	same := a.Kind == b.Kind
	for same {
		n := min(len(left.rest), len(right.rest))
		alike := commonPrefix(left.rest[:n], right.rest[:n])
		if left.piece.text {
			d.Bytes += alike
		}
		left.rest, right.rest = left.rest[alike:], right.rest[alike:]
		more, too := left.fill(), right.fill()
		if alike < n || more != too {
			same = false
		} else if !more {
			break
		}
	}
	if d.Same = same && d.Seed == ""; !same && a.Kind == b.Kind {
		d.A, d.B = left.place(), right.place()
	}
	left.stop()
	right.stop()
	d.Marks = [2]int{len(left.marks), len(right.marks)}
	if d.Seed == "" {
		d.Shared = Diverge(left.marks, right.marks)
	}
	if left.err != nil {
		return d, left.err
	}
	return d, right.err
}

// splits names what of two seeds differs.
func splits(seedA Seed, a Input, seedB Seed, b Input) string {
	switch {
	case a.Kind != b.Kind:
		return "kind"
	case seedA.Model != seedB.Model:
		return "model"
	case seedA.Adapter != seedB.Adapter:
		return "adapter"
	case seedA.CacheSalt != seedB.CacheSalt:
		return "cache_salt"
	case seedA.Tenant != seedB.Tenant:
		return "tenant"
	}
	return ""
}

// side is one of two streams that are read side by side.
type side struct {
	in    Input
	h     Hasher
	marks []Mark
	err   error
	next  func() (piece, bool)
	stop  func()

	piece piece
	rest  []byte // of the piece
	ended bool
}

func newSide(seed Seed, in Input) *side {
	s := &side{in: in}
	s.next, s.stop = iter.Pull(func(yield func(piece) bool) {
		s.h.probe = &probe{emit: yield}
		s.marks, s.err = s.h.Marks(nil, seed, in)
	})
	return s
}

// fill gets the next piece when this one is used up, and returns false at the end of the stream.
func (s *side) fill() bool {
	for len(s.rest) == 0 && !s.ended {
		p, ok := s.next()
		if !ok {
			s.ended = true
			break
		}
		s.piece, s.rest = p, p.bytes
	}
	return !s.ended
}

// place is where the side stands.
func (s *side) place() Place {
	if s.ended {
		var at []byte
		if s.h.probe != nil {
			at = s.h.probe.noted
		}
		p := placeOf(&s.in, spot{at: at})
		p.Ended = true
		return p
	}
	return placeOf(&s.in, s.piece.spot(len(s.piece.bytes)-len(s.rest)))
}

// Location says how far a prompt goes the way of marks that are known.
type Location struct {
	Shared int   `json:"shared"` // leading marks that are known
	Marks  int   `json:"marks"`  // all of them
	Bytes  int   `json:"bytes"`  // bytes of text up to the last known one
	From   Place `json:"from"`   // where the last known mark stands; without one, where the prompt begins
	To     Place `json:"to"`     // where the first unknown mark stands; the prompts part before it
}

// Locate says between which places a prompt leaves the way of marks that are known, of another prompt or of a replica:
// the prompts part behind From and before To. It fails with *scan.Error where the input is not valid JSON.
func Locate(seed Seed, in Input, known []Mark) (Location, error) {
	var l Location
	var h Hasher
	var last spot
	parted := false
	p := &probe{}
	p.emit = func(first piece) bool {
		l.From = placeOf(&in, first.spot(0))
		return false
	}
	p.marked = func() {
		n := len(h.dst) - 1
		if parted {
			return
		}
		here := p.now.spot(p.used)
		if n < len(known) && h.dst[n].Hash == known[n].Hash {
			l.Shared, l.Bytes, last = n+1, h.dst[n].Bytes(), here
			return
		}
		parted = true
		l.To = placeOf(&in, here)
	}
	h.probe = p
	marks, err := h.Marks(nil, seed, in)
	l.Marks = len(marks)
	if l.Shared > 0 {
		l.From = placeOf(&in, last)
	}
	if !parted {
		l.To = placeOf(&in, spot{at: p.noted})
		l.To.Ended = true
	}
	return l, err
}

// placeOf finds the field of the input that holds a spot, and the path in it.
func placeOf(in *Input, s spot) Place {
	for _, f := range in.fields() {
		at := offsetIn(f.raw, s.at)
		if at < 0 {
			continue
		}
		path, kind, start := scan.PathAt(f.raw, at)
		p := Place{Path: f.name + path, Byte: max(0, at-start), at: s.at}
		if kind == scan.String {
			p.Byte = decodedLen(f.raw[min(start+1, at):at]) + s.into
		}
		return p
	}
	return Place{}
}

// field is a field of an Input, as bodies name it.
type field struct {
	name string
	raw  []byte
}

func (in *Input) fields() []field {
	prompt := "prompt"
	if in.Kind == Embedding || in.Kind == Responses {
		prompt = "input"
	}
	effort := "reasoning_effort"
	if in.Kind == Responses {
		effort = "reasoning.effort"
	}
	return []field{
		{"chat_template", in.Template},
		{"chat_template_kwargs", in.TemplateArgs},
		{effort, in.ReasoningEffort},
		{"documents", in.Documents},
		{"tools", in.Tools},
		{"functions", in.Functions},
		{"messages", in.Messages},
		{prompt, in.Prompt},
		{"previous_response_id", in.Previous},
		{"conversation", in.Conversation},
		{"prompt", in.Reference},
		{"instructions", in.Instructions},
		{"system", in.System},
		{"thinking", in.Thinking},
	}
}

// offsetIn is the offset in whole of a slice that was cut from it, -1 if it was not. Both end where their array does,
// unless somebody limited one's capacity; then the bytes they point at are not the same.
func offsetIn(whole, part []byte) int {
	at := cap(whole) - cap(part)
	if cap(part) == 0 || at < 0 || at >= len(whole) || &whole[at] != &part[:1][0] {
		return -1
	}
	return at
}

// decodedLen is the length of a string's inner bytes once decoded.
func decodedLen(raw []byte) int {
	var buf [512]byte
	total := 0
	for len(raw) > 0 {
		n, used := scan.Decode(buf[:], raw)
		total += n
		raw = raw[used:]
	}
	return total
}

// commonPrefix is how many bytes a and b, which are of one length, have in common.
func commonPrefix(a, b []byte) int {
	if bytes.Equal(a, b) {
		return len(a)
	}
	i := 0
	for a[i] == b[i] {
		i++
	}
	return i
}
