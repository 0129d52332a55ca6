package prefix

import "github.com/hearsay-llm/hearsay/state/prefix/scan"

// jsonText is where the hashing of a JSON text stands that comes in pieces. The zero value is its start.
type jsonText struct {
	inside bool // a string
	some   bool // there was something
	n      int  // bytes of an escape whose rest has not come
	held   [maxEscape]byte
	rest   [maxEscape]byte // what was held and is no part of the escape
}

// maxEscape is the length of two escapes that are one character.
const maxEscape = 12

// squeezeBytes is the least that is worth the blocks of scan.Squeeze.
const squeezeBytes = 128

// whole says whether the text may end here.
func (j *jsonText) whole() bool { return !j.inside && j.n == 0 }

// json hashes the text of a valid JSON value without the white space between its tokens and with strings decoded. A
// quote inside a string is preceded by scan.InnerQuote, so that it closes nothing.
func (h *Hasher) json(raw []byte) {
	h.plainJSON = jsonText{}
	h.jsonPiece(&h.plainJSON, raw)
}

// jsonPiece hashes the next piece of a JSON text, which may be cut anywhere.
func (h *Hasher) jsonPiece(j *jsonText, raw []byte) {
	for len(raw) > 0 {
		if j.n == 0 && h.probe == nil && len(raw) >= squeezeBytes && !(j.inside && len(raw) > bufferBytes && scan.Plain(raw[:bufferBytes]) == bufferBytes) {
			if bufferBytes-h.n < squeezeBytes {
				h.flush()
			}
			w, r, inside := scan.Squeeze(h.buf[h.n:], raw, j.inside)
			if r > 0 {
				h.n += w
				j.some, j.inside = j.some || w > 0, inside
				raw = raw[r:]
				continue
			}
		}
		switch {
		case j.n > 0:
			raw = h.jsonEscape(j, raw)
		case j.inside:
			raw = h.jsonString(j, raw)
		default:
			// Up to and with the next quote, without white space.
			i := 0
			for i < len(raw) && raw[i] > ' ' && raw[i] != '"' {
				i++
			}
			end := i
			if i < len(raw) {
				if raw[i] == '"' {
					j.inside = true
					end++
				}
				i++
			}
			if end > 0 {
				j.some = true
				h.put(raw[:end])
			}
			raw = raw[i:]
		}
	}
}

// jsonString hashes a string's runs up to the closing quote or an escape that is cut, and returns what is left.
func (h *Hasher) jsonString(j *jsonText, raw []byte) []byte {
	for len(raw) > 0 {
		i := scan.Plain(raw)
		if i == len(raw) {
			h.put(raw)
			return nil
		}
		if raw[i] == '"' {
			h.put(raw[:i+1])
			j.inside = false
			return raw[i+1:]
		}
		h.put(raw[:i])
		raw = raw[i:]
		n := escapeLen(raw)
		if n > len(raw) {
			j.n = copy(j.held[:], raw)
			return nil
		}
		h.note(raw)
		h.putEscape(raw[:n])
		if raw = raw[n:]; len(raw) > 0 && raw[0] != '\\' {
			return raw // to what reads blocks
		}
	}
	return nil
}

// jsonEscape goes on with an escape that was cut, and returns what is left of raw.
func (h *Hasher) jsonEscape(j *jsonText, raw []byte) []byte {
	for len(raw) > 0 && escapeLen(j.held[:j.n]) > j.n {
		j.held[j.n] = raw[0]
		j.n++
		raw = raw[1:]
	}
	n := escapeLen(j.held[:j.n])
	if n > j.n {
		return nil
	}
	h.putEscape(j.held[:n])
	// A high surrogate may have waited for the start of what turns out to be something else.
	left := copy(j.rest[:], j.held[n:j.n])
	j.n = 0
	h.jsonPiece(j, j.rest[:left])
	return raw
}

// putEscape puts one whole escape, decoded.
func (h *Hasher) putEscape(raw []byte) {
	if bufferBytes-h.n <= scan.MinDecodeBuffer {
		h.flush()
	}
	n, _ := scan.Decode(h.buf[h.n:], raw)
	if n == 1 && h.buf[h.n] == '"' {
		h.buf[h.n] = scan.InnerQuote
		h.buf[h.n+1] = '"'
		n = 2
	}
	h.n += n
	if h.probe != nil {
		h.flush()
	}
}

// escapeLen is the length of the escape raw starts with; a surrogate pair counts as one. It is more than len(raw) where
// the escape, or what may be its second half, is cut.
func escapeLen(raw []byte) int {
	switch {
	case len(raw) < 2 || raw[1] != 'u':
		return 2
	case len(raw) < 6:
		return 6
	case !isHalf(raw[2:], '8'), len(raw) > 6 && raw[6] != '\\', len(raw) > 7 && raw[7] != 'u':
		return 6
	case len(raw) < maxEscape:
		return len(raw) + 1
	case isHalf(raw[8:], 'C'):
		return maxEscape
	}
	return 6
}

// isHalf says whether four hexadecimal digits are a surrogate: from '8' a high one, from 'C' a low one.
func isHalf(hex []byte, from byte) bool {
	if hex[0]|0x20 != 'd' {
		return false
	}
	switch hex[1] | 0x20 {
	case '8', '9', 'a', 'b':
		return from == '8'
	case 'c', 'd', 'e', 'f':
		return from == 'C'
	}
	return false
}

// without hashes the text of an object as json would hash it without the members of these names.
func (h *Hasher) without(doc []byte, v scan.Value, names ...string) {
	raw := v.Raw(doc)
	if len(names) == 0 {
		h.json(raw)
		return
	}
	c := h.cursor(raw)
	h.object(&c, raw, names...)
}

// object hashes the object c stands before as json would hash it without the members of these names.
func (h *Hasher) object(c *scan.Cursor, doc []byte, without ...string) {
	if !c.EnterObject() {
		h.json(c.Skip().Raw(doc))
		return
	}
	h.noteAt(doc, c.Pos()-1)
	h.putByte('{')
	first := true
	var scratch [32]byte
fields:
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		name := key.Text(doc, scratch[:0])
		for _, w := range without {
			if string(name) == w {
				continue fields
			}
		}
		h.noteAt(doc, key.Start)
		if !first {
			h.putByte(',')
		}
		first = false
		h.json(key.Raw(doc))
		h.putByte(':')
		h.json(v.Raw(doc))
	}
	h.noteAt(doc, c.Pos()-1)
	h.putByte('}')
}
