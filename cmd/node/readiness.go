package node

import (
	"fmt"
	"strings"
	"time"
)

// Ready reports whether this router should get traffic, and what is missing.
func (n *Node) Ready() (bool, []string) {
	var reasons []string
	if n.stopping.Load() {
		reasons = append(reasons, "shutting down")
	}
	if !n.warm() {
		reasons = append(reasons, "waits for another router's first snapshot of prefixes, 5 s at most")
	}
	if pools := n.undiscovered(); len(pools) > 0 {
		reasons = append(reasons, fmt.Sprintf("waits for what discovery finds for pool %s, %v at most", strings.Join(pools, ", "), discoveryGrace))
	}
	if !n.factsLoaded() {
		reasons = append(reasons, n.unformed())
	}
	return len(reasons) == 0, reasons
}

// factsGrace is how long a router that has no committed facts waits for them
// before it serves without: a cluster without quorum must not keep it out.
const factsGrace = 5 * time.Second

func (n *Node) factsLoaded() bool {
	return n.raft.Facts().Index > 0 || time.Since(n.started) > factsGrace
}

// unformed says what the committed facts wait for.
func (n *Node) unformed() string {
	why := fmt.Sprintf("waits for committed facts, %v at most", factsGrace)
	if few := n.tooFew(); few != "" {
		why += " (" + few + ")"
	}
	return why
}

// tooFew says how many routers are missing to found a cluster; empty if none is.
func (n *Node) tooFew() string {
	seen, expect := len(n.peers())+1, n.cfg.Cluster.BootstrapExpect
	if seen >= expect || n.raft.Status().ClusterID != "" {
		return ""
	}
	return fmt.Sprintf("%d of the %d routers that found a cluster are here, see cluster.bootstrap_expect", seen, expect)
}
