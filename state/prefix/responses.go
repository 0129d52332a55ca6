package prefix

import (
	"encoding/binary"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// responses hashes a request of OpenAI's Responses: what it goes on from, settings, instructions as a system message,
// then the items of its input.
func (h *Hasher) responses(in Input) error {
	for i, raw := range [...][]byte{in.Previous, in.Conversation} {
		if err := h.goOn(byte(i), raw); err != nil {
			return err
		}
	}
	if err := h.settings(in); err != nil {
		return err
	}
	if err := h.setting(sectionPrompt, in.Reference); err != nil {
		return err
	}
	h.markEnd()
	if err := h.list(in.Instructions, "system"); err != nil {
		return err
	}
	return h.list(in.Prompt, "user")
}

// goOn makes what a prompt goes on from and the body does not hold a part of the seed: no depth is known of it.
func (h *Hasher) goOn(source byte, raw []byte) error {
	if len(raw) == 0 {
		return nil
	}
	v, err := h.one(raw)
	if err != nil || v.Kind == scan.Null {
		return err
	}
	h.history = true
	h.digest.Reset()
	h.digesting = true
	h.json(v.Raw(raw))
	h.flush()
	h.digesting = false
	h.tag[0], h.tag[1], h.tag[2] = 0xFF, frameHistory, source
	h.seed(raw, h.tag[:3])
	binary.LittleEndian.PutUint64(h.tag[:], h.digest.Sum64())
	h.seed(raw, h.tag[:])
	return nil
}

// seed hashes what is a part of the seed and has no position.
func (h *Hasher) seed(raw, b []byte) {
	if h.probe != nil {
		h.probe.from(raw, whole)
		h.probe.piece(b, false)
	}
	_, _ = h.x.Write(b)
}

// item hashes one element of a response's input or output.
func (h *Hasher) item(doc []byte, e *element) {
	what := []byte("message") // what the short form of a message leaves out
	if present(e.kind) || !present(e.role) {
		what = e.typed(doc)
	}
	switch string(what) {
	case "message":
		h.turn(doc, e)
		return
	case "function_call":
		h.called(doc, frameCall, e.whole.Start, e.name, e.arguments)
	case "custom_tool_call":
		h.called(doc, frameCustom, e.whole.Start, e.name, e.input)
	case "function_call_output", "custom_tool_call_output":
		h.noteAt(doc, e.whole.Start)
		h.frame(frameResult)
		h.content(doc, e.output, 1)
		h.noteAt(doc, e.whole.End-1)
		h.frame(frameEnd)
	case "reasoning":
		return
	case "item_reference": // its id is all there is
		h.other(doc, e.whole)
	default:
		h.unknown(doc, e.whole, "id", "status")
	}
	h.exact(messageTokens)
	h.markEnd()
}
