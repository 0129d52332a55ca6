package scan

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// best runs f and reports the best rate at which it reads size bytes: on a machine that does something else meanwhile.
func best(b *testing.B, name string, size int, f func()) {
	b.Run(name, func(b *testing.B) {
		best := time.Hour
		for b.Loop() {
			began := time.Now()
			f()
			best = min(best, time.Since(began))
		}
		b.ReportMetric(float64(size)/1e6/best.Seconds(), "best-MB/s")
	})
}

// BenchmarkInts reads 130 kB of token ids.
func BenchmarkInts(b *testing.B) {
	var ids []byte
	for id := 1; len(ids) < 130_000; id = id * 7 % 128_201 {
		ids = fmt.Appendf(ids, "%d, ", id)
	}
	doc := []byte("[" + string(ids) + "0]")
	var buf [2048]byte
	best(b, "ids", len(doc), func() {
		c := New(doc)
		c.EnterArray()
		for c.NextElem() {
			c.Ints(buf[:])
		}
	})
}

// BenchmarkStrings reads and decodes a string of 130 kB.
func BenchmarkStrings(b *testing.B) {
	words := "some plain words of a prompt without much in it, "
	for _, c := range []struct{ name, piece string }{
		{"plain", words},
		{"chance", chance(4_000_000)},
		{"prose", words[:24] + `\"q\" ` + words + words[3:] + `.\n`},
		{"code", `func main() {\n\tfmt.Println(\"x\")\n}\n`},
		{"wide", "这是一个提示的文字，"},
		{"mixed", "Ça va très bien, c'est où déjà? "},
		{"ascii", `\u8fd9\u662f\u4e00\u4e2a`},
	} {
		doc := []byte(`"` + strings.Repeat(c.piece, max(1, 130_000/len(c.piece))) + `"`)
		best(b, c.name+"/check", len(doc), func() { c := New(doc); c.Skip() })
		best(b, c.name+"/reread", len(doc), func() { c := Reread(doc); c.Skip() })
		var buf [2048]byte
		best(b, c.name+"/decode", len(doc), func() {
			for raw := doc[1 : len(doc)-1]; len(raw) > 0; {
				_, used := Decode(buf[:], raw)
				raw = raw[used:]
			}
		})
	}
}

// chance is text with an escape every 80 bytes or so, so much of it that no processor learns where.
func chance(size int) string {
	rng := rand.New(rand.NewPCG(1, 1))
	var b []byte
	for len(b) < size {
		for range 2 + rng.IntN(8) {
			b = append(b, byte('a'+rng.IntN(26)))
		}
		switch rng.IntN(48) {
		case 0, 1:
			b = append(b, `.\n`...)
		case 2:
			b = append(b, `, \"so\" `...)
		default:
			b = append(b, ' ')
		}
	}
	return string(b)
}
