package consensus

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/hearsay-llm/hearsay/state"
)

// stream is Raft's stream layer on a Layer. It knows its connections, so that
// closing it ends them all, and so that a leader whose disk hangs can be made
// silent: Raft's heartbeats do not see a stuck disk and would keep it in office.
type stream struct {
	layer Layer
	self  state.RouterID
	addr  string
	own   func() uint64 // line of this router's log
	known func() uint64 // newest line that it has heard of
	// removed says that this router has no vote any more, whatever Raft takes it for: it
	// then calls nobody, so that nobody is asked for votes. Nil: never.
	removed func() bool

	mu     sync.Mutex
	muted  bool                  // guarded by mu
	closed bool                  // guarded by mu
	conns  map[*tracked]struct{} // guarded by mu
}

var errSuperseded = errors.New("this router's log was superseded by a recovery")

var errRemoved = errors.New("this router is no longer a voter")

var errMuted = errors.New("this router is silent: its log takes no entries")

func newStream(l Layer, self state.RouterID, addr string, own, known func() uint64) *stream {
	return &stream{layer: l, self: self, addr: addr, own: own, known: known, conns: map[*tracked]struct{}{}}
}

type tracked struct {
	net.Conn
	s *stream
}

// Close implements net.Conn.
func (t *tracked) Close() error {
	t.s.mu.Lock()
	delete(t.s.conns, t)
	t.s.mu.Unlock()
	return t.Conn.Close()
}

// silent says why there are no connections, if so. The caller holds mu.
func (s *stream) silent() error {
	switch {
	case s.closed:
		return net.ErrClosed
	case s.muted:
		return errMuted
	}
	return nil
}

func (s *stream) track(c net.Conn) (net.Conn, error) {
	t := &tracked{c, s}
	s.mu.Lock()
	err := s.silent()
	if err == nil {
		s.conns[t] = struct{}{}
	}
	s.mu.Unlock()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return t, nil
}

// Dial implements raft.StreamLayer.
func (s *stream) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	s.mu.Lock()
	err := s.silent()
	s.mu.Unlock()
	if err == nil && s.known() > s.own() {
		err = errSuperseded
	}
	if err == nil && s.removed != nil && s.removed() {
		err = errRemoved
	}
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	id, to := splitAddress(addr)
	c, err := s.layer.DialContext(ctx, to)
	if err != nil {
		return nil, err
	}
	if d, ok := ctx.Deadline(); ok {
		err = c.SetWriteDeadline(d)
	}
	if err = errors.Join(err, greet(c, id, s.own()), c.SetWriteDeadline(time.Time{})); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return s.track(c)
}

// Accept implements net.Listener. Connections that come while muted are closed.
func (s *stream) Accept() (net.Conn, error) {
	for {
		c, err := s.layer.Accept()
		if err != nil {
			return nil, err
		}
		t, err := s.track(c)
		if err == nil {
			return &greeted{Conn: t, self: s.self, line: s.known}, nil
		}
	}
}

// Addr implements net.Listener; it is the address that peers use.
func (s *stream) Addr() net.Addr { return address(s.addr) }

// Close implements net.Listener and ends every connection.
func (s *stream) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.layer.Close()
	s.cut()
	return err
}

// mute makes the router silent, or ends that.
func (s *stream) mute(on bool) {
	s.mu.Lock()
	s.muted = on
	s.mu.Unlock()
	if on {
		s.cut()
	}
}

func (s *stream) cut() {
	s.mu.Lock()
	conns := s.conns
	s.conns = map[*tracked]struct{}{}
	s.mu.Unlock()
	for c := range conns {
		c.Conn.Close() // ended on purpose
	}
}

type address string

// Network implements net.Addr.
func (address) Network() string { return "raft" }

// String implements net.Addr.
func (a address) String() string { return string(a) }
