package proxy

import (
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// Pick is why one attempt of a past request went where it went.
type Pick struct {
	RequestID     string          `json:"request_id"`
	At            time.Time       `json:"at"` // wall clock, for people
	Pool          string          `json:"pool"`
	Model         string          `json:"model"`
	Attempt       int             `json:"attempt"` // from 1
	Replica       state.ReplicaID `json:"replica"`
	Policy        string          `json:"policy"`
	Reason        string          `json:"reason"`
	PromptTokens  int             `json:"prompt_tokens"`
	MatchedTokens int             `json:"matched_tokens"`
	TTFT          time.Duration   `json:"ttft_ns"` // predicted
	Candidates    []CandidateInfo `json:"candidates"`
}

// CandidateInfo is one replica as a pick saw it.
type CandidateInfo struct {
	Replica       state.ReplicaID `json:"replica"`
	MatchedTokens int             `json:"matched_tokens"`
	Score         float64         `json:"score"`
	Terms         routing.Terms   `json:"terms"`              // milliseconds
	Excluded      string          `json:"excluded,omitempty"` // why it could not be picked
}

// maxRemembered bounds the candidates remembered per pick: the chosen one and the
// first others.
const maxRemembered = 64

// Picks remembers the latest picks. Safe for concurrent use.
type Picks struct {
	mu   sync.Mutex
	ring []Pick // guarded by mu; buffers are reused
	next int    // guarded by mu
}

func newPicks(n int) *Picks { return &Picks{ring: make([]Pick, n)} }

// note remembers a pick.
func (p *Picks) note(k *Pick, c *routing.Choice) {
	if len(p.ring) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	slot := &p.ring[p.next]
	p.next = (p.next + 1) % len(p.ring)
	list := slot.Candidates[:0]
	*slot = *k
	slot.Candidates = appendCandidates(list, c)
}

// appendCandidates copies the candidates of a choice, the chosen one first.
func appendCandidates(dst []CandidateInfo, c *routing.Choice) []CandidateInfo {
	add := func(i int) {
		k := &c.Candidates[i]
		dst = append(dst, CandidateInfo{
			Replica: k.Replica.ID, MatchedTokens: k.Matched, Score: k.Score, Terms: k.Terms, Excluded: k.Excluded,
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

// Of returns the picks of a request, the first attempt first. The result is the
// caller's.
func (p *Picks) Of(requestID string) []Pick {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Pick
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
