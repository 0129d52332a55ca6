package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/consensus"
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
	return fmt.Sprintf("%s has left the cluster and stops: no new requests after %v, %d running ones get %v at most",
		n.cfg.Node.Name, n.cfg.API.DrainDelay, running, drainAtMost), nil
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
