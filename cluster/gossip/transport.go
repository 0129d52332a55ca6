package gossip

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// transport gives memberlist sockets that were opened elsewhere, and closes on
// Shutdown every connection it ever handed out, so that nothing outlives it.
type transport struct {
	cfg     *Config
	ip      net.IP
	port    int
	packets chan *memberlist.Packet
	streams chan net.Conn
	done    chan struct{}
	wg      sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[*tracked]struct{}
}

// packetQueue bounds the datagrams memberlist has not taken yet; more are lost.
const packetQueue = 1024

// newTransport starts two goroutines, which Shutdown ends.
func newTransport(cfg *Config, ip net.IP, port int) *transport {
	t := &transport{
		cfg: cfg, ip: ip, port: port,
		packets: make(chan *memberlist.Packet, packetQueue), streams: make(chan net.Conn),
		done: make(chan struct{}), conns: map[*tracked]struct{}{},
	}
	t.wg.Go(t.readPackets)
	t.wg.Go(t.acceptStreams)
	return t
}

// advertised is the address peers are told.
func advertised(cfg *Config) (net.IP, int, error) {
	addr := cfg.Advertise
	if addr == "" {
		addr = cfg.Listener.Addr().String()
	}
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, 0, err
	}
	if a.Port == 0 {
		if l, ok := cfg.Listener.Addr().(*net.TCPAddr); ok {
			a.Port = l.Port
		}
	}
	if a.IP == nil || a.IP.IsUnspecified() {
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			return nil, 0, err
		}
		if a.IP, err = ownAddress(addrs); err != nil {
			return nil, 0, err
		}
	}
	return a.IP, a.Port, nil
}

// ownAddress is of a machine's addresses the first private one, else the first that is
// not loopback.
func ownAddress(addrs []net.Addr) (net.IP, error) {
	var first net.IP
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || !n.IP.IsGlobalUnicast() {
			continue
		}
		if n.IP.IsPrivate() && n.IP.To4() != nil {
			return n.IP, nil
		}
		if first == nil {
			first = n.IP
		}
	}
	if first == nil {
		return nil, errors.New("listen.cluster is on all interfaces, and this machine has no address but loopback: " +
			"set listen.advertise (HEARSAY_LISTEN_ADVERTISE) to the one that other routers reach it by")
	}
	return first, nil
}

func (t *transport) readPackets() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := t.cfg.Packets.ReadFrom(buf)
		now := time.Now()
		if err != nil {
			if t.over(err) {
				return
			}
			continue
		}
		if n == 0 {
			continue
		}
		p := &memberlist.Packet{Buf: append([]byte(nil), buf[:n]...), From: from, Timestamp: now}
		select {
		case t.packets <- p:
		default:
		}
	}
}

func (t *transport) acceptStreams() {
	for {
		conn, err := t.cfg.Listener.Accept()
		if err != nil {
			if t.over(err) {
				return
			}
			continue
		}
		c, ok := t.track(conn)
		if !ok {
			return
		}
		select {
		case t.streams <- c:
		case <-t.done:
			_ = c.Close()
			return
		}
	}
}

// over says whether a socket is done for. After any other fault it waits a little,
// so that a fault that stays does not spin.
func (t *transport) over(err error) bool {
	if errors.Is(err, net.ErrClosed) {
		return true
	}
	timer := time.NewTimer(20 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-t.done:
		return true
	case <-timer.C:
		return false
	}
}

// tracked is a connection that Shutdown closes.
type tracked struct {
	net.Conn
	t *transport
}

func (c *tracked) Close() error {
	c.t.mu.Lock()
	delete(c.t.conns, c)
	c.t.mu.Unlock()
	return c.Conn.Close()
}

func (t *transport) track(conn net.Conn) (*tracked, bool) {
	c := &tracked{conn, t}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		_ = conn.Close()
		return nil, false
	}
	t.conns[c] = struct{}{}
	return c, true
}

// FinalAdvertiseAddr implements memberlist.Transport.
func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) { return t.ip, t.port, nil }

// WriteTo implements memberlist.Transport.
func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return time.Time{}, err
	}
	_, err = t.cfg.Packets.WriteTo(b, to)
	return time.Now(), err
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, a.Addr)
}

// PacketCh implements memberlist.Transport.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// DialTimeout implements memberlist.Transport.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	// Shutdown must not wait for a dial that hangs.
	stop := make(chan struct{})
	defer close(stop)
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, net.ErrClosed
	}
	t.wg.Go(func() {
		select {
		case <-t.done:
			cancel()
		case <-stop:
		}
	})
	t.mu.Unlock()
	conn, err := t.cfg.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	c, ok := t.track(conn)
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(a.Addr, timeout)
}

// Shutdown implements memberlist.Transport.
func (t *transport) Shutdown() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	conns := t.conns
	t.conns = map[*tracked]struct{}{}
	t.mu.Unlock()
	close(t.done)
	err := errors.Join(t.cfg.Packets.Close(), t.cfg.Listener.Close())
	for c := range conns {
		_ = c.Conn.Close()
	}
	t.wg.Wait()
	return err
}
