package traces

import (
	"container/heap"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// Range is a uniform draw from Min to Max, both included.
type Range struct{ Min, Max int }

func (r Range) draw(rng *rand.Rand) int {
	if r.Max <= r.Min {
		return r.Min
	}
	return r.Min + rng.IntN(r.Max-r.Min+1)
}

func (r Range) validate(name string, least int) error {
	if r.Min < least || r.Max < r.Min || r.Max > maxTokens {
		return fmt.Errorf("%s is %d to %d, want %d or more, in order", name, r.Min, r.Max, least)
	}
	return nil
}

// AgentsConfig describes multi-turn chats of agents: sessions arrive by a Poisson process; each belongs to a kind of agent with
// its own system prompt and tools, and each of its turns repeats the whole history below a new user message.
type AgentsConfig struct {
	Text     Text
	Seed     uint64
	Sessions int     // how many; 0 means without end
	Rate     float64 // sessions that begin per second; 0 means 1
	Kinds    int     // kinds of agents, drawn with equal shares; 0 means 8

	SystemTokens int   // of a kind's system prompt; 0 means 800
	Tools        int   // of a kind; 0 means none
	ToolTokens   int   // of one tool's definition; 0 means 150
	Turns        Range // per session; zero means 3 to 10
	UserTokens   Range // of a user message; zero means 30 to 400 (tool results make them long)
	OutputTokens Range // of an answer; zero means 50 to 300

	// Think is the mean of the exponential pause between an answer's end and the next turn; 0 means 5 s. The answer's own time is
	// taken as AnswerTokenTime per token (0 means 30 ms), since an open loop plans without the engine.
	Think           time.Duration
	AnswerTokenTime time.Duration

	// RealAnswers puts the answers the model gave into the later turns (see Conversation). Without it a stand-in of the same
	// length stands there: the workload is then the same whatever the engine does, but the answers' part of a history is never in
	// the engine's cache from decoding, only from an earlier prompt.
	RealAnswers bool
}

func (c *AgentsConfig) fill() {
	setDefault(&c.Rate, 1)
	setDefault(&c.Kinds, 8)
	setDefault(&c.SystemTokens, 800)
	setDefault(&c.ToolTokens, 150)
	setDefault(&c.Turns, Range{3, 10})
	setDefault(&c.UserTokens, Range{30, 400})
	setDefault(&c.OutputTokens, Range{50, 300})
	setDefault(&c.Think, 5*time.Second)
	setDefault(&c.AnswerTokenTime, 30*time.Millisecond)
}

func (c *AgentsConfig) validate() error {
	return errors.Join(
		atLeast("Sessions", c.Sessions, 0),
		validRate(c.Rate),
		atLeast("Kinds", c.Kinds, 1),
		atLeast("SystemTokens", c.SystemTokens, 1),
		atLeast("Tools", c.Tools, 0),
		atLeast("ToolTokens", c.ToolTokens, 1),
		c.Turns.validate("Turns", 1),
		c.UserTokens.validate("UserTokens", 1),
		c.OutputTokens.validate("OutputTokens", 1),
		atLeast("Think", c.Think, 0),
		atLeast("AnswerTokenTime", c.AnswerTokenTime, 0),
	)
}

// Agents generates multi-turn chats. It holds the sessions that have begun and not ended.
func Agents(cfg AgentsConfig) (Source, error) {
	cfg.fill()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("agents: %w", err)
	}
	a := &agents{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, textID("agents")))}
	a.arrival = pause(a.rng, cfg.Rate)
	return a, nil
}

type agents struct {
	cfg     AgentsConfig
	rng     *rand.Rand
	begun   int
	arrival time.Duration // of the next session
	live    sessionHeap
}

type session struct {
	number  uint64 // from 1
	next    time.Duration
	turn    int
	turns   int
	input   int // tokens of messages and tools so far
	history []Message
	tools   []Part
	talk    *Conversation
}

func (a *agents) Next() (*Request, error) {
	for a.more() && (len(a.live) == 0 || a.arrival <= a.live[0].next) {
		a.begin()
	}
	if len(a.live) == 0 {
		return nil, io.EOF
	}
	s := a.live[0]
	r, output := a.turn(s)
	if s.turn == s.turns {
		heap.Pop(&a.live)
	} else {
		s.next += time.Duration(output)*a.cfg.AnswerTokenTime + time.Duration(a.rng.ExpFloat64()*float64(a.cfg.Think))
		heap.Fix(&a.live, 0)
	}
	return r, nil
}

func (a *agents) more() bool { return a.cfg.Sessions == 0 || a.begun < a.cfg.Sessions }

func (a *agents) begin() {
	a.begun++
	kind := uint64(a.rng.IntN(a.cfg.Kinds))
	s := &session{number: uint64(a.begun), next: a.arrival, turns: a.cfg.Turns.draw(a.rng)}
	s.history = []Message{{Role: "system", Parts: []Part{{ID: textID("agent system", kind), Tokens: a.cfg.SystemTokens}}}}
	for i := range a.cfg.Tools {
		s.tools = append(s.tools, Part{ID: textID("agent tool", kind, uint64(i)), Tokens: a.cfg.ToolTokens})
	}
	s.input = a.cfg.SystemTokens + a.cfg.Tools*a.cfg.ToolTokens
	if a.cfg.RealAnswers {
		s.talk = NewConversation()
	}
	heap.Push(&a.live, s)
	a.arrival += pause(a.rng, a.cfg.Rate)
}

// turn makes the session's next request and adds its answer to the history.
func (a *agents) turn(s *session) (*Request, int) {
	id := []uint64{a.cfg.Seed, s.number, uint64(s.turn)}
	user := Part{ID: textID("agent user", id...), Tokens: a.cfg.UserTokens.draw(a.rng)}
	output := a.cfg.OutputTokens.draw(a.rng)
	s.history = append(s.history, Message{Role: "user", Parts: []Part{user}})
	s.input += user.Tokens
	r := &Request{
		At: s.next, InputTokens: s.input, OutputTokens: output,
		Session: s.number, Turn: s.turn,
		Messages: slices.Clone(s.history), Tools: s.tools,
		Text: a.cfg.Text, Conversation: s.talk,
	}
	s.turn++
	answer := Message{Role: "assistant", Parts: []Part{{ID: textID("agent answer", id...), Tokens: output}}}
	if s.talk != nil {
		answer.Answer = s.turn
	}
	s.history = append(s.history, answer)
	s.input += output
	return r, output
}

type sessionHeap []*session

func (h sessionHeap) Len() int { return len(h) }
func (h sessionHeap) Less(i, j int) bool {
	return h[i].next < h[j].next || h[i].next == h[j].next && h[i].number < h[j].number
}
func (h sessionHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *sessionHeap) Push(x any)   { *h = append(*h, x.(*session)) }
func (h *sessionHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}
