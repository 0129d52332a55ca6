package node

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/gossip"
	"github.com/hearsay-llm/hearsay/cluster/mesh"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// warnings are what this router has to say that no figure shows, for people.
func (n *Node) warnings() (list []string) {
	for _, f := range n.gossip.JoinFaults() {
		list = append(list, fmt.Sprintf("can't join %s: %s", f.Addr, f.Why))
	}
	supplanted := n.supplanted()
	for _, r := range n.gossip.Refused() {
		list = append(list, notLetIn(&r, n.id))
		supplanted = supplanted && r.ID != n.id // said already, and where
	}
	if supplanted {
		list = append(list, "another router has the same node id as this one, and takes its place at others: "+ownDirectory)
	}
	if why := n.keysFault.Load(); why != nil {
		list = append(list, "cluster.secret_file can't be used, so the shared keys stay as they were: "+*why)
	}
	list = append(list, n.discoveryWarnings(time.Now())...)
	if why := n.cert.warning(time.Now()); why != "" {
		list = append(list, why)
	}
	if why := n.routerTLS.warning(time.Now()); why != "" {
		list = append(list, why)
	}
	list = append(list, n.configWarnings()...)
	list = append(list, n.scaleWarnings()...)
	list = append(list, n.orphanWarnings()...)
	if n.cutOff() {
		list = append(list, "cluster.secret_file: "+noFormerKey)
	}
	if why := n.joinFault.Load(); why != nil {
		list = append(list, fmt.Sprintf("cluster.join_file %s: %s; what it named before is still tried", n.cfg.Cluster.JoinFile, *why))
	}
	if c := &n.cfg.Cluster; c.joins() && c.BootstrapExpect == 1 && n.raft.Status().ClusterID == "" {
		list = append(list, onlyJoins)
	}
	if few := n.tooFew(); few != "" {
		list = append(list, few+": start the others, or restart with the number there are to be")
	}
	return list
}

// keepSupplanted is how long it is said that another router took this one's place: the
// two take turns every few seconds.
const keepSupplanted = 15 * time.Second

// supplanted says that others lately gave this router's place to one with its id.
func (n *Node) supplanted() bool {
	return slices.ContainsFunc(n.mesh.Refusals(), func(r mesh.Refusal) bool {
		return r.Reason == mesh.ReasonTwice && r.ByPeer && time.Since(r.Last) < keepSupplanted
	})
}

// twice says whose streams come and go because two routers have one id: all peers',
// where this router is one of the two.
func (n *Node) twice() func(state.RouterID) bool {
	self, refused := n.supplanted(), n.gossip.Refused()
	return func(id state.RouterID) bool {
		return self || slices.ContainsFunc(refused, func(r gossip.Refused) bool {
			return r.Reason == gossip.RefusedTwice && (r.ID == id || r.ID == n.id)
		})
	}
}

// onlyJoins is said while there is no cluster to join: where all routers are
// configured so, there will never be one.
const onlyJoins = "this router founds no cluster, it only joins one (cluster.join is set and cluster.bootstrap_expect is 1): " +
	"if there is none yet, set bootstrap_expect to the number of routers you start with, or start one router without join"

// refusals are the mesh's reasons for refusing a stream in words, with what to do.
var refusals = map[string]string{
	mesh.ReasonClusterID: "it is of another cluster, the two were founded apart. To make them one, stop the routers of one, " +
		"rm -r <data_dir>/raft of each, and start them with --join of the other",
	mesh.ReasonCluster:   "it has another cluster.name: set the same on all routers of a cluster",
	mesh.ReasonScheme:    "it hashes prefixes otherwise, so what one has learned means nothing to the other: run the same release on both",
	mesh.ReasonVersion:   "its release and this one have no wire version in common: upgrade the older one",
	mesh.ReasonSelf:      "it says that it has this router's node id: " + ownDirectory,
	mesh.ReasonOther:     "another router answers there: compare listen.cluster and listen.advertise of both",
	mesh.ReasonTwice:     "another router has the same node id, and one takes the other's place: " + ownDirectory,
	mesh.ReasonTLS:       "TLS fails between them: compare cluster.tls of both, and until when the certificates are valid",
	mesh.ReasonProto:     "it does not serve what this router asks for: run neighbouring releases",
	mesh.ReasonMalformed: "what answers there is not understood here: is it a router, and of a neighbouring release?",
}

// ownDirectory is what to do where two routers have one node id.
const ownDirectory = "every router needs a data directory of its own; where one was copied, stop that router and remove node-id and raft there"

// refusal puts the reason for which a stream was refused, by either side, in words.
func refusal(reason string, secrets []string) string {
	switch {
	case reason != mesh.ReasonSecret:
		return cmp.Or(refusals[reason], reason)
	case len(secrets) == 0:
		return "it has a secret, this router none: set cluster.secret_file"
	}
	return fmt.Sprintf("shared secrets differ, or it has none (here %s): compare 'hearsay status -o wide'", secrets[0])
}

// trouble says in words what is wrong between this router and another one. refused
// is the mesh's reason, when a stream to it was refused: that goes before what is
// only guessed from what does not pass.
func trouble(m *gossip.Member, refused string, secrets []string) string {
	switch m.Degraded {
	case "":
		switch {
		case m.State != gossip.Dead:
		case refused != "":
			return "it refuses this router, or is refused: " + refusal(refused, secrets)
		case m.Answers:
			return "it can't be made a member again: " + m.JoinErr
		}
		return ""
	case gossip.NoStream:
		if refused != "" {
			return "no stream to it, so prefixes are not shared with it: " + refusal(refused, secrets)
		}
		return "no stream to its mesh port " + m.MeshAddr + ", so prefixes are not shared with it: has it just stopped, or is TCP blocked?"
	case gossip.NotMember:
		switch {
		case refused != "":
			return "it is no member any more: " + refusal(refused, secrets)
		case m.JoinErr == gossip.SecretsDiffer && len(secrets) > 0:
			return fmt.Sprintf("membership refused, shared secrets differ (here %s): compare 'hearsay status -o wide'", secrets[0])
		case m.JoinErr != "":
			return "a stream to it is up, but it is no member: " + m.JoinErr
		}
		return "a stream to it is up, but it is no member: are TCP and UDP open on its cluster port " + m.Addr + "?"
	case gossip.UDPBlocked:
		return "datagrams do not pass between it and this router: is UDP open on its cluster port " + m.Addr + ", both ways?"
	case gossip.Silent:
		return "it is a member, but nothing came of it for a while: its load is not counted"
	}
	return m.Degraded
}

// notLetIn says why membership does not let a router in.
func notLetIn(r *gossip.Refused, self state.RouterID) string {
	who := fmt.Sprintf("router %s at %s is not let in: ", cmp.Or(r.Name, string(r.ID)), r.Addr)
	switch r.Reason {
	case gossip.RefusedScheme:
		return fmt.Sprintf("%sit hashes prefixes by scheme %s, this router by %s: run the same release on both", who, r.Scheme, scheme)
	case gossip.RefusedVersion:
		return fmt.Sprintf("%sit speaks wire versions %d to %d, this release %d to %d: upgrade the older one", who, r.MinVersion, r.Version, wire.MinVersion, wire.Version)
	case gossip.RefusedTwice:
		if r.ID == self {
			return who + "it has this router's node id: " + ownDirectory
		}
		return who + "another router has the same node id: " + ownDirectory
	}
	return who + "what it says of itself is not understood here: run neighbouring releases"
}

// secretPrints are the fingerprints of the shared keys in use, the first one first.
func (n *Node) secretPrints() []string {
	if p := n.prints.Load(); p != nil {
		return *p
	}
	return nil
}

// warnReadable warns of a file of secrets that every user of the machine may read.
func (n *Node) warnReadable(key, path string) {
	if path == "" {
		return
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o004 != 0 {
		n.log.Warn().Str("key", key).Str("file", path).Msg("everybody on this machine can read the secret: chmod 600 the file")
	}
}
