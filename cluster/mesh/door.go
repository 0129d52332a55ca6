package mesh

import (
	"net"
	"sync"
)

// Bounds of the accepted connections that have not proved themselves: in all, and from
// one address, so that no single host that says nothing keeps the routers out.
const (
	maxHandshakes = 128
	maxOfOneHost  = maxHandshakes / 2
)

// door counts the connections that have not proved themselves. Safe for concurrent use.
type door struct {
	mu   sync.Mutex
	all  int            // guarded by mu
	from map[string]int // guarded by mu; by host; none is 0
}

func newDoor() *door { return &door{from: map[string]int{}} }

// enter takes a place, if there is one. Who has one leaves.
func (d *door) enter(host string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all >= maxHandshakes || d.from[host] >= maxOfOneHost {
		return false
	}
	d.all++
	d.from[host]++
	return true
}

func (d *door) leave(host string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all--
	if d.from[host]--; d.from[host] == 0 {
		delete(d.from, host)
	}
}

// hostOf is where a connection comes from, without the port.
func hostOf(c net.Conn) string {
	at := c.RemoteAddr().String()
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return at
	}
	return host
}
