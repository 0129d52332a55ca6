package messages

import (
	"strconv"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// path is a list's name and a position in it.
func path(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// place is where a block stands: messages[message].content[block].content[inner], or system[block]. -1 is none.
type place struct{ message, block, inner int }

// list is the path of the list of blocks that the place's block is in.
func (p place) list() string {
	if p.message < 0 {
		return "system"
	}
	return path("messages", p.message) + ".content"
}

func (p place) String() string {
	s := p.list()
	if p.block >= 0 {
		s = path(s, p.block)
	}
	if p.inner >= 0 {
		s = path(s+".content", p.inner)
	}
	return s
}

// bad is the error for what stands there, or for a member of it: what it must be.
func (p place) bad(member, must string) error {
	at := p.String() + member
	return api.BadRequest(at, "'"+at+"' "+must)
}

// blockKind is the type of a content block, as far as it can be translated.
type blockKind uint8

const (
	otherBlock blockKind = iota
	textBlock
	imageBlock
	callBlock   // tool_use
	resultBlock // tool_result
	thinkingBlock
	redactedBlock
)

// block is one block of content: the values of its members, nil for those that are not there.
type block struct {
	place
	kind blockKind

	typed, text, thinking, source []byte
	id, name, input               []byte // of a call
	callID, content, failed       []byte // of a result
}

// read reads a block and checks what its kind must have.
func (b *block) read(at place, raw []byte) error {
	*b = block{place: at}
	c := scan.Reread(raw)
	if !c.EnterObject() {
		return b.bad("", "must be a block of content: an object with a type.")
	}
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip().Raw(raw)
		switch string(key.Text(raw, scratch[:0])) {
		case "type":
			b.typed = v
		case "text":
			b.text = v
		case "thinking":
			b.thinking = v
		case "source":
			b.source = v
		case "id":
			b.id = v
		case "name":
			b.name = v
		case "input":
			b.input = v
		case "tool_use_id":
			b.callID = v
		case "content":
			b.content = v
		case "is_error":
			b.failed = v
		}
	}
	return b.check()
}

func (b *block) check() error {
	switch {
	case is(b.typed, "text"):
		b.kind = textBlock
		return b.mustBe(b.text, ".text")
	case is(b.typed, "image"):
		b.kind = imageBlock
	case is(b.typed, "tool_use"):
		b.kind = callBlock
		if !isAbsent(b.input) && !isObject(b.input) {
			return b.bad(".input", "must be an object.")
		}
		if err := b.mustBe(b.id, ".id"); err != nil {
			return err
		}
		return b.mustBe(b.name, ".name")
	case is(b.typed, "tool_result"):
		b.kind = resultBlock
		if !isAbsent(b.content) && !isString(b.content) && !isArray(b.content) {
			return b.bad(".content", "must be a string or an array of blocks.")
		}
		return b.mustBe(b.callID, ".tool_use_id")
	case is(b.typed, "thinking"):
		b.kind = thinkingBlock
		return b.mustBe(b.thinking, ".thinking")
	case is(b.typed, "redacted_thinking"):
		b.kind = redactedBlock
	default:
		return b.mustBe(b.typed, ".type")
	}
	return nil
}

// mustBe refuses a member that is no string.
func (b *block) mustBe(value []byte, member string) error {
	if isString(value) {
		return nil
	}
	return b.bad(member, "must be a string.")
}

// refuse is the error for a block that can't stand where it stands, or nowhere.
func (b *block) refuse(instead string) error {
	return b.bad("", "is a block this model's engine does not take there. "+instead)
}

// blocks calls do with each block of content, an array. at is the place of the block the content is in, or of the
// message.
// The block is valid during the call.
func (w *writer) blocks(content []byte, at place, do func(*block) error) error {
	b := &w.level[0]
	if at.block >= 0 {
		b = &w.level[1]
	}
	return elements(content, func(i int, raw []byte) error {
		where := at
		if where.block < 0 {
			where.block = i
		} else {
			where.inner = i
		}
		if err := b.read(where, raw); err != nil {
			return err
		}
		return do(b)
	})
}

// image writes an image as a part of a user's message.
func (w *writer) image(b *block) error {
	var v [4][]byte
	pick(b.source, []string{"type", "data", "media_type", "url"}, v[:])
	kind, data, media, url := v[0], v[1], v[2], v[3]
	w.str(`{"type":"image_url","image_url":{"url":`)
	switch {
	case is(kind, "base64"):
		if !isMedia(inner(media)) {
			return b.bad(".source.media_type", "must be a media type, such as image/png.")
		}
		if err := b.mustBe(data, ".source.data"); err != nil {
			return err
		}
		w.str(`"data:`)
		w.raw(inner(media))
		w.str(";base64,")
		w.raw(inner(data))
		w.str(`"`)
	case is(kind, "url"):
		if err := b.mustBe(url, ".source.url"); err != nil {
			return err
		}
		w.raw(url)
	default:
		return b.bad(".source.type", "must be base64 or url; this model's engine has no files.")
	}
	w.str("}}")
	return nil
}

// isMedia says whether these are the bytes of a media type without parameters, its slash escaped or not.
func isMedia(b []byte) bool {
	for _, c := range b {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '/' && c != '\\' && c != '+' && c != '-' && c != '.' {
			return false
		}
	}
	return len(b) > 0
}
