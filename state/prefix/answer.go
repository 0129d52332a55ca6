package prefix

import "unicode/utf8"

// answer is what a Hasher knows of an answer being streamed.
type answer struct {
	marks   []Mark // kept between answers for its capacity
	section byte   // the frame that is open, 0 if none
	open    bool
	broken  bool
	half    [3]byte // a high surrogate whose low half may come with the next delta
	halves  int
}

func (a *answer) reset() {
	*a = answer{marks: a.marks[:0]}
}

// BeginAnswer starts the answer to the prompt of the last Marks call. For a chat, role is the message's role, normally
// "assistant"; for other kinds the answer goes on where the prompt ended and role is ignored. The Answer methods hash
// what the next turn's prompt will hold behind this one, whatever pieces it comes in. Nothing is known of the pieces
// between calls, so they may be reused at once.
func (h *Hasher) BeginAnswer(role string) {
	h.answer.reset()
	h.answer.open = true
	h.dst = h.answer.marks
	if h.kind == Chat {
		h.frame(frameMessage)
		for len(role) > 0 {
			n := copy(h.buf[:], role)
			h.bytes(h.buf[:n], false)
			role = role[n:]
		}
		h.frame(frameEnd)
	}
}

// AnswerText adds a piece of the answer's text, decoded. Text that comes after a tool call breaks the answer, since the
// next turn's message would hold it before.
func (h *Hasher) AnswerText(piece []byte) {
	if len(piece) == 0 || !h.ready() {
		return
	}
	if h.kind == Chat && h.answer.section != frameText {
		if h.answer.section != 0 {
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
	if h.kind != Chat {
		h.answer.broken = true
		return
	}
	h.section(frameCall)
	h.bytes(name, false)
	h.frame(frameEnd)
}

// AnswerArguments adds a piece of the arguments of the tool call started last, decoded.
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
		if h.kind == Chat {
			h.endMessage()
		} else {
			h.mark()
		}
		dst = append(dst, h.dst...)
	}
	h.answer.marks, h.dst = h.dst, nil
	h.answer.open = false
	return dst
}

func (h *Hasher) ready() bool { return h.answer.open && !h.answer.broken }

// section closes the frame that is open and opens the next one, if any.
func (h *Hasher) section(code byte) {
	h.settle()
	if h.answer.section != 0 {
		h.frame(frameEnd)
	}
	if h.answer.section = code; code != 0 {
		h.frame(code)
	}
}

// answerBytes hashes a piece. Two lone surrogates that end one piece and begin the next are one character in the next
// turn's prompt, so a trailing high one waits.
func (h *Hasher) answerBytes(piece []byte) {
	a := &h.answer
	if a.halves == 3 && isSurrogate(piece, 0xB0) {
		high, low := surrogate(a.half[:]), surrogate(piece)
		utf8.EncodeRune(h.tag[:], 0x10000+(high-0xD800)<<10+(low-0xDC00))
		a.halves = 0
		h.bytes(h.tag[:4], false)
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
	h.bytes(piece, false)
}

// settle hashes a surrogate that waited in vain.
func (h *Hasher) settle() {
	if n := h.answer.halves; n > 0 {
		h.answer.halves = 0
		h.bytes(h.answer.half[:n], false)
	}
}

// isSurrogate says whether b starts with a surrogate in WTF-8: high ones have a second byte from 0xA0, low ones from 0xB0.
func isSurrogate(b []byte, from byte) bool {
	return len(b) >= 3 && b[0] == 0xED && b[1]&0xF0 == from
}

func surrogate(b []byte) rune {
	return 0xD000 | rune(b[1]&0x3F)<<6 | rune(b[2]&0x3F)
}
