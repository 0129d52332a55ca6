package simnet

import (
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	maxDatagram   = 65507
	packetBacklog = 2048 // datagrams held unread; more are lost
)

// PacketConn is a datagram socket on one port of a host.
type PacketConn struct {
	host   *Host
	addr   *net.UDPAddr
	ready  sync.Cond
	queue  []datagram
	closed bool
	rd     deadline
}

type datagram struct {
	data []byte
	from *net.UDPAddr
}

// ListenPacket opens a datagram socket on "host:port"; port 0 picks a free one.
func (h *Host) ListenPacket(network, address string) (net.PacketConn, error) {
	h.net.lock()
	defer h.net.unlock()
	ip, port, err := h.bind(address, func(p int) bool { return h.packets[p] != nil })
	if err != nil {
		return nil, opError("listen", network, nil, err)
	}
	p := &PacketConn{host: h, addr: &net.UDPAddr{IP: ip, Port: port}}
	p.ready.L = &h.net.mu
	h.packets[port] = p
	return p, nil
}

// ReadFrom implements net.PacketConn.
func (p *PacketConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n := p.host.net
	n.lock()
	defer n.unlock()
	for {
		switch {
		case p.closed:
			return 0, nil, opError("read", "udp", p.addr, net.ErrClosed)
		case p.rd.passed():
			return 0, nil, opError("read", "udp", p.addr, os.ErrDeadlineExceeded)
		case len(p.queue) > 0:
			d := p.queue[0]
			p.queue[0] = datagram{}
			p.queue = p.queue[1:]
			return copy(b, d.data), d.from, nil
		}
		n.wait(&p.ready)
	}
}

// WriteTo implements net.PacketConn. It never blocks, and like UDP does not say
// whether the datagram arrived.
func (p *PacketConn) WriteTo(b []byte, addr net.Addr) (int, error) {
	n := p.host.net
	s, ps, err := net.SplitHostPort(addr.String())
	if err != nil {
		return 0, opError("write", "udp", addr, err)
	}
	port, err := strconv.Atoi(ps)
	if err != nil {
		return 0, opError("write", "udp", addr, err)
	}
	n.lock()
	defer n.unlock()
	if p.closed {
		return 0, opError("write", "udp", addr, net.ErrClosed)
	}
	if len(b) > maxDatagram {
		return 0, opError("write", "udp", addr, syscall.EMSGSIZE)
	}
	to, loop, err := p.host.resolve(s)
	if err != nil {
		return 0, opError("write", "udp", addr, err)
	}
	p.host.traffic.PacketOut += int64(len(b))
	p.host.traffic.Sends++
	if to == nil || n.cut(p.host, to) || n.rng.Float64() < n.link(p.host, to).Loss {
		return len(b), nil
	}
	d := datagram{data: append([]byte(nil), b...), from: p.addr}
	if loop {
		d.from = &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: p.addr.Port}
	}
	if wait := n.delay(p.host, to); wait > 0 {
		time.AfterFunc(wait, func() {
			n.lock()
			defer n.unlock()
			to.receive(port, d, p.host)
		})
		return len(b), nil
	}
	to.receive(port, d, p.host)
	return len(b), nil
}

func (h *Host) receive(port int, d datagram, from *Host) {
	p := h.packets[port]
	if p == nil || h.net.cut(from, h) || len(p.queue) >= packetBacklog || p.addr.IP.IsLoopback() && from != h {
		return
	}
	h.traffic.PacketIn += int64(len(d.data))
	p.queue = append(p.queue, d)
	p.ready.Signal()
}

// Close implements net.PacketConn.
func (p *PacketConn) Close() error {
	p.host.net.lock()
	defer p.host.net.unlock()
	if p.closed {
		return opError("close", "udp", p.addr, net.ErrClosed)
	}
	p.close()
	return nil
}

func (p *PacketConn) close() {
	p.closed, p.queue = true, nil
	p.rd.stop()
	delete(p.host.packets, p.addr.Port)
	p.ready.Broadcast()
}

// LocalAddr implements net.PacketConn; it is a *net.UDPAddr.
func (p *PacketConn) LocalAddr() net.Addr { return p.addr }

// SetDeadline implements net.PacketConn.
func (p *PacketConn) SetDeadline(t time.Time) error { return p.SetReadDeadline(t) }

// SetReadDeadline implements net.PacketConn.
func (p *PacketConn) SetReadDeadline(t time.Time) error {
	p.host.net.lock()
	defer p.host.net.unlock()
	p.rd.set(t, &p.ready)
	return nil
}

// SetWriteDeadline implements net.PacketConn; writes never block.
func (p *PacketConn) SetWriteDeadline(time.Time) error { return nil }
