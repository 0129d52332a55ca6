package scan

import (
	"strings"
	"testing"
	"time"
)

// BenchmarkStrings reads and decodes a string of 130 kB.
func BenchmarkStrings(b *testing.B) {
	words := "some plain words of a prompt without much in it, "
	for _, c := range []struct{ name, piece string }{
		{"plain", words},
		{"prose", words[:24] + `\"q\" ` + words + words[3:] + `.\n`},
		{"code", `func main() {\n\tfmt.Println(\"x\")\n}\n`},
		{"wide", "这是一个提示的文字，"},
		{"mixed", "Ça va très bien, c'est où déjà? "},
		{"ascii", `\u8fd9\u662f\u4e00\u4e2a`},
	} {
		doc := []byte(`"` + strings.Repeat(c.piece, 130_000/len(c.piece)) + `"`)
		run := func(name string, f func()) {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				best := time.Hour
				for b.Loop() {
					began := time.Now()
					f()
					best = min(best, time.Since(began))
				}
				b.ReportMetric(float64(len(doc))/1e6/best.Seconds(), "best-MB/s")
			})
		}
		run("check", func() { c := New(doc); c.Skip() })
		run("reread", func() { c := Reread(doc); c.Skip() })
		var buf [2048]byte
		run("decode", func() {
			for raw := doc[1 : len(doc)-1]; len(raw) > 0; {
				_, used := Decode(buf[:], raw)
				raw = raw[used:]
			}
		})
	}
}
