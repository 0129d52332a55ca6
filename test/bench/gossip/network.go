package main

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/hearsay-llm/hearsay/test/simnet"
)

// host is one router's place in a network.
type host struct {
	listen func() (members, mesh net.Listener, packets net.PacketConn, err error)
	dial   func(ctx context.Context, addr string) (net.Conn, error)
}

// network makes hosts.
type network func(name string) host

func simulated() network {
	n := simnet.New(1)
	n.SetDefault(simnet.Link{Delay: 500 * time.Microsecond, Jitter: time.Millisecond})
	return func(name string) host {
		h := n.Host(name)
		return host{
			listen: func() (members, mesh net.Listener, packets net.PacketConn, err error) {
				if members, err = h.Listen("tcp", ":7946"); err != nil {
					return
				}
				if mesh, err = h.Listen("tcp", ":7947"); err != nil {
					return
				}
				packets, err = h.ListenPacket("udp", ":7946")
				return
			},
			dial: func(ctx context.Context, a string) (net.Conn, error) { return h.DialContext(ctx, "tcp", a) },
		}
	}
}

func loopback() network {
	return func(string) host {
		d := net.Dialer{}
		return host{
			listen: func() (members, mesh net.Listener, packets net.PacketConn, err error) {
				for range 50 { // the same port for both
					if members, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
						return
					}
					if packets, err = net.ListenPacket("udp", members.Addr().String()); err == nil {
						break
					}
					_ = members.Close()
				}
				if err != nil {
					return nil, nil, nil, fmt.Errorf("no port free for both: %w", err)
				}
				mesh, err = net.Listen("tcp", "127.0.0.1:0")
				return
			},
			dial: func(ctx context.Context, a string) (net.Conn, error) { return d.DialContext(ctx, "tcp", a) },
		}
	}
}

// counter counts what passes through sockets: payload bytes, and writes.
type counter struct{ out, in, writes atomic.Int64 }

func (c *counter) wrote(n int) {
	c.out.Add(int64(n))
	c.writes.Add(1)
}

func (c *counter) dial(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, a string) (net.Conn, error) {
		conn, err := dial(ctx, a)
		if err != nil {
			return nil, err
		}
		return countedConn{conn, c}, nil
	}
}

type countedListener struct {
	net.Listener
	c *counter
}

func (l countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countedConn{conn, l.c}, nil
}

type countedConn struct {
	net.Conn
	c *counter
}

func (x countedConn) Read(b []byte) (int, error) {
	n, err := x.Conn.Read(b)
	x.c.in.Add(int64(n))
	return n, err
}

func (x countedConn) Write(b []byte) (int, error) {
	n, err := x.Conn.Write(b)
	x.c.wrote(n)
	return n, err
}

type countedPackets struct {
	net.PacketConn
	c *counter
}

func (x countedPackets) ReadFrom(b []byte) (int, net.Addr, error) {
	n, a, err := x.PacketConn.ReadFrom(b)
	x.c.in.Add(int64(n))
	return n, a, err
}

func (x countedPackets) WriteTo(b []byte, a net.Addr) (int, error) {
	n, err := x.PacketConn.WriteTo(b, a)
	x.c.wrote(n)
	return n, err
}
