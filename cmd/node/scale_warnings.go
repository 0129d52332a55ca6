package node

import (
	"fmt"

	"github.com/hearsay-llm/hearsay/autoscale"
	"github.com/hearsay-llm/hearsay/state"
)

// scaleWarnings say which pools the leader leaves as they are for a reason that somebody
// should look into: what it goes by is missing, or something else sets their size.
func (n *Node) scaleWarnings() (list []string) {
	for _, r := range n.scale.Reports() {
		at := r.Key.Pool
		if r.Key.Role != state.RoleBoth {
			at += " (" + string(r.Key.Role) + ")"
		}
		if w := autoscale.Lasting(r.Refusal); w != "" {
			list = append(list, fmt.Sprintf("pool %s is held at %d replicas: %s", at, r.Plan.From, w))
		}
	}
	return list
}
