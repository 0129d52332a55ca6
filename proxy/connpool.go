package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// errPoolFull says that a replica has as many connections as it may have.
var errPoolFull = errors.New("too many connections to the replica")

const (
	// upstreamIdle is how long a connection is kept for reuse. It stays below the
	// 5 s after which uvicorn, which serves vLLM and SGLang, closes an idle one.
	upstreamIdle = 4 * time.Second
	// readerSize holds a usual response head and a burst of events.
	readerSize = 8 << 10
	// maxHead bounds a response head.
	maxHead = 128 << 10
)

// upConn is one connection to a replica. It belongs to one call at a time, or
// lies idle in its pool.
type upConn struct {
	net.Conn
	base   net.Conn // what to close at once: TLS would first try to say goodbye
	raw    syscall.RawConn
	br     *bufio.Reader // nil while idle
	pool   *connPool
	since  time.Time // idle since
	reused bool
}

// connPool is the connections to one replica. Safe for concurrent use.
type connPool struct {
	owner *connPools
	addr  string
	tls   *tls.Config // nil: plain

	mu   sync.Mutex
	idle []*upConn // guarded by mu; the one used last is at the end
	open int       // guarded by mu; idle ones included
	gone bool      // guarded by mu; keep nothing
}

// connPools is one connPool per replica URL. Safe for concurrent use.
type connPools struct {
	dial    func(ctx context.Context, addr string) (net.Conn, error)
	tls     *tls.Config
	max     int // connections per replica
	recv    int // receive buffer, bytes; 0: the system's
	readers sync.Pool

	mu    sync.Mutex
	byURL map[string]*connPool // guarded by mu
}

func newConnPools(cfg *Config) *connPools {
	return &connPools{
		dial: cfg.Dial, tls: cfg.UpstreamTLS,
		max: cfg.Limits.ReplicaConns, recv: cfg.Limits.UpstreamBuffer,
		byURL: make(map[string]*connPool),
	}
}

// of returns the pool of a replica's URL.
func (ps *connPools) of(replica string) (*connPool, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.byURL[replica]; p != nil {
		return p, nil
	}
	u, err := url.Parse(replica)
	if err != nil {
		return nil, errors.New("bad replica URL")
	}
	p := &connPool{owner: ps, addr: u.Host}
	port := "80"
	switch u.Scheme {
	case "http":
	case "https":
		port = "443"
		p.tls = &tls.Config{MinVersion: tls.VersionTLS12}
		if ps.tls != nil {
			p.tls = ps.tls.Clone()
		}
		p.tls.NextProtos = []string{"http/1.1"}
		if p.tls.ServerName == "" {
			p.tls.ServerName = u.Hostname()
		}
	default:
		return nil, errors.New("replica URL is neither http nor https")
	}
	if u.Port() == "" {
		p.addr = net.JoinHostPort(u.Hostname(), port)
	}
	ps.byURL[replica] = p
	return p, nil
}

// take takes an idle connection that is still good, or returns nil. The caller
// owns it until put or discard.
func (p *connPool) take() *upConn {
	for {
		p.mu.Lock()
		n := len(p.idle) - 1
		if n < 0 {
			p.mu.Unlock()
			return nil
		}
		c := p.idle[n]
		p.idle = p.idle[:n]
		p.mu.Unlock()
		if time.Since(c.since) < upstreamIdle && !c.stale() {
			c.reused = true
			c.br = p.owner.reader(c)
			return c
		}
		p.discard(c)
	}
}

// dial opens a connection. The caller owns it until put or discard.
func (p *connPool) dial(ctx context.Context) (*upConn, error) {
	p.mu.Lock()
	if p.open >= p.owner.max {
		if len(p.idle) == 0 {
			p.mu.Unlock()
			return nil, errPoolFull
		}
		// Only a new one will do: make room.
		c := p.idle[0]
		p.idle = append(p.idle[:0], p.idle[1:]...)
		p.open--
		p.mu.Unlock()
		_ = c.base.Close()
		p.mu.Lock()
	}
	p.open++
	p.mu.Unlock()

	c, err := p.connect(ctx)
	if err != nil {
		p.mu.Lock()
		p.open--
		p.mu.Unlock()
		return nil, err
	}
	return c, nil
}

func (p *connPool) connect(ctx context.Context) (*upConn, error) {
	base, err := p.owner.dial(ctx, p.addr)
	if err != nil {
		return nil, err
	}
	c := &upConn{Conn: base, base: base, pool: p}
	if t, ok := base.(*net.TCPConn); ok {
		_ = t.SetNoDelay(true)
		if p.owner.recv > 0 {
			_ = t.SetReadBuffer(p.owner.recv)
		}
	}
	if s, ok := base.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn()
	}
	if p.tls != nil {
		t := tls.Client(base, p.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			_ = base.Close()
			return nil, err
		}
		c.Conn = t
	}
	c.br = p.owner.reader(c)
	return c, nil
}

// stale reports whether an idle connection was closed by the replica, or has said
// something that nobody asked for.
func (c *upConn) stale() bool {
	if c.raw == nil {
		return false
	}
	gone, pending := peek(c.raw)
	return gone || pending
}

// put gives a connection back whose last answer was read to its proper end.
func (p *connPool) put(c *upConn) {
	if c.br == nil || c.br.Buffered() > 0 || c.Conn.SetDeadline(time.Time{}) != nil {
		p.discard(c)
		return
	}
	p.owner.release(c)
	c.since = time.Now()
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		p.discard(c)
		return
	}
	p.idle = append(p.idle, c)
	p.mu.Unlock()
}

// discard closes a connection.
func (p *connPool) discard(c *upConn) {
	_ = c.base.Close()
	p.owner.release(c)
	p.mu.Lock()
	p.open--
	p.mu.Unlock()
}

func (ps *connPools) reader(c net.Conn) *bufio.Reader {
	if br, ok := ps.readers.Get().(*bufio.Reader); ok {
		br.Reset(c)
		return br
	}
	return bufio.NewReaderSize(c, readerSize)
}

func (ps *connPools) release(c *upConn) {
	if c.br != nil && c.br.Size() == readerSize {
		c.br.Reset(nil)
		ps.readers.Put(c.br)
	}
	c.br = nil
}

// sweep closes connections that have been idle too long, and forgets the pools of
// replicas that are no longer listed.
func (ps *connPools) sweep(v *state.View, now time.Time) {
	listed := make(map[string]bool)
	for _, p := range v.Pools {
		for _, r := range p.Replicas {
			listed[r.URL] = true
		}
	}
	ps.mu.Lock()
	pools := make([]*connPool, 0, len(ps.byURL))
	for u, p := range ps.byURL {
		pools = append(pools, p)
		p.mu.Lock()
		if p.gone = !listed[u]; p.gone && p.open == 0 {
			delete(ps.byURL, u)
		}
		p.mu.Unlock()
	}
	ps.mu.Unlock()
	for _, p := range pools {
		p.expire(now)
	}
}

// expire closes what has been idle too long, all of it when the replica has gone.
func (p *connPool) expire(now time.Time) {
	p.mu.Lock()
	n := 0
	for n < len(p.idle) && (p.gone || now.Sub(p.idle[n].since) >= upstreamIdle) {
		n++
	}
	old := append([]*upConn(nil), p.idle[:n]...)
	p.idle = append(p.idle[:0], p.idle[n:]...)
	p.mu.Unlock()
	for _, c := range old {
		p.discard(c)
	}
}

// close closes every idle connection and keeps none from now on.
func (ps *connPools) close() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.byURL {
		p.mu.Lock()
		p.gone = true
		p.mu.Unlock()
		p.expire(time.Time{})
	}
}
