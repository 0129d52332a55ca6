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
	if !c.EnterObject() {
		if v := c.Skip(); v.Kind == scan.String {
			h.text(doc, v) // some engines take plain strings as parts
		} else {
			h.other(doc, v)
		}
		return
	}
	whole := scan.Value{Kind: scan.Object, Start: c.Pos() - 1}
	var kind, text scan.Value
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		switch string(key.Text(doc, scratch[:0])) {
		case "type":
			kind = v
		case "text":
			text = v
		}
	}
	if c.Err() != nil {
		return
	}
	whole.End = c.Pos()
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
	h.noteAt(doc, v.Start)
	h.beginDigest(kind)
	h.json(v.Raw(doc))
	h.noteAt(doc, v.Start)
	h.endDigest(tokens)
}

// beginDigest starts a part of which only a digest goes into the stream: what is put until endDigest.
func (h *Hasher) beginDigest(kind byte) {
	h.frame(frameMedia)
	h.tag[0] = kind
	h.framing(h.tag[:1])
	h.digest.Reset()
	h.digesting = true
}

func (h *Hasher) endDigest(tokens int) {
	h.flush()
	h.digesting = false
	h.exact(tokens)
	binary.LittleEndian.PutUint64(h.tag[:], h.digest.Sum64())
	h.framing(h.tag[:])
}
