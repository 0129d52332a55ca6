package api

import "github.com/hearsay-llm/hearsay/state/prefix/scan"

// BlockSink takes the blocks of an answer of Anthropic's Messages, or the items of one of Responses; *prefix.Hasher is
// one.
type BlockSink interface {
	AnswerSink
	// AnswerPart ends the block of text that is open.
	AnswerPart()
	// AnswerItem takes a block as it stands in the answer, raw JSON.
	AnswerItem(raw []byte)
}

// blocks reads the content of a whole answer of Messages, or the output of one of Responses.
func (r *Response) blocks(c *scan.Cursor, doc []byte, sink AnswerSink) {
	if !c.EnterArray() {
		c.Skip()
		return
	}
	r.Choices = 1
	to, ok := sink.(BlockSink)
	for c.NextElem() {
		v := c.Skip()
		if r.Text += v.End - v.Start; ok {
			to.AnswerItem(v.Raw(doc))
		}
	}
	if !ok && sink != nil {
		sink.BreakAnswer()
	}
}

// ReadEvent reads the JSON of one event of a Messages stream, as Read does that of a chunk. Blocks of thinking are passed
// over: the next turn's prompt is hashed without them.
func (d *Deltas) ReadEvent(event []byte, sink AnswerSink) {
	to, ok := sink.(BlockSink)
	c := scan.New(event)
	if !ok || !c.EnterObject() {
		sink.BreakAnswer()
		return
	}
	var b block
	var kind, block, delta scan.Value
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		switch string(key.Text(event, scratch[:0])) {
		case "type":
			kind = v
		case "content_block":
			block = v
		case "delta":
			delta = v
		}
	}
	if c.End() != nil {
		sink.BreakAnswer()
		return
	}
	switch string(kind.Text(event, scratch[:0])) {
	case "content_block_start":
		raw := block.Raw(event)
		b.read(raw)
		d.begin(raw, &b, to)
	case "content_block_delta":
		raw := delta.Raw(event)
		b.read(raw)
		d.goOn(raw, &b, to)
	}
}

// block is what a block's start or a delta of it holds.
type block struct{ kind, text, name, input scan.Value }

func (b *block) read(raw []byte) {
	c := scan.New(raw)
	if !c.EnterObject() {
		return
	}
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		switch string(key.Text(raw, scratch[:0])) {
		case "type":
			b.kind = v
		case "text":
			b.text = v
		case "name":
			b.name = v
		case "partial_json":
			b.input = v
		}
	}
}

func (d *Deltas) begin(raw []byte, b *block, sink BlockSink) {
	var scratch [32]byte
	switch string(b.kind.Text(raw, scratch[:0])) {
	case "text":
		sink.AnswerPart()
		d.text(raw, b.text, sink, false)
	case "tool_use":
		sink.AnswerCall(b.name.Text(raw, d.buf[:0]))
	case "thinking", "redacted_thinking":
	default:
		sink.BreakAnswer()
	}
}

func (d *Deltas) goOn(raw []byte, b *block, sink BlockSink) {
	var scratch [32]byte
	switch string(b.kind.Text(raw, scratch[:0])) {
	case "text_delta":
		d.text(raw, b.text, sink, false)
	case "input_json_delta":
		d.text(raw, b.input, sink, true)
	case "thinking_delta", "signature_delta":
	default:
		sink.BreakAnswer()
	}
}
