package enginesim

import (
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
)

// messageForm writes one answer of the Messages API, as a body or as stream events.
// An answer is a thinking block, if asked for, and a text block or a tool_use block;
// a block without content is left out, but for a call.
type messageForm struct {
	engine    Kind
	hide      bool   // nothing about the cache in usage
	head      []byte // `"id":..,"type":"message","role":"assistant","model":..`
	tool      []byte // JSON: the tool that is called; nil: none
	toolID    []byte // JSON
	signature string // of the thinking block
	marked    int    // whole blocks of the prompt that cache_control asks to cache, tokens

	next    int // index of the next block of a stream
	open    blockKind
	written int // bytes of the text block so far
}

type blockKind uint8

const (
	blockNone blockKind = iota
	blockThinking
	blockText
	blockTool
)

func newMessageForm(cfg Config, rec *RequestRecord, req *request) *messageForm {
	m := &messageForm{engine: cfg.Kind, hide: cfg.HideCachedTokens, marked: req.marked / cfg.BlockTokens * cfg.BlockTokens}
	m.head = append(append([]byte(`"id":`), jsonString(rec.ID)...), `,"type":"message","role":"assistant","model":`...)
	m.head = append(m.head, jsonString(rec.Model)...)
	_, suffix, _ := strings.Cut(rec.ID, "msg_")
	switch {
	case req.tool == "":
	case cfg.Kind == VLLM:
		m.tool, m.toolID = jsonString(req.tool), jsonString("chatcmpl-tool-"+rec.ID+"-0")
	case cfg.Kind == SGLang:
		m.tool, m.toolID = jsonString(req.tool), jsonString("call_"+suffix)
	default:
		m.tool, m.toolID = jsonString(req.tool), jsonString("toolu_"+suffix)
	}
	var sum [32]byte
	for i := range 4 {
		binary.BigEndian.PutUint64(sum[8*i:], mix(uint64(rec.Seq)+uint64(i)<<32))
	}
	m.signature = base64.StdEncoding.EncodeToString(sum[:])
	return m
}

// after is the kind of the block that follows the thoughts.
func (m *messageForm) after() blockKind {
	if m.tool != nil {
		return blockTool
	}
	return blockText
}

// event begins an event: name and type.
func (m *messageForm) event(dst []byte, name string) []byte {
	dst = append(append(dst, "event: "...), name...)
	return append(append(append(dst, "\ndata: {\"type\":\""...), name...), '"')
}

const eventEnd = "}\n\n"

// start appends the event that opens the message.
func (m *messageForm) start(dst []byte, u usage) []byte {
	dst = append(append(m.event(dst, "message_start"), `,"message":{`...), m.head...)
	dst = append(dst, `,"content":[],"stop_reason":null,"stop_sequence":null,`...)
	u.output = 0
	if m.engine == Anthropic {
		u.output = 1
		dst = append(dst, `"stop_details":null,`...)
	}
	dst = m.usage(append(dst, `"usage":`...), u, true)
	return append(dst, "}"+eventEnd...)
}

// ping appends the event that says nothing.
func (m *messageForm) ping(dst []byte) []byte { return append(m.event(dst, "ping"), eventEnd...) }

// blockStart appends the event that opens a block.
func (m *messageForm) blockStart(dst []byte, kind blockKind) []byte {
	dst = append(m.indexed(dst, "content_block_start"), `,"content_block":`...)
	m.open = kind
	switch kind {
	case blockThinking:
		dst = append(dst, `{"type":"thinking","thinking":"","signature":""}`...)
	case blockTool:
		dst = append(m.toolHead(dst), `,"input":{}}`...)
	default:
		dst = append(dst, `{"type":"text","text":""}`...)
	}
	return append(dst, eventEnd...)
}

func (m *messageForm) indexed(dst []byte, name string) []byte {
	return strconv.AppendInt(append(m.event(dst, name), `,"index":`...), int64(m.next), 10)
}

func (m *messageForm) toolHead(dst []byte) []byte {
	dst = append(append(dst, `{"type":"tool_use","id":`...), m.toolID...)
	return append(append(dst, `,"name":`...), m.tool...)
}

// delta appends the event that adds text, which needs no escapes or has them, to the
// open block.
func (m *messageForm) delta(dst, text []byte) []byte {
	dst = append(m.indexed(dst, "content_block_delta"), `,"delta":{"type":"`...)
	switch m.open {
	case blockThinking:
		dst = append(dst, `thinking_delta","thinking":"`...)
	case blockTool:
		dst = append(dst, `input_json_delta","partial_json":"`...)
	default:
		dst = append(dst, `text_delta","text":"`...)
	}
	return append(append(dst, text...), `"}`+eventEnd...)
}

// sign appends the event that signs the thoughts.
func (m *messageForm) sign(dst []byte) []byte {
	dst = append(m.indexed(dst, "content_block_delta"), `,"delta":{"type":"signature_delta","signature":"`...)
	return append(append(dst, m.signature...), `"}`+eventEnd...)
}

// blockStop appends the event that closes the open block.
func (m *messageForm) blockStop(dst []byte) []byte {
	dst = append(m.indexed(dst, "content_block_stop"), eventEnd...)
	m.next++
	m.open = blockNone
	return dst
}

// ending appends the event that says why the message ends and what it used. SGLang
// tells the input in message_start alone.
func (m *messageForm) ending(dst []byte, g *generator, u usage) []byte {
	dst = append(m.event(dst, "message_delta"), `,"delta":{`...)
	dst = append(m.reason(dst, g), `},"usage":`...)
	if m.engine == SGLang {
		dst = append(strconv.AppendInt(append(dst, `{"output_tokens":`...), int64(u.output), 10), '}')
	} else {
		dst = m.usage(dst, u, false)
	}
	return append(dst, eventEnd...)
}

func (m *messageForm) stop(dst []byte) []byte {
	return append(m.event(dst, "message_stop"), eventEnd...)
}

// reason appends stop_reason and stop_sequence.
func (m *messageForm) reason(dst []byte, g *generator) []byte {
	reason := "max_tokens"
	switch {
	case m.tool != nil:
		reason = "tool_use"
	case g.stop != "":
		reason = "stop_sequence"
	case g.eos:
		reason = "end_turn"
	}
	dst = append(append(append(dst, `"stop_reason":"`...), reason...), `","stop_sequence":`...)
	if g.stop == "" || m.tool != nil {
		return append(dst, `null`...)
	}
	return append(dst, jsonString(g.stop)...)
}

// usage appends a usage object. Input is what was neither read from the cache nor
// written to it. Engines write the cache without being asked, at no cost, and count
// that as input; where they don't tell what they read, it is input too.
func (m *messageForm) usage(dst []byte, u usage, start bool) []byte {
	created := 0
	if m.engine == Anthropic {
		created = max(0, min(m.marked, u.prompt)-u.cached)
	}
	input := u.prompt - u.cached - created
	if m.hide && m.engine != Anthropic {
		input = u.prompt
	}
	number := func(name string, n int) {
		dst = strconv.AppendInt(append(append(append(dst, '"'), name...), `":`...), int64(n), 10)
	}
	dst = append(dst, '{')
	number("input_tokens", input)
	switch {
	case m.engine == Anthropic, m.engine == VLLM && !m.hide:
		dst = append(dst, ',')
		number("cache_creation_input_tokens", created)
		dst = append(dst, ',')
		number("cache_read_input_tokens", u.cached)
	case m.engine == SGLang && !m.hide && u.cached > 0: // SGLang leaves zero out
		dst = append(dst, ',')
		number("cache_read_input_tokens", u.cached)
	}
	if m.engine == Anthropic && start {
		dst = append(dst, `,"cache_creation":{`...)
		number("ephemeral_5m_input_tokens", created)
		dst = append(dst, `,"ephemeral_1h_input_tokens":0}`...)
	}
	dst = append(dst, ',')
	number("output_tokens", u.output)
	if m.engine == Anthropic && start {
		dst = append(dst, `,"service_tier":"standard","inference_geo":"not_available"`...)
	}
	return append(dst, '}')
}

// whole appends a whole answer, but for its closing brace.
func (m *messageForm) whole(dst []byte, g *generator, tokens int, u usage) []byte {
	dst = append(append(append(dst, '{'), m.head...), `,"content":[`...)
	first := len(dst)
	separate := func() {
		if len(dst) > first {
			dst = append(dst, ',')
		}
	}
	if n := min(g.thinking, tokens); n > 0 {
		dst = append(dst, `{"type":"thinking","thinking":"`...)
		dst = g.appendBlock(dst, 0, n)
		dst = append(append(append(dst, `","signature":"`...), m.signature...), `"}`...)
	}
	text := g.visible(g.appendBlock(nil, g.thinking, tokens), 0)
	switch {
	case m.tool != nil:
		separate()
		dst = append(m.toolHead(dst), `,"input":{"text":"`...)
		dst = append(append(dst, text...), `"}}`...)
	case len(text) > 0:
		separate()
		dst = append(append(append(dst, `{"type":"text","text":"`...), text...), `"}`...)
	}
	dst = append(m.reason(append(dst, `],`...), g), ',')
	if m.engine == Anthropic {
		dst = append(dst, `"stop_details":null,`...)
	}
	return m.usage(append(dst, `"usage":`...), u, true)
}
