package prefix_test

import (
	"fmt"

	"github.com/hearsay-llm/hearsay/state/prefix"
)

// A second turn shares the marks of the first one, its answer included.
func Example() {
	seed := prefix.Seed{Model: "llama-3.1-8b"}
	first := []byte(`[{"role":"system","content":"Be brief."},{"role":"user","content":"Why is the sky blue?"}]`)
	second := []byte(`[{"role":"system","content":"Be brief."},{"role":"user","content":"Why is the sky blue?"},` +
		`{"role":"assistant","content":"Rayleigh scattering."},{"role":"user","content":"And red in the evening?"}]`)

	var h prefix.Hasher
	known, err := h.Marks(nil, seed, prefix.Input{Kind: prefix.Chat, Messages: first})
	if err != nil {
		fmt.Println(err)
		return
	}
	h.BeginAnswer("assistant")
	h.AnswerText([]byte("Rayleigh "))
	h.AnswerText([]byte("scattering."))
	known = h.EndAnswer(known)

	asked, err := h.Marks(nil, seed, prefix.Input{Kind: prefix.Chat, Messages: second})
	if err != nil {
		fmt.Println(err)
		return
	}
	var ratio prefix.Ratio
	n := prefix.Diverge(known, asked)
	fmt.Println(n, "of", len(asked), "marks known,", ratio.Tokens(asked[n-1]), "of", ratio.Tokens(asked[len(asked)-1]), "tokens")
	// Output: 3 of 4 marks known, 29 of 40 tokens
}

// Two prompts that should share more than they do: the clock in front is what differs.
func ExampleCompare() {
	ask := func(clock string) ([]byte, prefix.Input) {
		body := []byte(`{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"It is ` + clock + `. Be brief."}]},{"role":"user","content":"Why?"}]}`)
		return body, prefix.Input{Kind: prefix.Chat, Messages: body[24 : len(body)-1]}
	}
	a, inputA := ask("12:04")
	b, inputB := ask("12:05")
	d, err := prefix.Compare(prefix.Seed{Model: "m"}, inputA, prefix.Seed{Model: "m"}, inputB)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d of %d marks shared; they part at %s, byte %d: %q and %q\n", d.Shared, d.Marks[0], d.A.Path, d.A.Byte, a[d.A.Offset(a)], b[d.B.Offset(b)])
	// Output: 0 of 2 marks shared; they part at messages[0].content[0].text, byte 10: '4' and '5'
}
