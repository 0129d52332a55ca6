package proxy

import (
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
	// 5 s after which uvicorn, which serves vLLM and SGLang, closes an idle one. A
	// replica that closes them earlier is found out: see learn.
	upstreamIdle = 4 * time.Second
	// forgetKeep is after how long it is tried again whether a replica keeps
	// connections for longer than was learned: it may have been restarted.
	forgetKeep = time.Minute
	// minKeep is the least idle time that says something of a replica's habits: one
	// that was stopped closes connections of any age.
	minKeep = 10 * time.Millisecond
	// maxHead bounds a response head.
	maxHead = 128 << 10
)

// connPool is the connections to one replica. Safe for concurrent use.
type connPool struct {
	owner *connPools
	addr  string
	tls   *tls.Config // nil: plain

	mu   sync.Mutex
	idle []*upConn // guarded by mu; the one used last is at the end
	open int       // guarded by mu; idle ones included
	gone bool      // guarded by mu; keep nothing
	// keep is how long a connection may lie idle here; learned is when that was last
	// changed. Guarded by mu.
	keep    time.Duration
	learned time.Time
	hasty   hasty // guarded by mu
}

// connPools is one connPool per replica URL. Safe for concurrent use.
type connPools struct {
	dial func(ctx context.Context, addr string) (net.Conn, error)
	tls  *tls.Config
	max  int // connections per replica
	recv int // receive buffer, bytes; 0: the system's

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
	p := &connPool{owner: ps, addr: u.Host, keep: upstreamIdle}
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
		now := time.Now()
		if p.keep < upstreamIdle && now.Sub(p.learned) >= forgetKeep {
			p.keep = upstreamIdle
		}
		keep := p.keep
		p.mu.Unlock()
		c.idled = now.Sub(c.since)
		switch {
		case c.idled >= keep:
		case c.stale():
			p.learn(c)
		default:
			c.reused = true
			return c
		}
		p.discard(c)
	}
}

// learn notes that a connection was closed by the replica while it lay idle, or as it
// was used again. Where a replica closes idle connections just when they are used
// again, no re-send is safe, so they are given up well before that.
func (p *connPool) learn(c *upConn) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case c.streamed && c.idled < soon:
		p.hasty.seen(now) // which says nothing of how long it keeps others
	case c.idled >= minKeep:
		p.keep, p.learned = min(p.keep, c.idled/2), now
	}
}

// good notes that a connection that was used again served.
func (p *connPool) good(c *upConn) {
	if !c.streamed {
		return
	}
	p.mu.Lock()
	p.hasty = hasty{}
	p.mu.Unlock()
}

// hasty is what is known of a replica that says it keeps a connection after an answer in
// pieces and closes it all the same, as llama.cpp's server does after each stream. A
// busy one takes its time for that, and a request sent meanwhile is lost: so such a
// connection is not used again for a while, longer each time that it is found so.
type hasty struct {
	until time.Time
	times int
}

const (
	// soon is how soon after an answer its connection must be closed to count.
	soon = time.Second
	// hastyFor is how long it counts at first, and maxHasty how often that doubles.
	hastyFor = time.Minute
	maxHasty = 6
)

func (h *hasty) seen(now time.Time) {
	if now.Before(h.until) {
		return // known, of a connection of before
	}
	h.until = now.Add(hastyFor << min(h.times, maxHasty))
	h.times++
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
	return c, nil
}

// put gives a connection back whose last answer was read to its proper end; isHasty says
// that its replica is of a kind that closes connections after streams.
func (p *connPool) put(c *upConn, isHasty bool) {
	if c.pending() > 0 || c.err != nil {
		p.discard(c)
		return
	}
	c.release()
	c.since, c.by, c.heart = time.Now(), time.Time{}, nil
	p.mu.Lock()
	if p.gone || c.streamed && (isHasty || c.since.Before(p.hasty.until)) {
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
	c.release()
	p.mu.Lock()
	p.open--
	p.mu.Unlock()
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
	for n < len(p.idle) && (p.gone || now.Sub(p.idle[n].since) >= p.keep) {
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
