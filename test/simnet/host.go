package simnet

import (
	"context"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// backlog bounds the connections a listener holds that nobody accepted yet; dials
// past it hang.
const backlog = 128

// Host is one machine with one address. Safe for concurrent use.
type Host struct {
	net       *Net
	name      string
	ip        net.IP
	down      bool // crashed: nothing can be opened
	hidden    bool // its name does not resolve
	nextPort  int
	listeners map[int]*Listener
	packets   map[int]*PacketConn
	traffic   Traffic
}

// Traffic counts payload bytes a host sent and received, and its sends: writes to
// streams (one that waits for room counts again) and datagrams.
type Traffic struct {
	StreamOut, StreamIn, PacketOut, PacketIn int64
	Sends                                    int64
}

// Name is the host's name, which resolves to its address.
func (h *Host) Name() string { return h.name }

// IP is the host's present address.
func (h *Host) IP() net.IP {
	h.net.lock()
	defer h.net.unlock()
	return h.ip
}

// Traffic is what the host has sent and received so far.
func (h *Host) Traffic() Traffic {
	h.net.lock()
	defer h.net.unlock()
	return h.traffic
}

// SetResolvable says whether the host's name resolves; its address always works.
func (h *Host) SetResolvable(ok bool) {
	h.net.lock()
	defer h.net.unlock()
	h.hidden = !ok
}

// Readdress crashes the host and gives it a new address; Restart brings it back.
func (h *Host) Readdress() {
	h.Crash()
	h.net.lock()
	defer h.net.unlock()
	delete(h.net.byIP, h.ip.String())
	h.ip = h.net.newIP()
	h.net.byIP[h.ip.String()] = h
}

// Crash ends the host's process as seen from outside: its connections are reset,
// its listeners and packet sockets are gone, and nothing can be opened on it until
// Restart. A peer that is cut off learns of it when healed.
func (h *Host) Crash() {
	h.net.lock()
	defer h.net.unlock()
	h.down = true
	for _, l := range h.listeners {
		l.close()
	}
	for _, p := range h.packets {
		p.close()
	}
	for c := range h.net.conns {
		if c.host == h {
			c.abort()
		}
	}
}

// Restart lets the host open sockets again.
func (h *Host) Restart() {
	h.net.lock()
	defer h.net.unlock()
	h.down = false
}

// LookupHost resolves a name to its address.
func (h *Host) LookupHost(_ context.Context, name string) ([]string, error) {
	h.net.lock()
	defer h.net.unlock()
	o, _, err := h.resolve(name)
	if err != nil {
		return nil, err
	}
	return []string{o.ip.String()}, nil
}

// resolve finds the host meant by a name or address; loopback is h itself.
func (h *Host) resolve(s string) (o *Host, loop bool, err error) {
	if s == "" || s == "localhost" {
		return h, true, nil
	}
	if ip := net.ParseIP(s); ip != nil {
		if ip.IsLoopback() || ip.IsUnspecified() {
			return h, true, nil
		}
		return h.net.byIP[ip.String()], false, nil // nil: nobody has that address
	}
	if o := h.net.hosts[s]; o != nil && !o.hidden {
		return o, o == h, nil
	}
	return nil, false, &net.DNSError{Err: "no such host", Name: s, IsNotFound: true}
}

func opError(op, network string, addr net.Addr, err error) error {
	if no, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError(op, no)
	}
	return &net.OpError{Op: op, Net: network, Addr: addr, Err: err}
}

// bind splits a listen address. The caller holds mu.
func (h *Host) bind(address string, used func(int) bool) (ip net.IP, port int, err error) {
	if h.down {
		return nil, 0, syscall.ENETDOWN
	}
	s, p, err := net.SplitHostPort(address)
	if err != nil {
		return nil, 0, err
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 {
		return nil, 0, &net.AddrError{Err: "invalid port", Addr: address}
	}
	o, loop, err := h.resolve(s)
	if err != nil {
		return nil, 0, err
	}
	if o != h {
		return nil, 0, syscall.EADDRNOTAVAIL
	}
	ip = h.ip
	if parsed := net.ParseIP(s); s == "localhost" || loop && parsed != nil && parsed.IsLoopback() {
		ip = net.IPv4(127, 0, 0, 1)
	}
	if port == 0 {
		if port, err = h.ephemeral(used); err != nil {
			return nil, 0, err
		}
	} else if used(port) {
		return nil, 0, syscall.EADDRINUSE
	}
	return ip, port, nil
}

func (h *Host) ephemeral(used func(int) bool) (int, error) {
	for range 1 << 15 {
		p := h.nextPort
		if h.nextPort++; h.nextPort > 65535 {
			h.nextPort = 32768
		}
		if !used(p) {
			return p, nil
		}
	}
	return 0, syscall.EADDRINUSE
}

// Listen opens a listener for streams on "host:port"; port 0 picks a free one. An
// empty or unspecified host listens on the host's address, a loopback one only for
// the host itself.
func (h *Host) Listen(network, address string) (net.Listener, error) {
	h.net.lock()
	defer h.net.unlock()
	ip, port, err := h.bind(address, func(p int) bool { return h.listeners[p] != nil })
	if err != nil {
		return nil, opError("listen", network, nil, err)
	}
	l := &Listener{host: h, addr: &net.TCPAddr{IP: ip, Port: port}}
	l.ready.L = &h.net.mu
	h.listeners[port] = l
	return l, nil
}

// Dial is DialContext without a bound.
func (h *Host) Dial(network, address string) (net.Conn, error) {
	return h.DialContext(context.Background(), network, address)
}

// DialContext connects to "host:port", by name or address. It is refused after a
// round trip when nobody listens there, and hangs until ctx ends when the host is
// cut off, unknown, or its backlog is full.
func (h *Host) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	s, p, err := net.SplitHostPort(address)
	if err != nil {
		return nil, opError("dial", network, nil, err)
	}
	port, err := strconv.Atoi(p)
	if err != nil {
		return nil, opError("dial", network, nil, &net.AddrError{Err: "invalid port", Addr: address})
	}
	waited := false // the handshake's round trip is over
	for {
		h.net.lock()
		c, wait, again, err := h.try(s, port, waited)
		h.net.unlock()
		if err != nil {
			return nil, opError("dial", network, nil, err)
		}
		if c != nil {
			return c, nil
		}
		var elapsed <-chan time.Time
		var t *time.Timer
		if again == nil {
			t = time.NewTimer(wait)
			elapsed = t.C
		}
		select {
		case <-ctx.Done():
			if t != nil {
				t.Stop()
			}
			err := ctx.Err()
			if err == context.DeadlineExceeded {
				err = os.ErrDeadlineExceeded
			}
			return nil, opError("dial", network, nil, err)
		case <-elapsed:
			waited = true
		case <-again:
		}
	}
}

// try makes one attempt: a connection, or how long the round trip takes, or the
// channel whose closing says to look again. The caller holds the lock.
func (h *Host) try(host string, port int, waited bool) (c *Conn, wait time.Duration, again chan struct{}, err error) {
	n := h.net
	if h.down {
		return nil, 0, nil, syscall.ENETDOWN
	}
	to, loop, err := h.resolve(host)
	if err != nil {
		return nil, 0, nil, err
	}
	if to == nil || n.cut(h, to) || n.cut(to, h) {
		return nil, 0, n.changed, nil
	}
	if rtt := n.delay(h, to) + n.delay(to, h); rtt > 0 && !waited {
		return nil, rtt, nil, nil
	}
	l := to.listeners[port]
	if l == nil || l.addr.IP.IsLoopback() && to != h {
		return nil, 0, nil, syscall.ECONNREFUSED
	}
	if len(l.queue) >= backlog {
		return nil, 0, n.changed, nil
	}
	from, at := h.ip, to.ip
	if loop {
		from, at = net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 1)
	}
	eph, err := h.ephemeral(func(int) bool { return false })
	if err != nil {
		return nil, 0, nil, err
	}
	client, server := connect(h, to, &net.TCPAddr{IP: from, Port: eph}, &net.TCPAddr{IP: at, Port: port})
	l.queue = append(l.queue, server)
	l.ready.Signal()
	return client, 0, nil, nil
}

// Listener accepts streams on one port of a host.
type Listener struct {
	host   *Host
	addr   *net.TCPAddr
	ready  sync.Cond
	queue  []*Conn
	closed bool
}

// Accept waits for the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	n := l.host.net
	n.lock()
	defer n.unlock()
	for len(l.queue) == 0 && !l.closed {
		n.wait(&l.ready)
	}
	if l.closed {
		return nil, opError("accept", "tcp", l.addr, net.ErrClosed)
	}
	c := l.queue[0]
	l.queue = l.queue[1:]
	if len(l.queue) == backlog-1 {
		n.wakeDials()
	}
	return c, nil
}

// Close stops listening; connections not yet accepted are reset.
func (l *Listener) Close() error {
	l.host.net.lock()
	defer l.host.net.unlock()
	if l.closed {
		return opError("close", "tcp", l.addr, net.ErrClosed)
	}
	l.close()
	return nil
}

func (l *Listener) close() {
	l.closed = true
	delete(l.host.listeners, l.addr.Port)
	for _, c := range l.queue {
		c.abort()
	}
	l.queue = nil
	l.ready.Broadcast()
	l.host.net.wakeDials()
}

// Addr is the address listened on.
func (l *Listener) Addr() net.Addr { return l.addr }
