package messages

import (
	"bytes"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// unsigned is the signature of thinking.
const unsigned = `"signature":"unsigned"`

// Response appends the message that a chat completion's body holds. What is no answer, or one that broke off, is
// returned as *api.Error; dst is then returned as it was. family is how the engine writes usage.
func Response(dst, body []byte, asked Asked, family api.Family) ([]byte, error) {
	doc := bytes.TrimPrefix(body, []byte("\xEF\xBB\xBF"))
	var a answer
	if !a.read(doc) {
		return dst, unusable()
	}
	if a.failure {
		return dst, Error(0, doc)
	}
	c := scan.Reread(a.choices)
	if !c.EnterArray() || !c.NextElem() {
		return dst, unusable()
	}
	var first choice
	if !first.read(c.Skip().Raw(a.choices)) {
		return dst, unusable()
	}
	end := outcome{finish: first.finish, stop: first.stop, refused: len(inner(first.refusal)) > 0}
	if end.broken() {
		return dst, unusable()
	}
	usage, _ := a.count(family)
	id := appendID(nil, a.id, &asked)

	out := append(append(dst, `{"id":`...), id...)
	out = append(out, `,"type":"message","role":"assistant","model":`...)
	out = scan.AppendQuoted(out, asked.Model)
	out = append(out, `,"content":[`...)
	out, calls, err := appendContent(out, &first, id, asked.Thinking)
	if err != nil {
		return dst, err
	}
	end.calls = calls
	out = append(out, `],`...)
	out = end.append(out, &asked)
	out = append(out, `,"usage":`...)
	return append(appendUsage(out, usage), '}'), nil
}

// appendContent appends the blocks of an answer with the commas between them. id is the message's.
func appendContent(dst []byte, ch *choice, id []byte, thinking bool) (out []byte, calls bool, err error) {
	some := false
	open := func(kind string) {
		if some {
			dst = append(dst, ',')
		}
		some = true
		dst = append(append(append(dst, `{"type":"`...), kind...), '"')
	}
	if thinking && len(inner(ch.reasoning)) > 0 {
		open("thinking")
		dst = append(append(dst, `,"thinking":`...), ch.reasoning...)
		dst = append(dst, `,`+unsigned+`}`...)
	}
	for _, said := range [...][]byte{ch.content, ch.refusal} {
		if len(inner(said)) > 0 {
			open("text")
			dst = append(append(append(dst, `,"text":`...), said...), '}')
		}
	}
	err = elements(ch.call, func(i int, raw []byte) error {
		var k call
		if !k.read(raw) || len(inner(k.name)) == 0 {
			return unusable()
		}
		calls = true
		open("tool_use")
		dst = appendCallID(append(dst, `,"id":`...), k.id, id, i)
		dst = append(append(dst, `,"name":`...), k.name...)
		dst = appendInput(append(dst, `,"input":`...), k.arguments)
		dst = append(dst, '}')
		return nil
	})
	return dst, calls, err
}

// appendInput appends a call's arguments as an object. Engines also write an object where a string belongs.
func appendInput(dst, arguments []byte) []byte {
	if isObject(arguments) {
		return append(dst, arguments...)
	}
	start := len(dst)
	dst = scan.AppendDecoded(dst, inner(arguments))
	c := scan.New(dst[start:])
	switch v := c.Skip(); {
	case c.End() == nil && v.Kind == scan.Object:
		return dst
	case v.Kind == scan.Null && c.End() == nil, len(bytes.TrimSpace(dst[start:])) == 0:
		return append(dst[:start], "{}"...)
	}
	written := string(dst[start:])
	dst = append(dst[:start], `{"INVALID_JSON":`...)
	return append(scan.AppendQuoted(dst, written), '}')
}
