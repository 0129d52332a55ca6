package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/proxy/sse"
)

// answerLog is a sink that writes down what it gets. Pieces of text are joined.
type answerLog struct {
	said   []string
	broken bool
}

func (l *answerLog) add(kind string, piece []byte) {
	if n := len(l.said) - 1; n >= 0 && strings.HasPrefix(l.said[n], kind) && kind != "call " {
		l.said[n] += string(piece)
		return
	}
	l.said = append(l.said, kind+string(piece))
}
func (l *answerLog) AnswerText(p []byte)      { l.add("text ", p) }
func (l *answerLog) AnswerCall(p []byte)      { l.add("call ", p) }
func (l *answerLog) AnswerArguments(p []byte) { l.add("arguments ", p) }
func (l *answerLog) BreakAnswer()             { l.broken = true }

// followed is what is known of a stream at its end, with events compared or each read.
func followed(t *testing.T, in string, each, drop bool) string {
	t.Helper()
	var f sse.Framer
	var d api.Deltas
	var log answerLog
	opts := sse.Options{DropUsage: drop}
	if each {
		opts.OnData = func(p []byte) { d.Read(p, &log) }
	} else {
		opts.OnChunk = func(p []byte) (from, to int) { return d.Read(p, &log) }
		opts.OnText = func(inner []byte, escaped bool) { d.Text(inner, escaped, &log) }
	}
	f.Reset(opts)
	out, err := f.Feed([]byte(in))
	s := fmt.Sprintf("%s %v", out, err) + string(f.End())
	if log.broken {
		log.said = nil // what comes before or behind makes no difference
	}
	return s + fmt.Sprintf("%q %v events %d comments %d done %v usage %s error %s first %v timings %s finish %s", log.said, log.broken,
		f.Events(), f.Comments(), f.Done(), f.Usage(), f.Error(), f.FirstIsError(), f.Timings(), f.Finish())
}

// FuzzEventsCompared holds that a stream whose events are compared with each other says
// the same as one whose events are read one by one.
func FuzzEventsCompared(f *testing.F) {
	const chat = `data: {"id":"c","choices":[{"index":0,"delta":{"content":"%"},"finish_reason":null}]}`
	for _, seed := range []string{
		chat, strings.Replace(chat, `"delta"`, `"text":"b","delta"`, 1), strings.Replace(chat, `{"content"`, `{"refusal":"no","content"`, 1),
		strings.Replace(chat, `{"content"`, `{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{"}}],"content"`, 1),
		strings.Replace(chat, `"index":0`, `"index":1`, 1), strings.Replace(chat, `}]}`, `}],"usage":null}`, 1),
		strings.Replace(chat, `}]}`, `},{"index":0,"delta":{"content":"z"}}]}`, 1), strings.Replace(chat, `"content"`, `"content":"w","content"`, 1),
		strings.Replace(chat, `"delta":{"content"`, `"text"`, 1), strings.Replace(chat, `"id":"c"`, `"choices":[]`, 1),
		`data: {"choices":[{"text":"%"}]}`, `data: {"choices":[{"text":"%","finish_reason":"stop"}]}`, `data: "%"`, "event: x\n" + chat,
	} {
		for _, text := range []string{"b", `\"`, `b"}`, `\`, "b\n", "", "usage", `x","usage":{"a":1},"y":"`, `\ud83d`} {
			f.Add(seed, text, "c", false)
			f.Add(seed, text, `\u00e9`, true)
		}
	}
	f.Fuzz(func(t *testing.T, event, one, two string, drop bool) {
		in := ""
		for _, text := range []string{"a", one, two, one, "[DONE]"} {
			in += strings.ReplaceAll(event, "%", text) + "\n\n"
		}
		if got, want := followed(t, in, false, drop), followed(t, in, true, drop); got != want {
			t.Errorf("%s\ncompared: %s\nread:     %s", in, got, want)
		}
	})
}
