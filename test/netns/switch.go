package netns

import (
	"io"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// maxHeld bounds the packets that one direction holds back; more are lost, as in a full queue.
const maxHeld = 10_000

// Switch passes packets between hosts. Safe for concurrent use.
type Switch struct {
	mu    sync.Mutex
	rng   *rand.Rand           // guarded by mu
	ports map[netip.Addr]*port // guarded by mu
	names map[string]*port     // guarded by mu
	links map[[2]*port]Link    // guarded by mu; from, to
	pipes map[[2]*port]*pipe   // guarded by mu; from, to
	count map[[2]*port]*tally  // guarded by mu; from, to
}

// tally counts what passed a direction and what did not.
type tally struct{ passed, lost uint64 }

// port is a host as the switch knows it.
type port struct {
	out io.Writer // takes one whole packet a call
}

// NewSwitch returns one without hosts. Its chances follow from seed.
func NewSwitch(seed uint64) *Switch {
	return &Switch{
		rng:   rand.New(rand.NewPCG(seed, 1)),
		ports: map[netip.Addr]*port{}, names: map[string]*port{},
		links: map[[2]*port]Link{}, pipes: map[[2]*port]*pipe{}, count: map[[2]*port]*tally{},
	}
}

// attach makes a host known; packets for it are written to out.
func (s *Switch) attach(name string, ip netip.Addr, out io.Writer) *port {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &port{out}
	s.ports[ip], s.names[name] = p, p
	return p
}

// Set sets one direction between two hosts. A host that is not known changes nothing. What is under way arrives
// as it would have.
func (s *Switch) Set(from, to string, l Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, b := s.names[from], s.names[to]
	if a != nil && b != nil {
		s.links[[2]*port{a, b}] = l
	}
}

// SetBoth sets both directions between two hosts.
func (s *Switch) SetBoth(a, b string, l Link) {
	s.Set(a, b, l)
	s.Set(b, a, l)
}

// Heal lets everything pass at once again.
func (s *Switch) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.links)
}

// Counts are the packets from one host to another that were let through, and those that were lost.
func (s *Switch) Counts(from, to string) (passed, lost uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.count[[2]*port{s.names[from], s.names[to]}]; c != nil {
		return c.passed, c.lost
	}
	return 0, 0
}

// pass takes a packet that a host has sent. It keeps nothing of b.
func (s *Switch) pass(from *port, b []byte) {
	ip, proto, ok := header(b)
	if !ok {
		return
	}
	s.mu.Lock()
	to := s.ports[ip]
	if to == nil {
		s.mu.Unlock()
		return
	}
	way := [2]*port{from, to}
	l, count, p := s.links[way], s.count[way], s.pipes[way]
	if count == nil {
		count, p = &tally{}, &pipe{out: to.out}
		s.count[way], s.pipes[way] = count, p
	}
	if !l.passes(proto, s.rng.Float64()) {
		count.lost++
		s.mu.Unlock()
		return
	}
	count.passed++
	d := l.takes(s.rng)
	s.mu.Unlock()
	p.send(b, d)
}

// pipe is one direction's packets that are under way, in order.
type pipe struct {
	out io.Writer

	mu      sync.Mutex
	held    []parcel // guarded by mu
	running bool     // guarded by mu: somebody delivers what is held
}

type parcel struct {
	due  time.Time
	data []byte
}

// send delivers a packet after d, and not before those sent earlier. It keeps nothing of b.
func (p *pipe) send(b []byte, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d <= 0 && !p.running {
		_, _ = p.out.Write(b) // a host that is gone, or whose queue is full, loses it
		return
	}
	if len(p.held) >= maxHeld {
		return
	}
	due := time.Now().Add(d)
	if n := len(p.held); n > 0 && p.held[n-1].due.After(due) {
		due = p.held[n-1].due
	}
	p.held = append(p.held, parcel{due, append([]byte(nil), b...)})
	if !p.running {
		p.running = true
		go p.deliver()
	}
}

// deliver hands over what is held until there is nothing.
func (p *pipe) deliver() {
	for {
		p.mu.Lock()
		if len(p.held) == 0 {
			p.running = false
			p.mu.Unlock()
			return
		}
		next := p.held[0]
		p.held = p.held[1:]
		p.mu.Unlock()
		time.Sleep(time.Until(next.due))
		_, _ = p.out.Write(next.data)
	}
}
