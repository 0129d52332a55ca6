// Package simnet is a network in memory for tests: hosts with addresses, TCP-like
// streams with back-pressure, half-close and resets, UDP-like datagrams, and
// links with delay, jitter, loss and cuts.
//
// It runs inside a testing/synctest bubble (create the Net in it) and outside. It
// starts no goroutine of its own: everything waiting is durably blocked or is a
// timer, so that a bubble's time advances, and nothing is left behind once its
// connections are closed.
//
// It does not model bandwidth, congestion or retransmission: streams are delayed
// and held by cuts, never lossy; loss is for datagrams.
package simnet

import (
	"math/rand"
	"net"
	"sync"
	"time"
)

// Link is one direction between two hosts.
type Link struct {
	Delay  time.Duration // added to every segment and datagram
	Jitter time.Duration // uniform extra delay in [0, Jitter); streams stay in order, datagrams may not
	Loss   float64       // share of datagrams lost, 0..1; 1 blocks UDP and leaves TCP open
}

// Net is a set of hosts and the links between them. Safe for concurrent use.
type Net struct {
	mu      sync.Mutex
	rng     *rand.Rand
	hosts   map[string]*Host
	byIP    map[string]*Host
	links   map[pair]Link
	cuts    map[pair]bool
	def     Link
	conns   map[*Conn]struct{} // those with something left to deliver or to do
	changed chan struct{}      // closed and replaced when a dial that hangs should look again
	after   []func()           // callbacks to run once mu is free
	nextIP  int
}

// pair is one direction: from, to.
type pair [2]*Host

// New returns an empty network whose chances follow from seed.
func New(seed int64) *Net {
	return &Net{
		rng:     rand.New(rand.NewSource(seed)),
		hosts:   map[string]*Host{},
		byIP:    map[string]*Host{},
		links:   map[pair]Link{},
		cuts:    map[pair]bool{},
		conns:   map[*Conn]struct{}{},
		changed: make(chan struct{}),
	}
}

// Host returns the host of that name, made at its first mention. Its address
// stays the same across Crash and Restart.
func (n *Net) Host(name string) *Host {
	n.lock()
	defer n.unlock()
	return n.host(name)
}

func (n *Net) host(name string) *Host {
	h := n.hosts[name]
	if h == nil {
		h = &Host{
			net: n, name: name, nextPort: 32768,
			listeners: map[int]*Listener{}, packets: map[int]*PacketConn{},
		}
		h.ip = n.newIP()
		n.hosts[name], n.byIP[h.ip.String()] = h, h
	}
	return h
}

func (n *Net) newIP() net.IP {
	n.nextIP++
	return net.IPv4(10, 0, byte(n.nextIP>>8), byte(n.nextIP))
}

// SetDefault sets what links are that SetLink did not name.
func (n *Net) SetDefault(l Link) {
	n.lock()
	defer n.unlock()
	n.def = l
}

// SetLink sets one direction between two hosts. What is already on its way keeps
// the delay it left with.
func (n *Net) SetLink(from, to string, l Link) {
	n.lock()
	defer n.unlock()
	n.links[pair{n.host(from), n.host(to)}] = l
}

// SetLinks sets both directions between two hosts.
func (n *Net) SetLinks(a, b string, l Link) {
	n.SetLink(a, b, l)
	n.SetLink(b, a, l)
}

// Cut stops everything between two hosts in both directions. Streams are held and
// go on when healed; datagrams are lost; dials hang.
func (n *Net) Cut(a, b string) { n.set(true, a, b, true) }

// CutOneWay stops everything from one host to another.
func (n *Net) CutOneWay(from, to string) { n.set(true, from, to, false) }

// Heal undoes cuts between two hosts in both directions.
func (n *Net) Heal(a, b string) { n.set(false, a, b, true) }

// HealOneWay undoes a cut from one host to another.
func (n *Net) HealOneWay(from, to string) { n.set(false, from, to, false) }

// Isolate cuts a host off from every host known now.
func (n *Net) Isolate(name string) {
	n.lock()
	defer n.unlock()
	h := n.host(name)
	for _, o := range n.hosts {
		if o != h {
			n.cuts[pair{h, o}], n.cuts[pair{o, h}] = true, true
		}
	}
}

// Partition cuts every host of one group off from every host of another.
func (n *Net) Partition(groups ...[]string) {
	for i, g := range groups {
		for _, other := range groups[i+1:] {
			for _, a := range g {
				for _, b := range other {
					n.Cut(a, b)
				}
			}
		}
	}
}

// HealAll undoes every cut.
func (n *Net) HealAll() {
	n.lock()
	defer n.unlock()
	clear(n.cuts)
	n.heal()
}

func (n *Net) set(cut bool, a, b string, both bool) {
	n.lock()
	defer n.unlock()
	x, y := n.host(a), n.host(b)
	put := func(p pair) {
		if cut {
			n.cuts[p] = true
		} else {
			delete(n.cuts, p)
		}
	}
	put(pair{x, y})
	if both {
		put(pair{y, x})
	}
	if !cut {
		n.heal()
	}
}

// heal lets what was held go on. The caller holds mu.
func (n *Net) heal() {
	for c := range n.conns {
		c.out.pump()
	}
	n.wakeDials()
}

func (n *Net) wakeDials() {
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *Net) cut(from, to *Host) bool { return from != to && n.cuts[pair{from, to}] }

func (n *Net) link(from, to *Host) Link {
	if from == to {
		return Link{}
	}
	if l, ok := n.links[pair{from, to}]; ok {
		return l
	}
	return n.def
}

// delay draws how long something sent now takes. The caller holds mu.
func (n *Net) delay(from, to *Host) time.Duration {
	l := n.link(from, to)
	if l.Jitter > 0 {
		return l.Delay + time.Duration(n.rng.Int63n(int64(l.Jitter)))
	}
	return l.Delay
}

func (n *Net) lock() { n.mu.Lock() }

// unlock frees mu and runs the callbacks that arose meanwhile.
func (n *Net) unlock() {
	after := n.after
	n.after = nil
	n.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// wait blocks on c, or returns at once to let callbacks run first. The caller
// holds mu and looks at its condition again.
func (n *Net) wait(c *sync.Cond) {
	if len(n.after) > 0 {
		n.unlock()
		n.lock()
		return
	}
	c.Wait()
}
