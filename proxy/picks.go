package proxy

import (
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// Pick is why one attempt of a past request went where it went.
type Pick struct {
	RequestID     string          `json:"request_id"`
	At            time.Time       `json:"at"` // wall clock, for people
	Pool          string          `json:"pool"`
	Model         string          `json:"model"`
	Tenant        string          `json:"tenant,omitempty"` // whose request it is; empty: of nobody known
	Band          string          `json:"band"`             // its priority
	Attempt       int             `json:"attempt"`          // from 1
	Replica       state.ReplicaID `json:"replica"`
	Leg           state.Role      `json:"leg,omitempty"` // of a request in two: prefill or decode
	Policy        string          `json:"policy"`
	Reason        string          `json:"reason"`
	PromptTokens  int             `json:"prompt_tokens"`
	MatchedTokens int             `json:"matched_tokens"`
	TTFT          time.Duration   `json:"ttft_ns"`                    // predicted
	Observed      time.Duration   `json:"observed_ttft_ns,omitempty"` // from the pick to a stream's first token; 0 before it has come
	Queued        time.Duration   `json:"queued_ns,omitempty"`        // in the pool's queue, before the pick
	Response      string          `json:"response_id,omitempty"`      // of Responses: the answer's id at its engine
	Refused       *Refusal        `json:"refusal,omitempty"`          // why no replica served it; nil: one was picked
	Candidates    []CandidateInfo `json:"candidates"`
}

// CandidateInfo is one replica as a pick saw it.
type CandidateInfo struct {
	Replica       state.ReplicaID `json:"replica"`
	MatchedTokens int             `json:"matched_tokens"`
	Score         float64         `json:"score"`
	Terms         Terms           `json:"terms"`
	Excluded      string          `json:"excluded,omitempty"` // why it could not be picked
	Despite       string          `json:"despite,omitempty"`  // why it could only be picked since nobody else was left
	Had           Had             `json:"had,omitzero"`       // of a refused request
}

// Terms are routing.Terms with the names that they have in JSON: queued tokens,
// streams, tokens/s, and the rest in milliseconds.
type Terms struct {
	Own       float64 `json:"own"`
	Others    float64 `json:"others"`
	Foreign   float64 `json:"foreign"`
	Decode    float64 `json:"decode"`
	Rate      float64 `json:"rate"`
	Fixed     float64 `json:"fixed"`
	Queue     float64 `json:"queue"`
	Prefill   float64 `json:"prefill"`
	Attention float64 `json:"attention"`
	Hop       float64 `json:"hop"`
	Adapter   float64 `json:"adapter"`
	KV        float64 `json:"kv"`
	Slots     float64 `json:"slots"`
	Busy      float64 `json:"busy"`
	Eviction  float64 `json:"eviction"`
	Streams   float64 `json:"streams"`
	SlowStart float64 `json:"slow_start"`
}

// maxRemembered bounds the candidates remembered per pick: the chosen one and the
// first others.
const maxRemembered = 64

// Picks remembers the latest picks. Safe for concurrent use.
type Picks struct {
	mu    sync.Mutex
	ring  []Pick // guarded by mu; buffers are reused
	next  int    // guarded by mu
	noted uint64 // guarded by mu; picks ever noted

	refused *Picks // requests that no replica served; nil in that itself
}

func newPicks(n int) *Picks {
	return &Picks{ring: make([]Pick, n), refused: &Picks{ring: make([]Pick, (n+refusedPart-1)/refusedPart)}}
}

// note remembers a pick and returns the how manieth it is, from 1; 0 when none is
// remembered.
func (p *Picks) note(k *Pick, c *routing.Choice) uint64 {
	if len(p.ring) == 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(k, c)
	return p.noted
}

// put remembers a pick in the place of the oldest. The caller holds mu.
func (p *Picks) put(k *Pick, c *routing.Choice) *Pick {
	p.noted++
	slot := &p.ring[p.next]
	p.next = (p.next + 1) % len(p.ring)
	list := slot.Candidates[:0]
	*slot = *k
	slot.Candidates = appendCandidates(list, c)
	return slot
}

// first notes when the first token of the pick that was noted as the nth came, after
// it was picked. A pick that has been forgotten meanwhile is left alone.
func (p *Picks) first(nth uint64, after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.nth(nth); k != nil {
		k.Observed = after
	}
}

// named notes by which id the answer of the nth pick can be asked for. A pick that has
// been forgotten meanwhile is left alone.
func (p *Picks) named(nth uint64, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.nth(nth); k != nil {
		k.Response = id
	}
}

// nth is the pick that was noted as the nth, nil if it is forgotten. The caller holds mu.
func (p *Picks) nth(nth uint64) *Pick {
	back := p.noted - nth
	if nth == 0 || back >= uint64(len(p.ring)) {
		return nil
	}
	return &p.ring[(p.next-1-int(back)+2*len(p.ring))%len(p.ring)]
}

// appendCandidates copies the candidates of a choice, the chosen one first.
func appendCandidates(dst []CandidateInfo, c *routing.Choice) []CandidateInfo {
	add := func(i int) {
		k := &c.Candidates[i]
		dst = append(dst, CandidateInfo{
			Replica: k.Replica.ID, MatchedTokens: k.Matched, Score: k.Score, Terms: Terms(k.Terms), Excluded: k.Excluded, Despite: k.Despite,
		})
	}
	if c.Chosen >= 0 && c.Chosen < len(c.Candidates) {
		add(c.Chosen)
	}
	for i := 0; i < len(c.Candidates) && len(dst) < maxRemembered; i++ {
		if i != c.Chosen {
			add(i)
		}
	}
	return dst
}

// Of returns the picks of a request, named by its own id or that of the response to it,
// the first attempt first, and last its refusal, if it
// was refused. The result is the caller's.
func (p *Picks) Of(requestID string) []Pick {
	out := p.of(requestID)
	if len(out) == 0 {
		out = p.of(p.answeredBy(requestID))
	}
	for _, k := range p.refused.of(requestID) {
		x := *k.Refused
		x.Words = x.words(&k)
		k.Refused = &x
		out = append(out, k)
	}
	return out
}

// answeredBy is the id of the request whose answer is the response of that id, with its
// tag or without; empty if there is none.
func (p *Picks) answeredBy(response string) string {
	bare, _, _ := api.SplitTag(response)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.ring {
		if k := &p.ring[i]; bare != "" && (k.Response == bare || k.Response == response) {
			return k.RequestID
		}
	}
	return ""
}

func (p *Picks) of(requestID string) (out []Pick) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.ring {
		k := p.ring[(p.next+i)%len(p.ring)]
		if requestID != "" && k.RequestID == requestID {
			k.Candidates = append([]CandidateInfo(nil), k.Candidates...)
			out = append(out, k)
		}
	}
	return out
}

// Latest returns up to n picks, the latest first. The result is the caller's.
func (p *Picks) Latest(n int) []Pick {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Pick
	for i := 1; i <= len(p.ring) && len(out) < n; i++ {
		k := p.ring[(p.next-i+len(p.ring))%len(p.ring)]
		if k.RequestID == "" {
			break
		}
		k.Candidates = append([]CandidateInfo(nil), k.Candidates...)
		out = append(out, k)
	}
	return out
}
