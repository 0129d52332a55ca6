package node

import "fmt"

// warnings are what this router has to say that no figure shows, for people.
func (n *Node) warnings() (list []string) {
	for _, f := range n.gossip.JoinFaults() {
		list = append(list, fmt.Sprintf("can't join %s: %s", f.Addr, f.Why))
	}
	return list
}
