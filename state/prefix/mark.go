package prefix

import "github.com/hearsay-llm/hearsay/state/prefix/scan"

// SchemeVersion names this way of hashing. Routers that differ in it must not exchange marks; it is part of every seed
// as well, so that marks which slip through match nothing.
const SchemeVersion = 2

// Mark is the hash of a prompt's canonical bytes up to a position, with that position's depth. Its parent is the mark
// before it in the same prompt. Depth counts what becomes prompt text; framing is not counted.
type Mark struct {
	Hash  uint64
	ASCII uint32 // ASCII bytes so far
	Wide  uint32 // bytes of non-ASCII characters so far
	Exact uint32 // tokens so far that are known or counted by weight, not by bytes: token ids, media, message overhead
}

// Bytes is the mark's depth in bytes of text, tokens known by number not included.
func (m Mark) Bytes() int { return int(m.ASCII) + int(m.Wide) }

// Diverge returns how many leading marks a and b share.
func Diverge(a, b []Mark) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i].Hash != b[i].Hash {
			return i
		}
	}
	return n
}

// Kind is what sort of prompt an Input is. Prompts of different kinds share no marks.
type Kind uint8

// The kinds of prompts.
const (
	Chat       Kind = iota + 1 // Input.Messages and what goes before them
	Completion                 // Input.Prompt
	Embedding                  // Input.Prompt
	Responses                  // OpenAI's Responses: Input.Prompt is its input
	Messages                   // Anthropic's Messages: Input.System and Input.Messages
)

// Seed is what splits an engine's cache beside the prompt's text. Prompts whose seeds differ share no marks.
type Seed struct {
	Model     string // as served, after aliases are resolved
	Adapter   string // LoRA adapter, "" for the base model
	CacheSalt string // the request's cache_salt
	Tenant    string // set only where the pool isolates tenants
}

// Input is a prompt as raw JSON values of a request body; nil means absent. The bytes are only read, and only during the
// call they are passed to.
type Input struct {
	Kind Kind

	// Checked says that a scan.Cursor has accepted the document these values were cut from, each one whole, so they
	// need not be checked again. With it, malformed values are hashed somehow and are no error.
	Checked bool

	// Longs are the long strings of that document, Whole, as that cursor noted them. Both may be missing.
	Longs scan.Longs
	// Runs are those of the long strings. They may be missing.
	Runs  scan.Runs
	Whole []byte

	Template        []byte // chat_template
	TemplateArgs    []byte // chat_template_kwargs
	ReasoningEffort []byte // reasoning_effort; some templates write it into the system message
	Documents       []byte // documents
	Tools           []byte // tools
	Functions       []byte // functions, the older form of tools
	Messages        []byte // messages

	Prompt []byte // a completion's prompt or an embedding's input: string, token ids, or a list of either; a response's input: string or list of items

	Previous     []byte // previous_response_id: the prompt goes on where that response ended
	Conversation []byte // conversation: the prompt goes on behind what it holds
	Reference    []byte // a response's prompt: a template kept elsewhere, with its variables
	Instructions []byte // instructions

	System   []byte // system: string or list of blocks
	Thinking []byte // thinking
}
