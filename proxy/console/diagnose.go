package console

import (
	"net/http"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/routing/balance"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// Diagnosis is what is wrong with a pool, as this router sees it.
type Diagnosis struct {
	Pool      string            `json:"pool"`
	Policy    string            `json:"policy"`
	Effective string            `json:"effective_policy"`
	Sharing   float64           `json:"sharing_ratio"` // negative: unknown
	Hot       []HotPrefix       `json:"hot_prefixes,omitempty"`
	Findings  []balance.Finding `json:"findings"` // causes first; at least one
}

// HotPrefix is a prefix that many of this router's requests of the last minute began
// with.
type HotPrefix struct {
	Tokens  int     `json:"tokens"`  // its depth, estimated
	Share   float64 `json:"share"`   // of requests
	Holders int     `json:"holders"` // replicas that hold it; negative unknown
}

// Diagnose says what is wrong with a pool of v.
func Diagnose(v *state.View, p *state.PoolView, speed func(state.ReplicaID) Speed, partings []prefix.Parting, now time.Time) Diagnosis {
	name := p.Spec.Name
	b := v.Weights.Pools[name]
	d := Diagnosis{
		Pool: name, Policy: p.Spec.Policy, Effective: routing.Effective(p.Spec.Policy, b), Sharing: sharing(&b), Hot: hotOf(&b),
	}
	d.Findings = balance.Diagnose(&balance.Evidence{
		Pool: p, Weights: v.Weights, Partings: partings, Waiting: v.Backlog(p), StartUp: balance.StartUp(v.Facts, &p.Spec), Now: now,
		ITL: func(r *state.ReplicaView, streams float64) float64 {
			s := speed(r.ID)
			return s.ITLMS + s.ITLPerStream*max(0, streams-1)
		},
	})
	return d
}

// sharing is the pool's sharing ratio, negative while unknown.
func sharing(b *state.PoolBalance) float64 {
	if b.Picks <= 0 {
		return -1
	}
	return b.Sharing
}

func hotOf(b *state.PoolBalance) (list []HotPrefix) {
	for _, h := range b.Hot {
		list = append(list, HotPrefix{Tokens: h.Tokens, Share: h.Share, Holders: h.Holders})
	}
	return list
}

func (s *Server) diagnose(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("pool")
	if name != "" && s.pool(name) == nil {
		unknownPool(w, name)
		return
	}
	v, now := s.node.View(), time.Now()
	out := []Diagnosis{}
	for _, p := range v.Pools {
		if name == "" || p.Spec.Name == name {
			out = append(out, Diagnose(v, p, s.node.Speed, s.node.Partings(p.Spec.Name), now))
		}
	}
	respond(w, http.StatusOK, out)
}
