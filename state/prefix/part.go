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
func (h *Hasher) part(doc []byte, e *element) {
	switch string(e.typed(doc)) {
	case "text", "input_text", "output_text":
		if e.text.Kind == scan.String {
			h.text(doc, e.text)
			return
		}
	case "image_url", "input_image", "image":
		tokens := imageTokens
		if e.whole.End-e.whole.Start < 4096 && bytes.Contains(e.whole.Raw(doc), []byte(`"low"`)) {
			tokens = imageLowTokens
		}
		h.media(doc, e.whole, 'i', tokens)
		return
	case "input_audio", "audio_url", "audio":
		h.media(doc, e.whole, 'a', audioTokens)
		return
	case "video_url", "video":
		h.media(doc, e.whole, 'v', videoTokens)
		return
	case "file", "input_file":
		h.media(doc, e.whole, 'f', fileTokens)
		return
	}
	h.unknown(doc, e.whole)
}

// media hashes a part by the digest of its JSON text without those members, and counts it as that many tokens.
func (h *Hasher) media(doc []byte, v scan.Value, kind byte, tokens int, without ...string) {
	h.noteAt(doc, v.Start)
	h.beginDigest(kind)
	h.without(doc, v, without...)
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
