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
