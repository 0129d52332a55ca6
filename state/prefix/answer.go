package prefix

import (
	"unicode/utf8"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// answer is what a Hasher knows of an answer being streamed.
type answer struct {
	marks   []Mark // kept between answers for its capacity
	role    string
	item    byte // the item that is open in Responses: frameMessage, frameCall, 0 if none
	section byte // the frame that is open, 0 if none
	open    bool
	broken  bool
	half    [3]byte // a high surrogate whose low half may come with the next delta
	halves  int
	input   jsonText // of the tool call that is open in Messages
}

func (a *answer) reset() {
	*a = answer{marks: a.marks[:0]}
}

// BeginAnswer starts the answer to the prompt of the last Marks call. Role is the answer's role, normally "assistant";
// for completions and embeddings the answer goes on where the prompt ended and role is ignored. The Answer methods hash
// what the next turn's prompt will hold behind this one, whatever pieces it comes in. Nothing is known of the pieces
// between calls, so they may be reused at once. An answer to a prompt with Previous or Conversation has no marks: the
// next turn will name it instead of repeating it.
func (h *Hasher) BeginAnswer(role string) {
	h.answer.reset()
	h.answer.open, h.answer.broken = true, h.history
	h.answer.role = role
	h.dst = h.answer.marks
	if h.kind == Chat || h.kind == Messages {
		h.beginMessage(role)
	}
}

// AnswerText adds a piece of the answer's text, decoded. In a chat, text that comes after a tool call breaks the
// answer, since the next turn's message would hold it before. Elsewhere it begins another block or message.
func (h *Hasher) AnswerText(piece []byte) {
	if len(piece) == 0 || !h.ready() {
		return
	}
	if h.chats() && h.answer.section != frameText {
		switch {
		case h.kind == Responses && h.answer.item != frameMessage:
			h.nextItem(frameMessage)
			h.beginMessage(h.answer.role)
		case h.kind == Chat && h.answer.section != 0:
			h.answer.broken = true
			return
		}
		h.section(frameText)
	}
	h.answerBytes(piece)
}

// AnswerCall starts the next tool call of the answer, by the function's whole name.
func (h *Hasher) AnswerCall(name []byte) {
	if !h.ready() {
		return
	}
	if !h.chats() {
		h.answer.broken = true
		return
	}
	if h.kind == Responses {
		h.nextItem(frameCall)
	}
	h.section(frameCall)
	h.bytes(name, false)
	h.frame(frameEnd)
}

// AnswerArguments adds a piece of the arguments of the tool call started last, decoded. In Messages the pieces are JSON
// text, the call's input whole or in parts; none at all is an empty object.
func (h *Hasher) AnswerArguments(piece []byte) {
	if len(piece) == 0 || !h.ready() {
		return
	}
	if h.answer.section != frameCall {
		h.answer.broken = true
		return
	}
	h.answerBytes(piece)
}

// AnswerPart ends the part or block of text that is open: text that follows belongs to another one of the same message.
// A chat's answer has only one.
func (h *Hasher) AnswerPart() {
	if h.ready() && h.kind != Chat && h.answer.section == frameText {
		h.section(0)
	}
}

// AnswerItem adds an element of a response's output or a block of a message's content as it stands in the answer, raw
// JSON, in place of all its pieces. It ends what is open before it; with nil it does only that, so that text that
// follows belongs to another message.
func (h *Hasher) AnswerItem(raw []byte) {
	if !h.ready() {
		return
	}
	if h.kind != Responses && h.kind != Messages {
		h.answer.broken = true
		return
	}
	h.section(0)
	if h.kind == Responses {
		h.nextItem(0)
	}
	if len(raw) == 0 {
		return
	}
	h.checked = false
	c := scan.New(raw)
	depth := 0
	if h.kind == Messages {
		depth = 1
	}
	h.element(&c, raw, depth)
	if c.End() != nil {
		h.answer.broken = true
	}
}

// BreakAnswer gives the answer up: something was in it from which the next turn's prompt can't be told.
func (h *Hasher) BreakAnswer() { h.answer.broken = true }

// EndAnswer ends the answer and appends its marks to dst: those behind the prompt's last mark, in order of depth, none
// if the answer is broken. The hasher needs another Marks call afterwards.
func (h *Hasher) EndAnswer(dst []Mark) []Mark {
	if !h.answer.open {
		return dst
	}
	if !h.answer.broken {
		h.section(0)
		switch h.kind {
		case Chat, Messages:
			h.endMessage()
		case Responses:
			h.nextItem(0)
		default:
			h.mark()
		}
	}
	if !h.answer.broken {
		dst = append(dst, h.dst...)
	}
	h.answer.marks, h.dst = h.dst, nil
	h.answer.open = false
	return dst
}

func (h *Hasher) ready() bool { return h.answer.open && !h.answer.broken }

// chats says whether answers are messages or items, not the prompt's text going on.
func (h *Hasher) chats() bool { return h.kind != Completion && h.kind != Embedding }

// nextItem closes the item of a response that is open, and notes the next one.
func (h *Hasher) nextItem(code byte) {
	if h.answer.item != 0 {
		h.section(0)
		if h.answer.item == frameMessage {
			h.frame(frameEnd)
		}
		h.exact(messageTokens)
		h.markEnd()
	}
	h.answer.item = code
}

// section closes the frame that is open and opens the next one, if any.
func (h *Hasher) section(code byte) {
	h.settle()
	a := &h.answer
	if a.section == frameCall && h.kind == Messages {
		if !a.input.some {
			h.put(noArguments)
		} else if !a.input.whole() {
			a.broken = true
		}
		a.input = jsonText{}
	}
	if a.section != 0 {
		h.frame(frameEnd)
	}
	if a.section = code; code != 0 {
		h.frame(code)
	}
}

// answerOut hashes a piece of what is open.
func (h *Hasher) answerOut(b []byte) {
	if h.kind == Messages && h.answer.section == frameCall {
		h.jsonPiece(&h.answer.input, b)
		return
	}
	h.bytes(b, false)
}

// answerBytes hashes a piece. Two lone surrogates that end one piece and begin the next are one character in the next
// turn's prompt, so a trailing high one waits.
func (h *Hasher) answerBytes(piece []byte) {
	a := &h.answer
	if a.halves == 3 && isSurrogate(piece, 0xB0) {
		high, low := surrogate(a.half[:]), surrogate(piece)
		utf8.EncodeRune(h.tag[:], 0x10000+(high-0xD800)<<10+(low-0xDC00))
		a.halves = 0
		h.answerOut(h.tag[:4])
		piece = piece[3:]
	}
	if len(piece) == 0 {
		return
	}
	h.settle()
	if n := len(piece); n >= 3 && isSurrogate(piece[n-3:], 0xA0) {
		a.halves = copy(a.half[:], piece[n-3:])
		piece = piece[:n-3]
	}
	h.answerOut(piece)
}

// settle hashes a surrogate that waited in vain.
func (h *Hasher) settle() {
	if n := h.answer.halves; n > 0 {
		h.answer.halves = 0
		h.answerOut(h.answer.half[:n])
	}
}

// isSurrogate says whether b starts with a surrogate in WTF-8: high ones have a second byte from 0xA0, low ones from 0xB0.
func isSurrogate(b []byte, from byte) bool {
	return len(b) >= 3 && b[0] == 0xED && b[1]&0xF0 == from
}

func surrogate(b []byte) rune {
	return 0xD000 | rune(b[1]&0x3F)<<6 | rune(b[2]&0x3F)
}
