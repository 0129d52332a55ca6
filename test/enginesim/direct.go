package enginesim

// Answer is the text and the token ids of one answer, both a function of the
// prompt and the engine's seed alone. It is a value and needs no engine to run.
type Answer struct{ g generator }

// Answer is what a chat request with this prompt is answered, tokens long, when
// it asks for that length. A Core that is driven without an Engine is given its
// Token as Seq.Output.
func (e *Engine) Answer(p Prompt, tokens int) Answer {
	g := generator{seed: mix(e.answerSeed(p.Tokens, p.Hashes, 0)), tokens: tokens}
	return Answer{g}
}

// Token is the id of token i.
func (a Answer) Token(i int) uint32 { return a.g.id(i) }

// Tokens is how many there are.
func (a Answer) Tokens() int { return a.g.tokens }

// AppendText appends the answer's text.
func (a Answer) AppendText(dst []byte) []byte {
	for i := range a.g.tokens {
		dst = a.g.appendPiece(dst, i)
	}
	return dst
}

// answerSeed is where the answer to a prompt begins. hashes is its HashChain with
// seed as adapter and salt gave it.
func (e *Engine) answerSeed(prompt []uint32, hashes []uint64, seed uint64) uint64 {
	whole := len(hashes) * e.cfg.BlockTokens
	if whole > 0 {
		seed = hashes[len(hashes)-1]
	}
	return mix(e.cfg.Seed) ^ chainHash(seed, prompt[whole:])
}
