package proxy

import (
	"bytes"
	"net/http"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
)

// speaksMessages reports whether a replica is asked in Anthropic's API itself.
func speaksMessages(spec *state.PoolSpec, r *state.ReplicaView) bool {
	return kindOf(spec, r) == state.EngineAnthropic
}

// countHere answers how many tokens a prompt of Messages has by the router's own
// estimate, where no replica of the pool can be asked. It reports whether the request
// has been answered.
func (r *request) countHere() bool {
	p := r.s.core.store.View().Pool(r.ask.Model)
	if p == nil {
		return false // refused as any other
	}
	for _, replica := range p.Replicas {
		if speaksMessages(&p.Spec, replica) {
			return false
		}
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
	return shape == api.OpenAI || bytes.HasPrefix(bytes.TrimSpace(body), []byte(`{"type":"error"`))
}
