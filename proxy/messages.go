package proxy

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/proxy/api/messages"
	"github.com/hearsay-llm/hearsay/state"
)

// Anthropic's Messages go as they are to an engine that speaks them, and as a chat
// completion to any other; the answer comes back as a message then.

// speaksMessages reports whether a pool's replicas are asked in Anthropic's API itself.
func speaksMessages(p *state.PoolView) bool {
	for _, r := range p.Replicas {
		if kindOf(&p.Spec, r) != state.EngineAnthropic {
			return false
		}
	}
	return p.Spec.Engine == state.EngineAnthropic || len(p.Replicas) > 0
}

// translated is a request of Messages as a chat completion.
type translated struct {
	ask   api.Request
	body  []byte
	asked messages.Asked
}

// asChat translates a body of Messages for a pool; nil where its replicas take it as it
// is. Errors are *api.Error.
func asChat(p *state.PoolView, body []byte) (*translated, error) {
	if p == nil || speaksMessages(p) {
		return nil, nil
	}
	t := &translated{}
	var err error
	if t.body, t.asked, err = messages.Request(nil, body, messages.Options{Engine: engineOf(p)}); err != nil {
		return nil, err
	}
	if t.ask, err = api.Parse(api.Chat, t.body); err != nil {
		return nil, err
	}
	return t, nil
}

// translate makes a request of Messages one that a pool's replicas understand. The
// client's body is let go, and what was made of it takes its place, unless it is to be
// kept: the replicas of another pool may want another translation.
func (r *request) translate(pool *state.PoolView, keep bool) error {
	t, err := asChat(pool, r.body)
	if err != nil {
		return err
	}
	if r.chat = t; t == nil {
		return nil
	}
	t.asked.ID = "msg_" + r.id
	if r.conn != nil {
		if !keep {
			r.conn.freeBody()
		}
		if !r.conn.charge(int64(cap(t.body))) {
			return r.s.overBudget()
		}
	}
	if !keep {
		r.body = nil
	}
	return nil
}

// sent is the request as the replica is to get it, but for edits.
func (r *request) sent() (*api.Request, []byte) {
	if r.chat != nil {
		return &r.chat.ask, r.chat.body
	}
	return &r.ask, r.body
}

// maxTranslated bounds an answer that is not streamed and has to be translated, bytes.
const maxTranslated = 16 << 20

// toMessage makes a whole answer a message.
func (a *relay) toMessage(body []byte) *failure {
	made, err := messages.Response(nil, body, a.r.chat.asked, a.r.family())
	if err != nil {
		return broken("bad_response", true)
	}
	a.ahead = made
	return nil
}

// made are the events that came of what was read last, for a client that is not sent
// what came, and a comment for each of the replica's. They are valid until more is read.
func (a *relay) made() []byte {
	for ; a.remarks < a.framer.Comments(); a.remarks++ {
		a.events = append(a.events, comment...)
	}
	if a.framer.Done() {
		a.events = a.message.Event(a.events, []byte("[DONE]"))
	}
	p := a.events
	a.events = a.events[:0]
	return p
}

// ends are the last events of an answer whose stream ended in order. It fails where the
// answer itself did not end.
func (a *relay) ends() ([]byte, error) {
	p := a.message.End(a.made(), nil)
	if a.message.Failed() != nil && a.framer.Error() == nil {
		return p, errUnfinished
	}
	return p, nil
}

// errUnfinished is a stream that ended in order, though its answer did not.
var errUnfinished = errors.New("the answer did not end")

// goodbye is the event that tells a client why its stream ends here.
func (a *relay) goodbye() []byte {
	if a.message != nil {
		return a.message.End(nil, a.farewell())
	}
	return a.farewell().AppendEvent(nil, a.r.ask.Endpoint.Shape(), a.typed.Next)
}

// countHere answers how many tokens a prompt of Messages has by the router's own
// estimate, where no replica of the pool can be asked. It reports whether the request
// has been answered.
func (r *request) countHere() bool {
	p, _ := r.s.core.store.View().Resolve(r.ask.Model)
	if p == nil {
		return false // refused as any other
	}
	if speaksMessages(p) {
		return false
	}
	r.pool = p.Spec.Name
	n, err := r.s.core.count(r.ask, r.body)
	if err != nil {
		r.fail(api.AsError(err))
		return true
	}
	r.answerJSON(http.StatusOK, struct {
		Tokens int `json:"input_tokens"`
	}{n})
	return true
}

// count estimates the tokens of a prompt of Messages.
func (c *Core) count(ask api.Request, body []byte) (int, error) {
	ask.Endpoint = api.Messages
	j, err := c.Admit(&Ask{Request: &ask, Body: body})
	if err != nil {
		return 0, err
	}
	defer j.Release()
	return j.req.PromptTokens, nil
}

// reads reports whether a client of the API can read a replica's own error.
func reads(shape api.Shape, body []byte) bool {
	return shape != api.Anthropic || bytes.HasPrefix(bytes.TrimSpace(body), []byte(`{"type":"error"`))
}
