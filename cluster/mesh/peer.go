package mesh

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// peer is one other router. All fields but id and change are guarded by Mesh.mu.
type peer struct {
	id      state.RouterID
	name    string        // as it last called itself on a stream
	change  chan struct{} // address, wish or session changed; capacity 1
	wanted  bool
	addr    string
	session *session
	err     error // of the last attempt or stream
	errAt   time.Time
	drops   uint64 // of earlier sessions
	in, out uint64
}

func (p *peer) signal() {
	select {
	case p.change <- struct{}{}:
	default:
	}
}

func (p *peer) drain() {
	select {
	case <-p.change:
	default:
	}
}

const minBackoff = 100 * time.Millisecond

// keep sees to it that there is a stream to p until ctx ends.
func (m *Mesh) keep(ctx context.Context, p *peer) {
	backoff := minBackoff
	idleSince := time.Now()
	for {
		p.drain() // what changed is seen below
		m.mu.RLock()
		up, addr := p.session, p.addr
		m.mu.RUnlock()
		wait := time.Duration(-1)
		switch {
		case up != nil:
			select {
			case <-up.done:
				idleSince = time.Now()
				continue
			case <-ctx.Done():
				return
			}
		case m.cfg.Self > p.id && time.Since(idleSince) < m.cfg.Grace:
			wait = m.cfg.Grace - time.Since(idleSince)
		case addr == "":
		default:
			began := time.Now()
			err := m.dial(ctx, p, addr)
			if ctx.Err() != nil {
				return
			}
			m.failed(p, err)
			p.drain() // our own session's coming and going is no reason to hurry
			if time.Since(began) > 2*m.cfg.MaxBackoff {
				backoff = minBackoff // it was up for a while
			}
			wait = jitter(backoff)
			backoff = min(2*backoff, m.cfg.MaxBackoff)
		}
		if !p.wait(ctx, wait) {
			return
		}
	}
}

// wait returns at a change of p or after d (never for a negative d); false means
// that ctx ended.
func (p *peer) wait(ctx context.Context, d time.Duration) bool {
	var elapsed <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		elapsed = t.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-p.change:
	case <-elapsed:
	}
	return true
}

func (m *Mesh) failed(p *peer, err error) {
	m.mu.Lock()
	p.err, p.errAt = err, time.Now()
	name := p.name
	m.mu.Unlock()
	var r *RefusedError
	if errors.As(err, &r) && r.Reason == ReasonDuplicate {
		return
	}
	m.log.Debug().Err(err).Str("peer", string(p.id)).Str("name", name).Msg("no stream to peer")
}

// dial connects, shakes hands and serves the stream to its end.
func (m *Mesh) dial(ctx context.Context, p *peer, addr string) error {
	a, err := m.connect(ctx, addr, protoMesh, p)
	if err != nil {
		return err
	}
	if a.peer.Router != p.id {
		_ = a.conn.Close()
		err := &RefusedError{Reason: ReasonOther, peer: a.peer.Router, name: a.peer.Name}
		m.note(err, addr, true)
		return err
	}
	return m.serve(ctx, a, true)
}

// connect dials an address for one protocol and shakes hands. to is who should be
// there; nil: the caller knows.
func (m *Mesh) connect(ctx context.Context, addr string, proto byte, to *peer) (*authed, error) {
	dctx, cancel := context.WithTimeout(ctx, m.cfg.DialTimeout)
	defer cancel()
	conn, err := m.cfg.Dial(dctx, addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(dctx, func() { _ = conn.Close() })
	host, _, _ := net.SplitHostPort(addr)
	var want state.RouterID
	if to != nil {
		want = to.id
	}
	a, err := m.shake(dctx, conn, true, proto, want, host)
	if !stop() && err == nil {
		err = dctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		var r *RefusedError
		if errors.As(err, &r) && r.peer == "" && to != nil {
			m.mu.RLock()
			r.peer, r.name = to.id, to.name
			m.mu.RUnlock()
		}
		m.note(err, addr, true)
		return nil, err
	}
	return a, nil
}
