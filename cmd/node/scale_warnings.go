package node

import (
	"fmt"
	"time"

	"github.com/hearsay-llm/hearsay/autoscale"
	"github.com/hearsay-llm/hearsay/state"
)

// scaleWarnings say which pools the leader leaves as they are for a reason that somebody
// should look into: what it goes by is missing, or something else sets their size.
func (n *Node) scaleWarnings() (list []string) {
	for _, r := range n.scale.Reports() {
		list = append(list, scaleWarning(&r, time.Now())...)
	}
	return list
}

// troubleAfter is how long an actuator must have failed before that is warned of.
const troubleAfter = 5 * time.Second

// scaleWarning says what there is to say of one target.
func scaleWarning(r *autoscale.Report, now time.Time) (list []string) {
	at := r.Key.Pool
	if r.Key.Role != state.RoleBoth {
		at += " (" + string(r.Key.Role) + ")"
	}
	add := func(format string, args ...any) { list = append(list, "pool "+at+fmt.Sprintf(format, args...)) }
	// The console says of a target that lacks replicas what it is for.
	told := r.Seen.Present < r.Seen.Target
	switch w := autoscale.Lasting(r.Refusal); {
	case r.Fenced:
		add(" is not scaled, its actuator %s has seen later numbers than this leader's: %s; tried again every %v. "+
			"Were the routers founded anew? Then reset the numbers that it keeps", r.Actuator, r.Trouble, autoscale.FencedRest)
	case r.Trouble != "" && now.Sub(r.TroubleSince) >= troubleAfter:
		if !told {
			add(": actuator %s does not answer or can't act: %s", r.Actuator, r.Trouble)
		}
	case w != "":
		add(" is held at %d replicas: %s", r.Plan.From, w)
	}
	if r.Moved != "" {
		add(": %s", r.Moved)
	}
	return list
}
