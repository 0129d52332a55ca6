package mesh

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
)

var (
	errReplaced = errors.New("replaced by a newer stream")
	errUnwanted = errors.New("peer is not wanted any more")
	errStopping = errors.New("mesh is stopping")
)

// session is one stream to one peer.
type session struct {
	m         *Mesh
	id        state.RouterID
	boot      state.BootID
	name      string
	cluster   string // guarded by Mesh.mu; committed cluster id, as the peer last said
	key       string // id of the shared key
	version   uint64 // wire, of the peer
	conn      net.Conn
	dialled   bool // by us
	preferred bool // dialled by the lower id
	since     time.Time
	wake      chan struct{} // something to write; capacity 1
	dead      chan struct{} // closed by close
	done      chan struct{} // closed when all is over, OnDown included

	in, out, drops atomic.Uint64
	rtt            atomic.Int64 // nanoseconds, smoothed; 0: not measured

	mu      sync.Mutex
	pending []byte // guarded by mu; frames to write
	spare   []byte // guarded by mu; the buffer last written
	closed  bool   // guarded by mu
	err     error  // guarded by mu; why it ended
	calls   map[uint64]chan wire.Reply
	nextID  uint64
}

// serve makes a connection the peer's stream and runs it to its end. A better
// stream that exists stays.
func (m *Mesh) serve(ctx context.Context, a *authed, dialled bool) error {
	s := &session{
		m: m, id: a.peer.Router, boot: a.peer.Boot, name: a.peer.Name, cluster: a.peer.ClusterID, key: a.key,
		version: a.peer.Version, conn: a.conn,
		dialled: dialled, preferred: dialled == (m.cfg.Self < a.peer.Router), since: time.Now(),
		wake: make(chan struct{}, 1), dead: make(chan struct{}), done: make(chan struct{}),
		calls: map[uint64]chan wire.Reply{},
	}
	p, err := m.adopt(ctx, s)
	if err != nil {
		_ = s.conn.SetWriteDeadline(time.Now().Add(refuseWait))
		var r *RefusedError
		if errors.As(err, &r) {
			_, _ = s.conn.Write(wire.AppendFrame(nil, wire.KindRefuse, wire.AppendRefuse(nil, r.Reason)))
		}
		_ = s.conn.Close()
		return err
	}
	m.metrics.sessions.Inc()
	m.log.Info().Str("peer", string(s.id)).Str("name", s.name).Str("boot", s.boot.String()).Bool("dialled", dialled).Msg("stream up")
	for _, f := range m.onUp {
		f(s.id, s.boot)
	}
	stop := context.AfterFunc(ctx, func() { s.close(errStopping) })
	var writer sync.WaitGroup
	writer.Go(s.write)
	s.close(s.read(ctx))
	stop()
	writer.Wait()
	for _, f := range m.onDown {
		f(s.id, s.boot)
	}
	m.metrics.sessions.Dec()
	m.release(p, s)
	s.mu.Lock()
	err = s.err
	s.mu.Unlock()
	if ctx.Err() == nil {
		m.log.Info().Str("peer", string(s.id)).Str("name", s.name).Err(err).Msg("stream down")
	}
	return err
}

// adopt waits until s is the peer's only stream, or refuses it.
func (m *Mesh) adopt(ctx context.Context, s *session) (*peer, error) {
	for {
		m.mu.Lock()
		p := m.peer(s.id)
		old := p.session
		if old == nil {
			p.session, p.name = s, s.name
			p.signal()
			m.mu.Unlock()
			return p, nil
		}
		m.mu.Unlock()
		if old.boot == s.boot && old.preferred && !s.preferred {
			return nil, refused(ReasonDuplicate)
		}
		if old.boot != s.boot {
			// A router that was restarted is not there to hear it. One that is has an
			// id that is not its own alone, and hangs up.
			old.refuse(ctx, ReasonTwice)
		}
		old.close(errReplaced)
		select {
		case <-old.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// refuseWait is how long a peer may take to hear why it is refused.
const refuseWait = 100 * time.Millisecond

// refuse tells the peer behind all else that is queued why its stream is given up,
// and waits until it has hung up.
func (s *session) refuse(ctx context.Context, reason string) {
	s.send(s.m.cfg.QueueBytes+callBytes, wire.Frame{Kind: wire.KindRefuse, Payload: wire.AppendRefuse(nil, reason)})
	t := time.NewTimer(refuseWait)
	defer t.Stop()
	select {
	case <-s.done:
	case <-t.C:
	case <-ctx.Done():
	}
}

// release ends the session's life as the peer's stream.
func (m *Mesh) release(p *peer, s *session) {
	m.mu.Lock()
	p.session = nil
	s.mu.Lock()
	p.err, p.errAt = s.err, time.Now()
	s.mu.Unlock()
	p.drops += s.drops.Load()
	p.in += s.in.Load()
	p.out += s.out.Load()
	wanted := p.wanted
	m.mu.Unlock()
	close(s.done)
	p.signal()
	if !wanted {
		m.signal() // to forget the peer
	}
}

// close ends the session; the first reason stays.
func (s *session) close(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed, s.err = true, err
	close(s.dead)
	_ = s.conn.Close()
	for id, c := range s.calls {
		delete(s.calls, id)
		close(c)
	}
}

// send queues frames, all or none, unless more than limit bytes wait.
func (s *session) send(limit int, frames ...wire.Frame) bool {
	size := 0
	for i := range frames {
		if len(frames[i].Payload) > wire.MaxFrame {
			s.m.metrics.drop("too_large")
			s.drops.Add(1)
			return false
		}
		size += len(frames[i].Payload) + wire.HeaderSize
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false
	}
	if len(s.pending)+size > limit {
		s.mu.Unlock()
		s.m.metrics.drop("queue")
		s.drops.Add(1)
		return false
	}
	for i := range frames {
		s.pending = wire.AppendFrame(s.pending, frames[i].Kind, frames[i].Payload)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return true
}

// keepSpare bounds the buffer kept for the next round.
const keepSpare = 256 << 10

// write sends what is queued, all of it at once, and a ping four times within the
// idle time.
func (s *session) write() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-s.dead:
			return
		case <-t.C:
			t.Reset(jitter(s.m.cfg.Idle / 4))
			s.send(s.m.cfg.QueueBytes+callBytes, wire.Frame{Kind: wire.KindPing, Payload: wire.AppendPing(nil, time.Since(s.since))})
			continue
		case <-s.wake:
		}
		s.mu.Lock()
		b := s.pending
		s.pending, s.spare = s.spare[:0], nil
		s.mu.Unlock()
		if len(b) == 0 {
			continue
		}
		if err := s.flush(b); err != nil {
			s.close(err)
			return
		}
		if cap(b) <= keepSpare {
			s.mu.Lock()
			s.spare = b[:0]
			s.mu.Unlock()
		}
	}
}

// flush writes b in steps, so that the time-out is for a step and a slow peer that
// does read is kept.
func (s *session) flush(b []byte) error {
	for len(b) > 0 {
		k := min(len(b), 4*maxRecord)
		if err := s.conn.SetWriteDeadline(time.Now().Add(s.m.cfg.WriteTimeout)); err != nil {
			return err
		}
		n, err := s.conn.Write(b[:k])
		s.out.Add(uint64(n))
		s.m.metrics.out.Add(float64(n))
		if err != nil {
			return err
		}
		b = b[k:]
	}
	return nil
}

// Read implements io.Reader for the frame reader: it counts, and gives every read
// the idle time.
func (s *session) Read(b []byte) (int, error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(s.m.cfg.Idle)); err != nil {
		return 0, err
	}
	n, err := s.conn.Read(b)
	s.in.Add(uint64(n))
	s.m.metrics.in.Add(float64(n))
	return n, err
}

// read hands frames to their handlers until the stream ends.
func (s *session) read(ctx context.Context) error {
	frames := wire.NewFrameReader(bufio.NewReaderSize(s, 16<<10), wire.MaxFrame)
	var dec wire.Decoder
	for {
		head, payload, err := frames.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("closed by peer")
			}
			return err
		}
		switch head.Kind {
		case wire.KindPing:
			s.send(s.m.cfg.QueueBytes+callBytes, wire.Frame{Kind: wire.KindPong, Payload: payload})
		case wire.KindPong:
			if at, err := dec.Ping(payload); err == nil {
				s.measured(time.Since(s.since) - at)
			}
		case wire.KindRefuse:
			reason, err := dec.Refuse(payload)
			if err != nil || !known(reason) {
				reason = ReasonMalformed
			}
			err = &RefusedError{Reason: reason, Remote: true, peer: s.id, name: s.name}
			s.m.note(err, s.conn.RemoteAddr().String(), s.dialled)
			return err
		case wire.KindCall:
			if call, err := dec.Call(payload); err == nil {
				s.serveCall(ctx, call)
			}
		case wire.KindReply:
			if reply, err := dec.Reply(payload); err == nil {
				s.settle(reply)
			}
		default:
			if h := s.m.handlers[head.Kind]; h != nil {
				h(s.id, s.boot, payload)
			} else {
				s.m.metrics.drop("kind") // a later release's
			}
		}
	}
}

func (s *session) measured(rtt time.Duration) {
	if rtt < 0 || rtt > time.Hour {
		return
	}
	old := time.Duration(s.rtt.Load())
	if old > 0 {
		rtt = old + (rtt-old)/8
	}
	s.rtt.Store(int64(max(1, rtt)))
}
