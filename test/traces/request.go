package traces

import (
	"encoding/json"
	"strconv"
	"time"
)

// Request is one call to a model: when it is due and what its prompt is made of.
type Request struct {
	At           time.Duration // due time since the trace's start
	InputTokens  int           // prompt tokens, by the trace; an engine's chat template adds a few
	OutputTokens int           // answer tokens to ask for; 0 means none were recorded
	Session      uint64        // conversation the request belongs to; 0 means none
	Turn         int           // 0-based place in its session
	Messages     []Message     // prompt in order; at least one
	Tools        []Part        // each is rendered as one tool definition (chat only)
	Text         Text          // how the parts are rendered
	// Conversation is set when the session's later turns carry the answers really given: see there. Otherwise nil.
	Conversation *Conversation
	Seen         *Seen // of a request that really came; otherwise nil
}

// Message is one chat message.
type Message struct {
	Role  string // "system", "user" or "assistant"
	Parts []Part // rendered one after the other
	// Answer is set on an assistant message of a Conversation: the number of the turn whose real answer stands here, counted
	// from 1; 0 means Parts is the content. Parts then holds the stand-in.
	Answer int
}

// Part is a run of text named by its id: equal ids mean equal text (see Text).
type Part struct {
	ID     uint64
	Tokens int
}

// AppendMessages appends the prompt as the JSON array that a chat completion's "messages" takes. It locks the conversation for
// a moment when there is one, and may be called from any goroutine.
func (r *Request) AppendMessages(dst []byte) []byte {
	dst = append(dst, '[')
	for i, m := range r.Messages {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"role":"`...)
		dst = append(dst, m.Role...)
		dst = append(dst, `","content":`...)
		if answer, ok := r.Conversation.answer(m.Answer); ok {
			dst = appendJSONString(dst, answer)
		} else {
			dst = append(dst, '"')
			dst = r.appendParts(dst, m.Parts)
			dst = append(dst, '"')
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// AppendPrompt appends the prompt as the JSON string that a completion's "prompt" takes: the messages' texts in order, roles
// and tools left out.
func (r *Request) AppendPrompt(dst []byte) []byte {
	dst = append(dst, '"')
	for _, m := range r.Messages {
		if answer, ok := r.Conversation.answer(m.Answer); ok {
			quoted := appendJSONString(nil, answer)
			dst = append(dst, quoted[1:len(quoted)-1]...)
			continue
		}
		dst = r.appendParts(dst, m.Parts)
	}
	return append(dst, '"')
}

// AppendTools appends the tools as the JSON array that a chat completion's "tools" takes; an empty array without tools.
func (r *Request) AppendTools(dst []byte) []byte {
	dst = append(dst, '[')
	for i, p := range r.Tools {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"type":"function","function":{"name":"tool_`...)
		dst = strconv.AppendUint(dst, p.ID, 36)
		dst = append(dst, `","description":"`...)
		dst = r.Text.Append(dst, p.ID, max(p.Tokens-toolShellTokens, 1))
		dst = append(dst, `","parameters":{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer"}},"required":["query"]}}}`...)
	}
	return append(dst, ']')
}

// toolShellTokens is about what a tool's definition costs beside its description (some 190 bytes of JSON, dense in punctuation).
const toolShellTokens = 60

// SizeBytes is an upper bound of what AppendMessages or AppendPrompt, and AppendTools, append, when every answer is a stand-in.
func (r *Request) SizeBytes() int {
	n := 2
	for _, m := range r.Messages {
		n += len(`{"role":"","content":""},`) + len(m.Role)
		for _, p := range m.Parts {
			n += r.Text.Bytes(p.Tokens)
		}
	}
	for _, p := range r.Tools {
		n += 256 + r.Text.Bytes(p.Tokens)
	}
	return n
}

func (r *Request) appendParts(dst []byte, parts []Part) []byte {
	for _, p := range parts {
		dst = r.Text.Append(dst, p.ID, p.Tokens)
	}
	return dst
}

func appendJSONString(dst []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil { // a string always marshals
		return append(dst, `""`...)
	}
	return append(dst, quoted...)
}
