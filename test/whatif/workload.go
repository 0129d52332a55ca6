package whatif

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/traces"
)

// Model is the model that clients ask for, Pool the pool that serves it.
const (
	Model = "sim-70b"
	Pool  = "chat"
)

// ChatPath is the API that they call.
const ChatPath = "/v1/chat/completions"

// Item is one request, rendered and tokenised. It is read only once made, and
// shared by all runs of a workload.
type Item struct {
	At      time.Duration // due time
	Session string        // "" for none
	Turn    int           // in its session, from 0
	Prev    int           // index of the turn it replies to, -1 for none
	Body    []byte
	Request api.Request
	Prompt  enginesim.Prompt
	Answer  enginesim.Answer
	Text    []byte // the answer's
	Seen    *traces.Seen
}

// Workload is a list of requests in order of time.
type Workload struct {
	Name   string
	Items  []*Item
	Warmup int // the first so many are not measured
	// OwnWarmup says that those come at the workload's own rate, whatever Config.Rate.
	OwnWarmup bool
}

// NewWorkload renders a source. Answers are functions of prompts, so that the
// later turns of chats are known before any engine has run.
func NewWorkload(name string, src traces.Source, warmup int) (*Workload, error) {
	w := &Workload{Name: name, Warmup: warmup}
	cfg := enginesim.DefaultConfig()
	cfg.Model = Model
	tokenizer := enginesim.New(cfg)
	last := map[uint64]int{}
	for {
		r, err := src.Next()
		if errors.Is(err, io.EOF) {
			return w, nil
		}
		if err != nil {
			return nil, fmt.Errorf("workload %s: %w", name, err)
		}
		it, err := render(tokenizer, r)
		if err != nil {
			return nil, fmt.Errorf("workload %s, request %d: %w", name, len(w.Items), err)
		}
		it.Prev = -1
		if r.Session != 0 {
			if i, ok := last[r.Session]; ok {
				it.Prev = i
			}
			last[r.Session] = len(w.Items)
			it.Session = strconv.FormatUint(r.Session, 10)
		}
		w.Items = append(w.Items, it)
	}
}

func render(tokenizer *enginesim.Engine, r *traces.Request) (*Item, error) {
	output := max(r.OutputTokens, 1)
	model, err := json.Marshal(Model)
	if err != nil {
		return nil, err
	}
	b := append([]byte(`{"model":`), model...)
	b = append(b, `,"messages":`...)
	b = r.AppendMessages(b)
	b = append(b, `,"max_tokens":`...)
	b = strconv.AppendInt(b, int64(output), 10)
	b = append(b, `,"stream":true`...)
	if len(r.Tools) > 0 {
		b = append(b, `,"tools":`...)
		b = r.AppendTools(b)
	}
	it := &Item{At: r.At, Turn: r.Turn, Body: append(b, '}'), Seen: r.Seen}
	if it.Request, err = api.Parse(api.Chat, it.Body); err != nil {
		return nil, err
	}
	prompts, err := tokenizer.Prompts(ChatPath, it.Body)
	if err != nil {
		return nil, err
	}
	it.Prompt = prompts[0]
	it.Answer = tokenizer.Answer(it.Prompt, output)
	it.Text = it.Answer.AppendText(nil)
	r.Conversation.Finish(r.Turn, string(it.Text))
	return it, nil
}
