package messages

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
)

func BenchmarkRequest(b *testing.B) {
	f := func(name, message string, n int) {
		body := []byte(`{"model":"m","max_tokens":9,"stream":true,"messages":[` + strings.Repeat(message+",", n-1) + message + `]}`)
		dst := make([]byte, 0, 2*len(body))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Request(dst, body, Options{Engine: state.EngineVLLM}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	f("image of 4 MiB", `{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"`+strings.Repeat("AbC/", 1<<20)+`"}},{"type":"text","text":"?"}]}`, 1)
	text := strings.Repeat("It was a dark night.\\n", 100)
	f("400 turns of 2 KiB", `{"role":"user","content":[{"type":"text","text":"`+text+`"}]}`, 400)
	f("tool input of 2 KiB, 400 times", `{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{"text":"`+text+`"}}]}`, 400)
	f("20000 tiny messages", `{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"x"}]}`, 20000)
}

func BenchmarkResponse(b *testing.B) {
	body := fmt.Appendf(nil, `{"id":"i","choices":[{"index":0,"message":{"content":"%s","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"a\":\"%[1]s\"}"}}]},"finish_reason":"tool_calls"}],%s}`, strings.Repeat("word ", 2000), used)
	dst := make([]byte, 0, 2*len(body))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Response(dst, body, Asked{Model: "m"}, api.Inclusive); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStream(b *testing.B) {
	dst := make([]byte, 0, 4096)
	f := func(name, chunk string, before ...string) {
		b.Run(name, func(b *testing.B) {
			s := NewStream(Asked{Model: "m"}, api.Inclusive)
			feed(s, before...)
			chunk := []byte(chunk)
			b.ReportAllocs()
			for b.Loop() {
				s.Event(dst, chunk)
			}
		})
	}
	f("a word", delta(`"content":" word"`), delta(`"role":"assistant"`))
	f("a piece of arguments", calls(0, arguments(`\"a\":1,`)), calls(0, call0), calls(0, arguments(`{`)))
}
