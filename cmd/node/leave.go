package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/consensus"
	"github.com/hearsay-llm/hearsay/cluster/gossip"
	"github.com/hearsay-llm/hearsay/proxy/console"
)

// leaveAtMost bounds what the tool waits for.
const leaveAtMost = 13 * time.Second

// Leave gives up this router's vote and then stops it, as SIGTERM does. Where the
// vote can't be given up the router goes on as it was.
func (n *Node) Leave(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, leaveAtMost)
	defer cancel()
	if err := committed(n.raft.Leave(ctx)); err != nil {
		return "", err
	}
	running := n.inFlight()
	n.log.Info().Int64("requests", running).Msg("leaving for good")
	n.stop()
	last := ""
	if !slices.ContainsFunc(n.gossip.Members(), func(m gossip.Member) bool { return !m.Self && m.State == gossip.Alive }) {
		last = ". It was the last one alive: no router is left to take requests. Started again, it goes on with what was committed"
	}
	return fmt.Sprintf("%s has left the cluster and stops: no new requests after %v, %d running ones get %v at most%s",
		n.cfg.Node.Name, n.cfg.API.DrainDelay, running, drainAtMost, last), nil
}

// committed is what came of a commit in the console's words.
func committed(err error) error {
	switch {
	case errors.Is(err, consensus.ErrNoLeader):
		return console.ErrNoLeader
	case errors.Is(err, consensus.ErrOutcomeUnknown):
		return console.ErrUnknownOutcome
	}
	return err
}
