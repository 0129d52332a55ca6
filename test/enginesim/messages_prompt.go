package enginesim

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/zeebo/xxh3"
)

// messagePrompt renders a request to the Messages API into the token ids that the
// same chat has when it comes as a chat completion, as engines do that translate the
// one into the other:
//   - system is the first message, its blocks are that message's parts;
//   - a tool is {"type":"function","function":{name, description, parameters}};
//   - a tool_use block is a tool call, its input written as Python writes JSON;
//   - a tool_result is a message of role tool before the message it came in;
//   - an image is the part image_url with its URL, or with its data as a data URL;
//   - thinking of earlier turns is left out.
//
// A prompt that ends with an assistant's message gets a new header behind it: the
// answer does not go on from there.
type messagePrompt struct {
	ids    []uint32
	marked int // ids up to the end of the last block that has cache_control
	media  int // tokens of an image
	kind   Kind
}

// cacheControl is the member that marks where a client wants its prefix cached. It
// is no part of the prompt.
const cacheControl = "cache_control"

// maxNestedBlocks bounds blocks in blocks: a document in a tool's result.
const maxNestedBlocks = 3

func (p *messagePrompt) render(r *request) *apiError {
	p.tools(r.tools)
	if err := p.system(r.system); err != nil {
		return err
	}
	n := 0
	var err *apiError
	r.messages.ForEach(func(_, m gjson.Result) bool {
		err = p.message(m, fmt.Sprintf("messages.%d", n))
		n++
		return err == nil
	})
	if err != nil {
		return err
	}
	if n == 0 {
		return badRequest("messages: at least one message is required")
	}
	p.ids = appendHeader(p.ids, "assistant")
	if r.cacheAll {
		p.marked = len(p.ids)
	}
	return nil
}

func (p *messagePrompt) tools(tools gjson.Result) {
	if !tools.IsArray() || !tools.Get("0").Exists() {
		return
	}
	p.ids = append(p.ids, markTools)
	tools.ForEach(func(_, t gjson.Result) bool {
		p.ids = appendTool(p.ids, chatTool(t))
		p.mark(t)
		return true
	})
	p.ids = append(p.ids, markEnd)
}

// chatTool is a tool as a chat completion has it. One without a schema is the
// provider's own and stays as it is.
func chatTool(t gjson.Result) string {
	schema := t.Get("input_schema")
	if !schema.IsObject() {
		return without(t, cacheControl)
	}
	var b strings.Builder
	b.WriteString(`{"type":"function","function":{"name":` + t.Get("name").Raw)
	if d := t.Get("description"); d.Type == gjson.String {
		b.WriteString(`,"description":` + d.Raw)
	}
	b.WriteString(`,"parameters":` + compact(schema.Raw) + `}}`)
	return b.String()
}

// without is an object as compact JSON text that lacks a member.
func without(v gjson.Result, member string) string {
	if !v.IsObject() || !v.Get(member).Exists() {
		return compact(v.Raw)
	}
	b := []byte{'{'}
	v.ForEach(func(k, x gjson.Result) bool {
		if k.Str == member {
			return true
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, k.Raw...), ':'), compact(x.Raw)...)
		return true
	})
	return string(append(b, '}'))
}

// billingHeader begins the block in which a well-known agent sends a hash of each
// request; vLLM leaves it out, for it would change every prefix.
const billingHeader = "x-anthropic-billing-header"

func (p *messagePrompt) system(system gjson.Result) *apiError {
	switch {
	case !system.Exists() || system.Type == gjson.String && system.Str == "" || system.IsArray() && !system.Get("0").Exists():
		return nil
	case system.Type != gjson.String && !system.IsArray():
		return badRequest("system: Input should be a valid string or list")
	}
	if p.kind == VLLM && system.IsArray() {
		kept := []gjson.Result{}
		system.ForEach(func(_, b gjson.Result) bool {
			if !strings.HasPrefix(b.Get("text").Str, billingHeader) {
				kept = append(kept, b)
			}
			return true
		})
		return p.turn("system", kept, "system")
	}
	return p.turn("system", listed(system), "system")
}

// listed is content as a list of blocks; a string stands for itself.
func listed(content gjson.Result) []gjson.Result {
	if content.IsArray() {
		return content.Array()
	}
	return []gjson.Result{content}
}

func (p *messagePrompt) message(m gjson.Result, at string) *apiError {
	if !m.IsObject() {
		return badRequest("%s: Input should be an object", at)
	}
	role, content := m.Get("role"), m.Get("content")
	switch role.Str {
	case "user", "assistant", "system":
	case "":
		return badRequest("%s.role: Field required", at)
	default:
		return badRequest(`%s.role: Input should be "user", "assistant" or "system"`, at)
	}
	if content.Type != gjson.String && !content.IsArray() {
		return badRequest("%s.content: Input should be a valid string or list", at)
	}
	blocks := listed(content)
	if role.Str != "user" || content.Type == gjson.String {
		return p.turn(role.Str, blocks, at)
	}
	var rest []gjson.Result
	for i, b := range blocks {
		if b.Get("type").Str != "tool_result" {
			rest = append(rest, b)
			continue
		}
		if b.Get("tool_use_id").Type != gjson.String {
			return badRequest("%s.content.%d.tool_result.tool_use_id: Field required", at, i)
		}
		var result []gjson.Result
		if c := b.Get("content"); c.Exists() {
			result = listed(c)
		}
		if err := p.turn("tool", result, at); err != nil {
			return err
		}
		p.mark(b)
	}
	if len(rest) == 0 && len(blocks) > 0 {
		return nil
	}
	return p.turn(role.Str, rest, at)
}

// turn appends a message: its parts, then the calls among its blocks.
func (p *messagePrompt) turn(role string, blocks []gjson.Result, at string) *apiError {
	p.ids = append(AppendTokens(append(p.ids, markStart), role), markRole)
	for i, b := range blocks {
		if err := p.block(b, fmt.Sprintf("%s.content.%d", at, i), 0); err != nil {
			return err
		}
	}
	for _, b := range blocks {
		if b.Get("type").Str == "tool_use" {
			p.ids = appendCall(p.ids, b.Get("name").String(), pythonJSON(b.Get("input")))
			p.mark(b)
		}
	}
	p.ids = append(p.ids, markEnd)
	return nil
}

// block appends a block of content, but for calls.
func (p *messagePrompt) block(b gjson.Result, at string, depth int) *apiError {
	if b.Type == gjson.String {
		p.ids = AppendTokens(p.ids, b.Str)
		return nil
	}
	kind := b.Get("type").Str
	switch kind {
	case "":
		return badRequest("%s.type: Field required", at)
	case "tool_use", "thinking", "redacted_thinking":
		return nil
	case "text":
		t := b.Get("text")
		if t.Type != gjson.String {
			return badRequest("%s.text.text: Field required", at)
		}
		p.ids = AppendTokens(p.ids, t.Str)
	case "image", "document":
		if err := p.source(b.Get("source"), at+"."+kind, depth); err != nil {
			return err
		}
	default:
		p.ids = AppendTokens(p.ids, without(b, cacheControl))
	}
	p.mark(b)
	return nil
}

// source appends what an image or a document is made of.
func (p *messagePrompt) source(s gjson.Result, at string, depth int) *apiError {
	var h xxh3.Hasher
	switch kind := s.Get("type").Str; kind {
	case "":
		return badRequest("%s.source: Field required", at)
	case "text":
		p.ids = AppendTokens(p.ids, s.Get("data").Str)
		return nil
	case "content":
		for _, b := range listed(s.Get("content")) {
			if depth < maxNestedBlocks {
				if err := p.block(b, at+".source.content", depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	case "base64":
		if s.Get("data").Type != gjson.String {
			return badRequest("%s.source.base64.data: Field required", at)
		}
		for _, part := range []string{"data:", s.Get("media_type").Str, ";base64,", s.Get("data").Str} {
			_, _ = h.WriteString(part)
		}
	case "url":
		_, _ = h.WriteString(s.Get("url").Str)
	default:
		_, _ = h.WriteString(compact(s.Raw))
	}
	p.ids = appendMedia(p.ids, h.Sum64(), p.media)
	return nil
}

// mark notes that the prompt so far ends with a block that may have cache_control.
func (p *messagePrompt) mark(block gjson.Result) {
	if block.Get(cacheControl).IsObject() {
		p.marked = len(p.ids)
	}
}

// pythonJSON is JSON text with the white space that Python's json.dumps writes. What
// is absent or null is an empty object.
func pythonJSON(v gjson.Result) string {
	if v.Type == gjson.Null {
		return "{}"
	}
	raw := compact(v.Raw)
	b := make([]byte, 0, len(raw)+len(raw)/8)
	quoted := false
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		b = append(b, c)
		switch {
		case quoted && c == '\\':
			i++
			b = append(b, raw[i])
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == ':'):
			b = append(b, ' ')
		}
	}
	return string(b)
}

// jsonString is a string as JSON text.
func jsonString(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings marshal
	}
	return b
}
