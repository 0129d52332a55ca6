package replay

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/tidwall/gjson"
)

// stream is what one event stream told. Events are read as little as the figures need: a search for the answer's members in
// each, JSON only for usage and errors (and for the text itself when the session wants it).
type stream struct {
	first, last time.Time // events with a piece of the answer; zero without any
	pieces      int       // such events
	usage       usage
	done        bool   // the stream said [DONE]
	failure     string // message of an error event, "" without one
	failed      bool
	text        []byte // the answer, when it was asked for
}

type usage struct {
	known       bool
	prompt      int
	output      int
	cachedKnown bool
	cached      int
}

const (
	maxEventBytes  = 4 << 20
	maxAnswerBytes = 4 << 20
	maxCount       = 1 << 40 // of tokens in one usage report; more is nonsense
)

var errLongEvent = errors.New("event is longer than 4 MiB")

// read reads events until the stream's end. A nil error means that the body ended properly; done says whether the stream did.
func (s *stream) read(in *bufio.Reader, wantText bool) error {
	var long []byte
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			if len(long)+len(line) > maxEventBytes {
				return errLongEvent
			}
			long = append(long, line...)
			continue
		}
		if len(long) > 0 {
			long = append(long, line...)
			line, long = long, nil
		}
		if data, ok := eventData(line); ok {
			s.event(data, wantText)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// eventData returns a data line's value.
func eventData(line []byte) ([]byte, bool) {
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		return nil, false
	}
	data = bytes.TrimSpace(data)
	return data, len(data) > 0
}

func (s *stream) event(data []byte, wantText bool) {
	if data[0] != '{' {
		s.done = s.done || bytes.Equal(data, []byte("[DONE]"))
		return
	}
	if hasAnswer(data) {
		now := time.Now()
		if s.pieces == 0 {
			s.first = now
		}
		s.last = now
		s.pieces++
		if wantText && len(s.text) < maxAnswerBytes {
			s.text = append(s.text, answerText(data)...)
		}
	}
	if next, _ := memberValue(data, `"usage"`); next == '{' {
		s.usage.parse(data)
	}
	if next, _ := memberValue(data, `"error"`); next == '{' || next == '"' {
		s.fail(data)
	}
}

// hasAnswer says whether the event carries a piece of an answer that is not empty: text, reasoning or a tool call.
func hasAnswer(data []byte) bool {
	for _, name := range [...]string{`"content"`, `"text"`, `"reasoning_content"`, `"reasoning"`} {
		if first, second := memberValue(data, name); first == '"' && second != '"' {
			return true
		}
	}
	first, second := memberValue(data, `"tool_calls"`)
	return first == '[' && second != ']'
}

// memberValue finds the first member of the quoted name in JSON and returns its value's first byte and the byte after that, 0 when
// there is none. A name inside a string can't match: there its closing quote is escaped.
func memberValue(data []byte, name string) (first, second byte) {
	for {
		i := bytes.Index(data, []byte(name))
		if i < 0 {
			return 0, 0
		}
		data = skipSpace(data[i+len(name):])
		if len(data) == 0 || data[0] != ':' {
			continue // a value of that text
		}
		data = skipSpace(data[1:])
		switch len(data) {
		case 0:
			return 0, 0
		case 1:
			return data[0], 0
		}
		return data[0], data[1]
	}
}

func skipSpace(data []byte) []byte {
	for len(data) > 0 && (data[0] == ' ' || data[0] == '\t') {
		data = data[1:]
	}
	return data
}

func answerText(data []byte) string {
	choice := gjson.GetBytes(data, "choices.0")
	if text := choice.Get("delta.content"); text.Exists() {
		return text.String()
	}
	return choice.Get("text").String()
}

// parse takes the usage of an event; the last one counts, since engines that report continuously report totals.
func (u *usage) parse(data []byte) {
	v := gjson.GetBytes(data, "usage")
	prompt := v.Get("prompt_tokens")
	if !v.IsObject() || prompt.Type != gjson.Number {
		return
	}
	*u = usage{known: true, prompt: count(prompt), output: count(v.Get("completion_tokens"))}
	if cached := v.Get("prompt_tokens_details.cached_tokens"); cached.Type == gjson.Number {
		u.cachedKnown, u.cached = true, count(cached)
	}
}

func count(v gjson.Result) int {
	return int(min(max(v.Int(), 0), maxCount))
}

func (s *stream) fail(data []byte) {
	v := gjson.GetBytes(data, "error")
	if !v.IsObject() && v.Type != gjson.String {
		return // a member of that name further inside
	}
	s.failed = true
	s.failure = errorMessage(data)
}

// errorMessage is the message of an error body or event in any of the shapes engines use, "" without one.
func errorMessage(data []byte) string {
	for _, path := range [...]string{"error.message", "message", "error"} {
		if v := gjson.GetBytes(data, path); v.Type == gjson.String && v.Str != "" {
			return v.Str
		}
	}
	return ""
}
