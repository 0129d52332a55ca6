package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/traces"
)

// corpora are the sorts of prompts measured.
var corpora = []struct {
	name, what string
	write      func(dst []byte, r *traces.Request, p traces.Part) []byte
}{
	{"chat", "multi-turn agent chats, 8 system prompts of 800 tokens, English", english},
	{"mooncake", "Mooncake conversation trace: its lengths and shared 512-token blocks, English", english},
	{"cjk", "the chats in Chinese characters, not escaped in JSON", chinese},
	{"code", "the chats as program text, with JSON escapes in every line", code},
}

// prompt is one request, rendered on demand: a long trace does not fit in memory.
type prompt struct {
	at       time.Duration
	session  uint64 // for routing; requests without one have their own
	turn     int
	before   *prompt     // the turn before
	answered traces.Part // the answer
	request  *traces.Request
	write    func(dst []byte, r *traces.Request, p traces.Part) []byte

	// What render makes.
	messages     []message
	answer       []byte
	json         []byte   // the messages as a request body has them
	text         []byte   // the same as a chat template writes it, decoded: what a tree over characters gets
	tokens       []uint32 // prompt and answer as the engine has them
	promptTokens int      // of those, the prompt's
}

type message struct{ role, content string }

// load makes the first n prompts of a corpus.
func load(name string, n int, seed uint64) ([]*prompt, error) {
	var src traces.Source
	var err error
	if name == "mooncake" {
		var t *traces.Trace
		if t, err = traces.Open(traces.MooncakeConversation, traces.OpenConfig{Seed: seed}); err == nil {
			defer func() { _ = t.Close() }()
			src = t
		}
	} else {
		src, err = traces.Agents(traces.AgentsConfig{Seed: seed})
	}
	if err != nil {
		return nil, err
	}
	var out []*prompt
	last := map[uint64]*prompt{}
	for len(out) < n {
		r, err := src.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		p := &prompt{at: r.At, session: r.Session, turn: r.Turn, request: r}
		for _, c := range corpora {
			if c.name == name {
				p.write = c.write
			}
		}
		if p.write == nil {
			return nil, fmt.Errorf("no corpus named %q", name)
		}
		p.answered = traces.Part{ID: uint64(len(out))*0x9e3779b97f4a7c15 ^ seed, Tokens: r.OutputTokens}
		if p.session == 0 {
			p.session = 1<<63 + uint64(len(out))
		} else if p.before = last[p.session]; p.before != nil {
			p.before.answered = r.Messages[len(r.Messages)-2].Parts[0]
		}
		last[p.session] = p
		out = append(out, p)
	}
	return out, nil
}

// render makes the prompt's forms. It does nothing when they are there.
func (p *prompt) render() {
	if p.tokens != nil {
		return
	}
	var buf []byte
	for _, m := range p.request.Messages {
		buf = buf[:0]
		for _, part := range m.Parts {
			buf = p.write(buf, p.request, part)
		}
		p.messages = append(p.messages, message{m.Role, string(buf)})
	}
	p.answer = p.write(nil, p.request, p.answered)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	b.WriteByte('[')
	for i, m := range p.messages {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"role":%q,"content":`, m.role)
		_ = enc.Encode(m.content) // strings always encode, into memory
		b.Truncate(b.Len() - 1)   // its line end
		b.WriteByte('}')
		p.text = append(p.text, "<|im_start|>"+m.role+"\n"+m.content+"<|im_end|>\n"...)
	}
	b.WriteByte(']')
	p.json = b.Bytes()
	p.tokens = appendPromptTokens(nil, p)
	p.promptTokens = len(p.tokens)
	p.tokens = append(enginesim.AppendTokens(p.tokens, string(p.answer)), markEnd)
}

// drop forgets what render made.
func (p *prompt) drop() {
	p.messages, p.answer, p.json, p.text, p.tokens = nil, nil, nil, nil, nil
}

// Token ids of a chat template's marks; text never makes them.
const (
	markStart uint32 = 1
	markRole  uint32 = 2
	markEnd   uint32 = 3
)

// appendPromptTokens tokenises the prompt as the engine does, up to where its
// answer begins.
func appendPromptTokens(dst []uint32, p *prompt) []uint32 {
	for _, m := range p.messages {
		dst = append(enginesim.AppendTokens(append(dst, markStart), m.role), markRole)
		dst = append(enginesim.AppendTokens(dst, m.content), markEnd)
	}
	return append(enginesim.AppendTokens(append(dst, markStart), "assistant"), markRole)
}

// The writers render a part: equal ids give equal text, and a longer part begins
// with the shorter one of the same id.

func english(dst []byte, r *traces.Request, p traces.Part) []byte {
	return r.Text.Append(dst, p.ID, p.Tokens)
}

// chinese draws from the 2,000 first unified ideographs; the simulated tokeniser
// makes two tokens of one.
func chinese(dst []byte, _ *traces.Request, p traces.Part) []byte {
	rng := rand.New(rand.NewPCG(p.ID, 1))
	for i := range p.Tokens / 2 {
		if i%16 == 15 {
			dst = append(dst, "，"...)
			continue
		}
		dst = append(dst, string(rune(0x4e00+rng.IntN(2000)))...)
	}
	return dst
}

// code writes lines like those of a program.
func code(dst []byte, _ *traces.Request, p traces.Part) []byte {
	rng := rand.New(rand.NewPCG(p.ID, 2))
	end := len(dst) + p.Tokens*5/2
	for len(dst) < end {
		name := "v" + strconv.FormatUint(rng.Uint64N(1<<20), 36)
		switch rng.IntN(4) {
		case 0:
			dst = append(dst, "\tif err := "+name+"(ctx, \"key\"); err != nil {\n\t\treturn err\n\t}\n"...)
		case 1:
			dst = append(dst, "\tlog.Printf(\"%s: \\\"%d\\\" rows\\n\", "+name+")\n"...)
		case 2:
			dst = append(dst, "\tfor i, x := range "+name+" {\n\t\tout[i] = x * 2\n\t}\n"...)
		default:
			dst = append(dst, "\t"+name+" := map[string]int{\"a\": 1, \"b\": 2}\n"...)
		}
	}
	return dst[:end]
}
