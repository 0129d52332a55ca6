package cases

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/test/harness"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// world is what a test's routers, engines and clients are connected by: a simulated
// network in the test's bubble, or loopback where it is nil.
type world struct {
	net            *simnet.Net
	routers, peers int // hosts so far
}

// inBubble runs a test whose clock costs nothing and waits for everybody, so that what
// is said of times holds on a busy machine too.
func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(30 * time.Second) }) // at last: membership's probes run out
		n := simnet.New(1)
		n.SetDefault(simnet.Link{Delay: 100 * time.Microsecond})
		f(t, &world{net: n})
	})
}

// listen opens a port for an engine; both addresses are its own.
func (w *world) listen(t testing.TB) (ln net.Listener, addr, alias string) {
	t.Helper()
	if w == nil {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		port := ln.Addr().(*net.TCPAddr).Port
		return ln, fmt.Sprint("127.0.0.1:", port), fmt.Sprint("localhost:", port)
	}
	w.peers++
	h := w.net.Host(fmt.Sprint("e", w.peers))
	ln, err := h.Listen("tcp", ":8000")
	must(t, err)
	return ln, h.Name() + ":8000", h.IP().String() + ":8000"
}

// place is where a router is.
type place struct {
	host                *simnet.Host // nil: loopback
	api, admin, cluster string       // where others reach it; admin is for its own host alone
}

// places are those of n routers that know each other.
func (w *world) places(t testing.TB, n int) (list []place) {
	t.Helper()
	if w == nil {
		ports, err := harness.Ports(3 * n)
		must(t, err)
		at := func(i int) string { return fmt.Sprint("127.0.0.1:", ports[i]) }
		for i := range n {
			list = append(list, place{nil, at(3 * i), at(3*i + 1), at(3*i + 2)})
		}
		return list
	}
	for range n {
		w.routers++
		h := w.net.Host(fmt.Sprint("r", w.routers))
		ip := h.IP().String()
		list = append(list, place{h, ip + ":8080", "127.0.0.1:8081", ip + ":7946"})
	}
	return list
}

// node has a router listen and dial from its place.
func (p *place) node(c *node.Config, d *node.Deps) {
	c.Listen.API, c.Listen.Admin, c.Listen.Cluster = p.api, p.admin, p.cluster
	if p.host == nil {
		return
	}
	c.Cluster.Insecure = true // the network is ours
	d.Listen, d.ListenPacket, d.Resolve = p.host.Listen, p.host.ListenPacket, p.host.LookupHost
	if d.Dial == nil {
		d.Dial = p.host.DialContext
	}
}

// client is for the router's admin port.
func (p *place) client() *http.Client {
	tr := &http.Transport{}
	if p.host != nil {
		tr.DialContext = p.host.DialContext
	}
	return &http.Client{Transport: tr}
}

// dial opens a client's connection.
func (w *world) dial(addr string) (net.Conn, error) {
	if w == nil {
		return net.Dial("tcp", addr)
	}
	return w.net.Host("client").Dial("tcp", addr)
}

// reset closes a connection with RST.
func reset(c net.Conn) {
	switch c := c.(type) {
	case *net.TCPConn:
		_ = c.SetLinger(0)
		_ = c.Close()
	case *simnet.Conn:
		_ = c.Reset()
	}
}
