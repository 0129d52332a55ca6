package node

import (
	"fmt"

	"github.com/hearsay-llm/hearsay/autoscale"
	"github.com/hearsay-llm/hearsay/state"
)

// scaleWarnings say which pools the leader leaves as they are for a reason that somebody
// should look into: what it goes by is missing, or something else sets their size.
func (n *Node) scaleWarnings() (list []string) {
	if why := n.scaleStopped.Load(); why != nil {
		list = append(list, "no pool is scaled until another router leads, or this one anew: "+*why)
	}
	for _, r := range n.scale.Reports() {
		if w := scaleWarning(&r); w != "" {
			list = append(list, w)
		}
	}
	return list
}

// scaleWarning is what to say of one target.
func scaleWarning(r *autoscale.Report) string {
	at := r.Key.Pool
	if r.Key.Role != state.RoleBoth {
		at += " (" + string(r.Key.Role) + ")"
	}
	// The console says of a pool that lacks replicas what it is for.
	told := r.Key.Role == state.RoleBoth && r.Seen.Present < r.Seen.Target
	switch w := autoscale.Lasting(r.Refusal); {
	case r.Failing && !told:
		return fmt.Sprintf("pool %s can't be scaled: %s", at, r.Problem)
	case w != "":
		return fmt.Sprintf("pool %s is held at %d replicas: %s", at, r.Plan.From, w)
	}
	return ""
}
