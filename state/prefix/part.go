package prefix

import (
	"bytes"
	"encoding/binary"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// Tokens counted for a media part, whose bytes say nothing about them: the middle of what common vision and audio
// encoders spend on an ordinary item. They are a start; what is learned from usage covers the rest.
const (
	imageTokens    = 800
	imageLowTokens = 85
	audioTokens    = 400
	videoTokens    = 2000
	fileTokens     = 1500

	// inlineBytes is how much of an unknown part is taken for text. More than this is some attachment, and counting
	// its bytes as tokens would make a prompt of 20 MB base64 look five million tokens long.
	inlineBytes = 16 << 10
)

// part hashes one element of a content list.
func (h *Hasher) part(c *scan.Cursor, doc []byte) {
	in := *c
	whole := c.Skip()
	if whole.Kind != scan.Object {
		if whole.Kind == scan.String {
			h.text(doc, whole) // some engines take plain strings as parts
			return
		}
		h.other(doc, whole)
		return
	}
	in.EnterObject()
	var kind, text scan.Value
	var scratch [32]byte
	for key, ok := in.NextField(); ok; key, ok = in.NextField() {
		v := in.Skip()
		switch string(key.Text(doc, scratch[:0])) {
		case "type":
			kind = v
		case "text":
			text = v
		}
	}
	var name []byte
	if kind.Kind == scan.String {
		name = kind.Text(doc, scratch[:0])
	}
	switch string(name) {
	case "text", "input_text", "output_text":
		if text.Kind == scan.String {
			h.text(doc, text)
			return
		}
	case "image_url", "input_image", "image":
		tokens := imageTokens
		if whole.End-whole.Start < 4096 && bytes.Contains(whole.Raw(doc), []byte(`"low"`)) {
			tokens = imageLowTokens
		}
		h.media(doc, whole, 'i', tokens)
		return
	case "input_audio", "audio_url", "audio":
		h.media(doc, whole, 'a', audioTokens)
		return
	case "video_url", "video":
		h.media(doc, whole, 'v', videoTokens)
		return
	case "file", "input_file":
		h.media(doc, whole, 'f', fileTokens)
		return
	}
	if whole.End-whole.Start > inlineBytes {
		h.media(doc, whole, 'o', fileTokens)
		return
	}
	h.other(doc, whole)
}

// media hashes a part by the digest of its JSON text, and counts it as that many tokens.
func (h *Hasher) media(doc []byte, v scan.Value, kind byte, tokens int) {
	h.frame(frameMedia)
	h.digest.Reset()
	h.digesting = true
	h.json(v.Raw(doc))
	h.flush()
	h.digesting = false
	h.tag[0] = kind
	h.framing(h.tag[:1])
	binary.LittleEndian.PutUint64(h.tag[:], h.digest.Sum64())
	h.exact(tokens)
	h.framing(h.tag[:])
}

// json hashes the text of a valid JSON value without the white space between its tokens and with strings decoded. A
// quote inside a string is preceded by 0xFE, which no string holds, so that it closes nothing.
func (h *Hasher) json(raw []byte) {
	for len(raw) > 0 {
		// Outside strings: up to and with the next quote, without white space.
		i := 0
		for i < len(raw) && raw[i] > ' ' && raw[i] != '"' {
			i++
		}
		if i == len(raw) {
			h.put(raw)
			break
		}
		if raw[i] != '"' {
			h.put(raw[:i])
			raw = raw[i+1:]
			continue
		}
		h.put(raw[:i+1])
		raw = raw[i+1:]
		// Inside: runs up to an escape or the closing quote.
		for {
			if i = scan.Plain(raw); i == len(raw) {
				h.put(raw)
				raw = nil
				break
			}
			if raw[i] == '"' {
				h.put(raw[:i+1])
				raw = raw[i+1:]
				break
			}
			h.put(raw[:i])
			raw = raw[i:]
			used := escapeLen(raw)
			if len(raw) > 1 && raw[1] == '"' {
				h.putByte(0xFE)
			}
			if bufferBytes-h.n < scan.MinDecodeBuffer {
				h.flush()
			}
			n, _ := scan.Decode(h.buf[h.n:], raw[:used])
			h.n += n
			raw = raw[used:]
		}
	}
}

// escapeLen is the length of the escape raw starts with; two that may be a surrogate pair count as one.
func escapeLen(raw []byte) int {
	switch {
	case len(raw) < 2 || raw[1] != 'u':
		return min(2, len(raw))
	case len(raw) >= 12 && raw[2]|0x20 == 'd' && raw[6] == '\\' && raw[7] == 'u' && raw[8]|0x20 == 'd':
		return 12
	}
	return min(6, len(raw))
}
