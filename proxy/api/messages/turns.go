package messages

import (
	"bytes"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
)

// attribution begins the block of a system prompt that differs in every request of one client.
const attribution = "x-anthropic-billing-header"

// messages writes the system prompt and the messages. continued says whether the last one is one of the assistant that
// goes on.
func (w *writer) messages(system, list []byte) (continued bool, err error) {
	if !isAbsent(system) {
		if err := w.instructions(place{-1, -1, -1}, system); err != nil {
			return false, err
		}
	}
	if !isArray(list) || isEmpty(list) {
		return false, api.BadRequest("messages", "'messages' is required and must be an array of at least one message.")
	}
	err = elements(list, func(i int, raw []byte) error {
		at := place{i, -1, -1}
		var v [2][]byte
		pick(raw, []string{"role", "content"}, v[:])
		role, content := v[0], v[1]
		continued = false
		switch {
		case is(role, "user"):
			return w.user(at, content)
		case is(role, "assistant"):
			continued, err = w.assistant(at, content)
			return err
		case is(role, "system"):
			return w.instructions(at, content)
		}
		where := path("messages", i) + ".role"
		return api.BadRequest(where, "'"+where+"' must be user or assistant.")
	})
	return continued, err
}

// begin begins a message.
func (w *writer) begin(role string) {
	if w.some {
		w.str(",")
	}
	w.some = true
	w.str(`{"role":"`)
	w.str(role)
	w.str(`"`)
}

// plain writes a message whose content is one string, and returns false where it is an array.
func (w *writer) plain(role string, at place, content []byte) (written bool, err error) {
	switch {
	case isString(content):
		w.begin(role)
		w.member("content", content)
		w.str("}")
		return true, nil
	case isArray(content):
		return false, nil
	}
	return false, at.bad("", "must be a string or an array of blocks.")
}

// instructions writes a system message: a string, or blocks of text.
func (w *writer) instructions(at place, content []byte) error {
	if written, err := w.plain("system", at, content); written || err != nil {
		return err
	}
	some := false
	err := w.blocks(content, at, func(b *block) error {
		if b.kind != textBlock {
			return b.refuse("Only text can stand there.")
		}
		if bytes.HasPrefix(inner(b.text), []byte(attribution)) {
			return nil
		}
		if some {
			w.str(`\n`)
		} else {
			w.begin("system")
			w.str(`,"content":"`)
		}
		some = true
		w.raw(inner(b.text))
		return nil
	})
	if some {
		w.str(`"}`)
	}
	return err
}

// user writes what a user's message holds: a message for each tool's result, then one for the rest.
func (w *writer) user(at place, content []byte) error {
	if written, err := w.plain("user", at, content); written || err != nil {
		return err
	}
	results, images, parts := 0, 0, 0
	var only []byte // the only part's text
	err := w.blocks(content, at, func(b *block) error {
		switch b.kind {
		case resultBlock:
			results++
			n, err := w.result(b)
			images += n
			return err
		case textBlock, imageBlock:
			parts++
			only = b.text
			return nil
		}
		return b.refuse("A user's message can hold text, images and results of tools.")
	})
	switch {
	case err != nil:
		return err
	case images+parts == 0 && results == 0:
		w.begin("user")
		w.str(`,"content":""}`)
	case images+parts == 0:
	case images == 0 && parts == 1 && isString(only):
		w.begin("user")
		w.member("content", only)
		w.str("}")
	default:
		w.begin("user")
		w.str(`,"content":[`)
		err = w.parts(at, content, images > 0)
		w.str("]}")
	}
	return err
}

// parts writes the parts of a user's message, those images first that are in tools' results.
func (w *writer) parts(at place, content []byte, images bool) error {
	some := false
	part := func(b *block) error {
		if b.kind != textBlock && b.kind != imageBlock {
			return nil
		}
		if some {
			w.str(",")
		}
		some = true
		if b.kind == imageBlock {
			return w.image(b)
		}
		w.str(`{"type":"text"`)
		w.member("text", b.text)
		w.str("}")
		return nil
	}
	if images {
		err := w.blocks(content, at, func(b *block) error {
			if b.kind != resultBlock {
				return nil
			}
			return w.blocks(b.content, b.place, func(inner *block) error {
				if inner.kind != imageBlock {
					return nil
				}
				return part(inner)
			})
		})
		if err != nil {
			return err
		}
	}
	return w.blocks(content, at, part)
}

// result writes a tool's message and counts the images in the result, which go into the user's message.
func (w *writer) result(b *block) (images int, err error) {
	w.begin("tool")
	w.member("tool_call_id", b.callID)
	w.str(`,"content":"`)
	if isTrue(b.failed) {
		w.str("Error: ")
	}
	w.raw(inner(b.content)) // nothing for blocks
	some := false
	err = w.blocks(b.content, b.place, func(part *block) error {
		switch part.kind {
		case textBlock:
			if some {
				w.str(`\n`)
			}
			some = true
			w.raw(inner(part.text))
		case imageBlock:
			images++
		default:
			return part.refuse("A tool's result can hold text and images.")
		}
		return nil
	})
	w.str(`"}`)
	return images, err
}

// assistant writes a message of the assistant; continued says whether it is one that could go on.
func (w *writer) assistant(at place, content []byte) (continued bool, err error) {
	if written, err := w.plain("assistant", at, content); written || err != nil {
		return len(inner(content)) > 0, err
	}
	var texts, thoughts, calls bool
	err = w.blocks(content, at, func(b *block) error {
		switch b.kind {
		case textBlock:
			texts = true
			continued = continued || len(inner(b.text)) > 0
		case thinkingBlock:
			thoughts = true
		case callBlock:
			calls = true
		case redactedBlock:
		default:
			return b.refuse("An assistant's message can hold text, thinking and calls of tools.")
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	w.begin("assistant")
	if name := w.reasoning(); thoughts && name != "" {
		w.str(`,"` + name + `":"`)
		w.each(content, thinkingBlock, func(b *block) { w.raw(inner(b.thinking)) })
		w.str(`"`)
	}
	if texts || !calls {
		w.str(`,"content":"`)
		w.each(content, textBlock, func(b *block) { w.raw(inner(b.text)) })
		w.str(`"`)
	} else {
		w.str(`,"content":null`)
	}
	if calls {
		w.str(`,"tool_calls":[`)
		some := false
		w.each(content, callBlock, func(b *block) {
			if some {
				w.str(",")
			}
			some = true
			w.call(b)
		})
		w.str("]")
	}
	w.str("}")
	return continued && !calls, nil
}

// each calls do with the blocks of a kind in content that has been read without a fault.
func (w *writer) each(content []byte, kind blockKind, do func(*block)) {
	_ = w.blocks(content, place{-1, -1, -1}, func(b *block) error {
		if b.kind == kind {
			do(b)
		}
		return nil
	})
}

// reasoning is the name of an assistant's thinking in the engine's messages, "" where the engine takes none.
func (w *writer) reasoning() string {
	switch w.opts.Engine {
	case state.EngineOpenAI:
		return ""
	case state.EngineVLLM: // from 0.16 on the only name it reads
		return "reasoning"
	}
	return "reasoning_content"
}

// call writes a call of a tool.
func (w *writer) call(b *block) {
	w.str(`{"id":`)
	w.raw(b.id)
	w.str(`,"type":"function","function":{"name":`)
	w.raw(b.name)
	w.str(`,"arguments":"`)
	if isAbsent(b.input) {
		w.str("{}")
	} else {
		w.dst = appendAsString(w.dst, b.input)
	}
	w.str(`"}}`)
}
