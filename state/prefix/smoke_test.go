package prefix

import (
	"fmt"
	"strings"
	"testing"
)

func TestSmoke(t *testing.T) {
	var h Hasher
	body := []byte(`[{"role":"system","content":"` + strings.Repeat("you are ", 300) + `"},{"role":"user","content":"hi \n x"}]`)
	m, err := h.Marks(nil, Seed{Model: "m"}, Input{Kind: Chat, Messages: body})
	_ = fmt.Sprint(m, err)
	h.BeginAnswer("assistant")
	h.AnswerText([]byte("hello "))
	h.AnswerText([]byte("world"))
	a := h.EndAnswer(nil)
	body2 := append(body[:len(body)-1:len(body)-1], []byte(`,{"role":"assistant","content":"hello world"},{"role":"user","content":"more"}]`)...)
	m2, err := h.Marks(nil, Seed{Model: "m"}, Input{Kind: Chat, Messages: body2})
	fmt.Println(Diverge(append(m, a...), m2), len(m)+len(a), err)
}

func BenchmarkMarksChat128k(b *testing.B) {
	var h Hasher
	var sb strings.Builder
	sb.WriteString("[")
	for i := range 20 {
		if i > 0 {
			sb.WriteString(",")
		}
		sb.WriteString(`{"role":"user","content":"` + strings.Repeat("some plain words of a prompt without much in it, ", 130) + `\n"}`)
	}
	sb.WriteString("]")
	body := []byte(sb.String())
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	var dst []Mark
	for b.Loop() {
		dst, _ = h.Marks(dst[:0], Seed{Model: "m"}, Input{Kind: Chat, Messages: body})
	}
	b.ReportMetric(float64(len(dst)), "marks")
}
