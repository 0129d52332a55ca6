package prefix

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// BenchmarkMarks hashes 130 kB of several kinds of prompts.
func BenchmarkMarks(b *testing.B) {
	words := "some plain words of a prompt without much in it, "
	chats := func(piece string) Input {
		message := `{"role":"user","content":"` + strings.Repeat(piece, 6500/len(piece)) + `\n"}`
		return chat("[" + strings.Repeat(message+",", 19) + message + "]")
	}
	var ids strings.Builder
	for id := 1; ids.Len() < 130_000; id = id * 7 % 128_201 {
		fmt.Fprintf(&ids, "%d, ", id)
	}
	for _, c := range []struct {
		name string
		in   Input
	}{
		{"plain", chats(words)},
		{"prose", chats(words[:24] + `\"q\" ` + words + words[3:] + `.\n`)},
		{"code", chats(`func main() {\n\tfmt.Println(\"x\")\n}\n`)},
		{"wide", chats("这是一个提示的文字，")},
		{"mixed", chats("Ça va très bien, c'est où déjà? ")},
		{"ascii", chats(`\u8fd9\u662f\u4e00\u4e2a`)},
		{"parts", chat(`[{"role":"user","content":[` + strings.Repeat(`{"type":"text","text":"`+strings.Repeat(words, 13)+`"},`, 200) + `{}]}]`)},
		{"tools", Input{Kind: Chat, Tools: []byte("[" + strings.Repeat(`{"type":"function","function":{"name":"get_weather","description":"Says what the weather is \"there\".","parameters":{"type":"object","properties":{"place":{"type":"string"}}}}},`, 700) + "{}]")}},
		{"ids", Input{Kind: Completion, Prompt: []byte("[" + strings.TrimSuffix(ids.String(), ", ") + "]")}},
	} {
		b.Run(c.name, func(b *testing.B) { hash(b, c.in) })
		c.in.Checked = true
		b.Run(c.name+"_checked", func(b *testing.B) { hash(b, c.in) })
	}
}

func hash(b *testing.B, in Input) {
	var h Hasher
	var dst []Mark
	b.SetBytes(int64(len(in.Messages) + len(in.Tools) + len(in.Prompt)))
	b.ReportAllocs()
	best := time.Hour
	for b.Loop() {
		began := time.Now()
		dst, _ = h.Marks(dst[:0], Seed{Model: "m"}, in)
		best = min(best, time.Since(began))
	}
	size := len(in.Messages) + len(in.Tools) + len(in.Prompt)
	b.ReportMetric(float64(size)/1e6/best.Seconds(), "best-MB/s") // on a machine that does something else meanwhile
	b.ReportMetric(float64(len(dst)), "marks")
}
