package node

import (
	"time"

	"github.com/hearsay-llm/hearsay/proxy"
	"github.com/hearsay-llm/hearsay/proxy/console"
)

// tellPick tells those who read events of a pick, now and then.
func (n *Node) tellPick(p *proxy.Pick) {
	n.events.Pick(p.At, func() console.Event {
		return console.Event{
			At: p.At, Pool: p.Pool, Replica: string(p.Replica), Role: string(p.Leg), Reason: p.Reason,
			RequestID: p.RequestID, Model: p.Model, Tenant: p.Tenant, Band: p.Band, Attempt: p.Attempt, Policy: p.Policy,
			PromptTokens: p.PromptTokens, MatchedTokens: p.MatchedTokens, TTFTMS: float64(p.TTFT) / float64(time.Millisecond),
		}
	})
}

// tellPrewarm tells those who read events of a prompt that was sent for a cache's sake.
func (n *Node) tellPrewarm(p proxy.Prewarmed) {
	text := "to fill its cache"
	if p.From != "" {
		text = "held by a draining replica alone"
	}
	n.events.Publish(console.Event{
		At: p.At, Kind: console.KindPrewarm, Pool: p.Pool, Replica: string(p.Replica), From: string(p.From), Outcome: p.Outcome,
		PromptTokens: p.Tokens, Text: text,
	})
}
