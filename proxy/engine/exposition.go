package engine

import (
	"bytes"
	"math"
	"strconv"
)

// maxFigure is the largest value believed of any metric.
const maxFigure = 1e15

// sample is one line of a text exposition. Its parts are of the body.
type sample struct {
	name   []byte
	labels []byte // between the braces
	value  float64
}

// samples yields the lines of a text exposition that are samples of a wanted name
// with a number in bounds. Comments and what is malformed are passed over: most of
// an engine's exposition is histograms nobody reads here, and one bad line must not
// hide the others.
func samples(body []byte, wanted func(name []byte) bool, yield func(*sample)) {
	var s sample
	for len(body) > 0 {
		line := body
		if n := bytes.IndexByte(body, '\n'); n >= 0 {
			line, body = body[:n], body[n+1:]
		} else {
			body = nil
		}
		line = bytes.TrimLeft(line, " \t")
		end := 0
		for end < len(line) && inName(line[end]) {
			end++
		}
		if end == 0 || end == len(line) || line[0] == '#' || !wanted(line[:end]) {
			continue
		}
		s.name = line[:end]
		if s.parse(line[end:]) {
			yield(&s)
		}
	}
}

// inName reports whether a byte can stand in a metric's name. What follows the name is
// its labels or its value, as Prometheus reads it even without a blank.
func inName(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == ':'
}

// parse reads what follows the name; rest is not empty.
func (s *sample) parse(rest []byte) bool {
	s.labels = nil
	if rest[0] == '{' {
		n := closing(rest)
		if n < 0 {
			return false
		}
		s.labels, rest = rest[1:n], rest[n+1:]
	}
	rest = bytes.TrimLeft(rest, " \t")
	if n := bytes.IndexAny(rest, " \t\r"); n >= 0 {
		rest = rest[:n] // a timestamp may follow
	}
	v, err := strconv.ParseFloat(string(rest), 64)
	s.value = v
	return err == nil && !math.IsNaN(v) && v >= 0 && v <= maxFigure
}

// closing is the index of the brace that ends a label set, or -1. Braces within
// quotes do not count.
func closing(b []byte) int {
	quoted := false
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			if quoted {
				i++
			}
		case '"':
			quoted = !quoted
		case '}':
			if !quoted {
				return i
			}
		}
	}
	return -1
}

// label is a label's value, or nil if the sample does not have it. Escapes are
// undone only where there are any.
func (s *sample) label(name string) []byte {
	b := s.labels
	for len(b) > 0 {
		b = bytes.TrimLeft(b, ", \t")
		eq := bytes.IndexByte(b, '=')
		if eq < 0 || eq+1 >= len(b) || b[eq+1] != '"' {
			return nil
		}
		key, v := bytes.TrimSpace(b[:eq]), b[eq+2:]
		end, escaped := 0, false
		for end < len(v) && v[end] != '"' {
			if v[end] == '\\' {
				escaped = true
				end++
			}
			end++
		}
		if end >= len(v) {
			return nil
		}
		if string(key) == name {
			if escaped {
				return unescape(v[:end])
			}
			return v[:end:end]
		}
		b = v[end+1:]
	}
	return nil
}

func unescape(v []byte) []byte {
	out := make([]byte, 0, len(v))
	for i := 0; i < len(v); i++ {
		if v[i] == '\\' && i+1 < len(v) {
			i++
			if v[i] == 'n' {
				out = append(out, '\n')
				continue
			}
		}
		out = append(out, v[i])
	}
	return out
}
