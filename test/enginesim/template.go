package enginesim

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/tidwall/gjson"
	"github.com/zeebo/xxh3"
)

// Ids of the marks the chat template places around messages. They never result
// from text.
const (
	markStart uint32 = 1 // before a role
	markRole  uint32 = 2 // between role and content
	markEnd   uint32 = 3 // after a message; also what ends a generated answer
	markTools uint32 = 4
	markCall  uint32 = 5 // before a tool call
	markMedia uint32 = 6 // before the tokens of an image, audio or file part
)

// appendChat appends the token ids of a chat request as the template renders it:
// tools, then each message as role and content, then the header of the
// assistant's answer. An answer sent back as the next assistant message has the
// ids it was generated with, so a follow-up shares the whole history.
// reasoning_content is left out, as most templates do with earlier turns.
// mediaTokens is how many tokens an image, audio or file part takes.
func appendChat(dst []uint32, messages, tools gjson.Result, mediaTokens int) ([]uint32, error) {
	if !messages.IsArray() {
		return nil, errors.New("messages: Input should be a valid list")
	}
	if tools.IsArray() && len(tools.Raw) > 2 {
		dst = append(dst, markTools)
		tools.ForEach(func(_, t gjson.Result) bool {
			dst = appendTool(dst, compact(t.Raw))
			return true
		})
		dst = append(dst, markEnd)
	}
	var err error
	n := 0
	messages.ForEach(func(_, m gjson.Result) bool {
		n++
		if !m.IsObject() {
			err = errors.New("messages: Input should be a valid dictionary")
			return false
		}
		dst, err = appendMessage(dst, m, mediaTokens)
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errors.New("messages: List should have at least 1 item")
	}
	return appendHeader(dst, "assistant"), nil
}

// appendTool appends one tool of the list, which is JSON text.
func appendTool(dst []uint32, tool string) []uint32 { return AppendTokens(append(dst, markCall), tool) }

// appendCall appends a call in an assistant's message; arguments are JSON text.
func appendCall(dst []uint32, name, arguments string) []uint32 {
	dst = AppendTokens(append(dst, markCall), name)
	return AppendTokens(append(dst, markRole), arguments)
}

func appendHeader(dst []uint32, role string) []uint32 {
	return append(AppendTokens(append(dst, markStart), role), markRole)
}

func appendMessage(dst []uint32, m gjson.Result, mediaTokens int) ([]uint32, error) {
	var role, content, name, calls gjson.Result
	m.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "role":
			role = v
		case "content":
			content = v
		case "name":
			name = v
		case "tool_calls":
			calls = v
		}
		return true
	})
	if role.Type != gjson.String || role.Str == "" {
		return nil, errors.New("messages.role: Field required")
	}
	dst = append(dst, markStart)
	dst = AppendTokens(dst, role.Str)
	if name.Type == gjson.String && name.Str != "" {
		dst = AppendTokens(dst, " "+name.Str)
	}
	dst = append(dst, markRole)
	switch {
	case content.Type == gjson.String:
		dst = AppendTokens(dst, content.Str)
	case content.IsArray():
		content.ForEach(func(_, part gjson.Result) bool {
			dst = appendPart(dst, part, mediaTokens)
			return true
		})
	case content.Type != gjson.Null:
		return nil, errors.New("messages.content: Input should be a valid string or list")
	}
	if calls.IsArray() {
		calls.ForEach(func(_, c gjson.Result) bool {
			f := c.Get("function")
			dst = appendCall(dst, f.Get("name").String(), f.Get("arguments").String())
			return true
		})
	}
	return append(dst, markEnd), nil
}

// appendPart renders one content part: text as text, anything else as a fixed
// number of tokens that are a function of its bytes, an image's of its URL alone.
func appendPart(dst []uint32, part gjson.Result, mediaTokens int) []uint32 {
	if part.Type == gjson.String {
		return AppendTokens(dst, part.Str)
	}
	if t := part.Get("text"); t.Type == gjson.String {
		return AppendTokens(dst, t.Str)
	}
	if url := part.Get("image_url.url"); url.Type == gjson.String {
		return appendMedia(dst, xxh3.HashString(url.Str), mediaTokens)
	}
	return appendMedia(dst, xxh3.HashString(part.Raw), mediaTokens)
}

// appendMedia appends the tokens of a medium with this hash.
func appendMedia(dst []uint32, hash uint64, tokens int) []uint32 {
	dst = append(dst, markMedia)
	for i := range tokens {
		dst = append(dst, max(uint32(mix(hash+uint64(i))>>33), firstTextID))
	}
	return dst
}

// compact drops insignificant white space, as a template does that prints
// parsed JSON.
func compact(raw string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(raw)) != nil {
		return raw
	}
	return b.String()
}
