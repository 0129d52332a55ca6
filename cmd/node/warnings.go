package node

import (
	"fmt"
	"os"

	"github.com/hearsay-llm/hearsay/cluster/gossip"
)

// warnings are what this router has to say that no figure shows, for people.
func (n *Node) warnings() (list []string) {
	for _, f := range n.gossip.JoinFaults() {
		list = append(list, fmt.Sprintf("can't join %s: %s", f.Addr, f.Why))
	}
	return list
}

// trouble says in words what is wrong between this router and another one.
func trouble(m *gossip.Member, secrets []string) string {
	switch m.Degraded {
	case gossip.NotMember:
		switch {
		case m.JoinErr == gossip.SecretsDiffer && len(secrets) > 0:
			return fmt.Sprintf("membership refused, shared secrets differ (here %s): compare 'hearsay status -o wide'", secrets[0])
		case m.JoinErr != "":
			return "a stream to it is up, but it is no member: " + m.JoinErr
		}
		return "a stream to it is up, but it is no member: are TCP and UDP open on its cluster port " + m.Addr + "?"
	case gossip.NoStream:
		return "no stream to its mesh port " + m.MeshAddr + ", so prefixes are not shared with it: is TCP open there?"
	case gossip.UDPBlocked:
		return "datagrams do not pass between it and this router: is UDP open on its cluster port " + m.Addr + ", both ways?"
	case gossip.Silent:
		return "it is a member, but nothing came of it for a while: its load is not counted"
	}
	return m.Degraded
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
