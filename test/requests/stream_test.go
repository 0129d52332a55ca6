package requests

import (
	"fmt"
	"strings"
	"testing"
)

func delta(index int, d string, finish string) string {
	return fmt.Sprintf(`data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":%d,"delta":%s,"finish_reason":%s}]}`, index, d, finish) + "\n\n"
}

func TestB02StreamingToolCalls(t *testing.T) {
	list := []string{
		delta(0, `{"role":"assistant","content":null}`, "null"),
		delta(0, `{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"get","arguments":""}}]}`, "null"),
	}
	for _, part := range []string{`{\"`, `a`, `\":`, ` \"`, `\u00e9`, `\"`, `}`} {
		list = append(list, delta(0, `{"content":null,"tool_calls":[{"index":0,"function":{"arguments":"`+part+`"}}]}`, "null"))
	}
	list = append(list,
		delta(0, `{"tool_calls":[{"index":1,"id":"call_2","type":"function","function":{"name":"set","arguments":"{}"}}]}`, "null"),
		delta(0, `{}`, `"tool_calls"`))
	g := start(t, []func(*call) bool{func(c *call) bool {
		all := append([]string(nil), list...)
		if strings.Contains(string(c.body), `"include_usage":true`) {
			all = append(all, usageChunk)
		}
		return c.write(events(append(all, done)...))
	}})
	if r := g.chat(askStream); r.err != nil || r.body != strings.Join(list, "")+done {
		t.Errorf("got %q, %v", r.body, r.err)
	}
	r := g.chat(strings.Replace(askStream, `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1))
	if r.err != nil || r.body != strings.Join(list, "")+usageChunk+done {
		t.Errorf("with usage: got %q, %v", r.body, r.err)
	}
	if n := g.metric("hearsay_tokens_total", `type="output"`); n != 6 {
		t.Errorf("%v output tokens of 6", n)
	}
}

func TestB05SeveralChoices(t *testing.T) {
	const whole = `{"choices":[{"index":2,"text":"c"},{"index":0,"text":"a"},{"index":1,"text":"b"}],"usage":{"prompt_tokens":9,"completion_tokens":33,"total_tokens":42}}`
	list := []string{}
	for _, i := range []int{0, 2, 1, 1, 0, 2} {
		list = append(list, delta(i, `{"content":"w"}`, "null"))
	}
	for _, i := range []int{1, 2, 0} { // one choice ends before another
		list = append(list, delta(i, `{}`, `"stop"`))
		if i == 1 {
			list = append(list, delta(0, `{"content":"late"}`, "null"))
		}
	}
	usage := strings.Replace(usageChunk, `"completion_tokens":3`, `"completion_tokens":33`, 1)
	g := start(t, []func(*call) bool{func(c *call) bool {
		if strings.Contains(string(c.body), `"stream":true`) {
			return c.write(events(append(append([]string(nil), list...), usage, done)...))
		}
		return c.write(jsonAnswer(200, whole))
	}})
	if r := g.chat(`{"model":"llama","n":3,"stream":true,"messages":[]}`); r.err != nil || r.body != strings.Join(list, "")+done || strings.Count(r.body, done) != 1 {
		t.Errorf("stream: %q, %v", r.body, r.err)
	}
	if r := g.passes(chatPath, `{"model":"llama","n":3,"messages":[]}`); r.body != whole {
		t.Errorf("whole: %q", r.body)
	}
	if r := g.passes(promptPath, `{"model":"llama","n":3,"best_of":5,"prompt":"x"}`); r.body != whole {
		t.Errorf("best_of: %q", r.body)
	}
	if n := g.metric("hearsay_tokens_total", `type="output"`); n != 99 {
		t.Errorf("%v output tokens of 99", n)
	}
}
