package node

import (
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/routing/balance"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// picked tells the balance loop of a request's prompt.
func (n *Node) picked(pool string, c *routing.Choice, marks []prefix.Mark, tokens []int32) {
	n.balance.Picked(&balance.Pick{Pool: pool, Prompt: c.PromptTokens, Held: c.Held(), Marks: marks, Tokens: tokens})
}

// Partings says where the latest prompts of a pool part.
func (n *Node) Partings(pool string) []prefix.Parting { return n.proxy.Core().Partings(pool) }
