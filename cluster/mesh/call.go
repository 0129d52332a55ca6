package mesh

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// CallHandler serves calls of peers, from a goroutine per call. ctx ends with the
// stream's mesh or after maxCall. The payload belongs to the handler. The error's
// text is sent to the caller.
type CallHandler func(ctx context.Context, from state.RouterID, method string, payload []byte) ([]byte, error)

const (
	maxServing = 64               // calls served at once; more are answered "busy"
	maxCall    = 30 * time.Second // for one call
)

// Errors of Call besides the context's.
var (
	// ErrNotConnected says that there is no stream to the peer: nothing was sent.
	ErrNotConnected = errors.New("no stream to peer")
	// ErrBusy says that one side's bounds refused the call: nothing was done.
	ErrBusy = errors.New("peer is busy")
	// ErrLost says that the stream broke while waiting: whether the peer acted is
	// unknown.
	ErrLost = errors.New("stream lost before the answer")
)

// CallError is the peer's own error.
type CallError struct {
	Peer    state.RouterID
	Method  string
	Message string
}

// Error implements error.
func (e *CallError) Error() string {
	return fmt.Sprintf("%s at %s: %s", e.Method, e.Peer, e.Message)
}

// Codes of replies.
const (
	codeDone = iota
	codeError
	codeBusy
)

// HandleCall sets who serves calls. Call it before Run.
func (m *Mesh) HandleCall(h CallHandler) { m.call = h }

// Call asks a peer and waits for the answer until ctx ends. The answer belongs to
// the caller. After ctx's error and ErrLost, whether the peer acted is unknown.
func (m *Mesh) Call(ctx context.Context, to state.RouterID, method string, payload []byte) ([]byte, error) {
	s := m.session(to)
	if s == nil {
		return nil, ErrNotConnected
	}
	wait := make(chan wire.Reply, 1)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, ErrNotConnected
	}
	s.nextID++
	id := s.nextID
	s.calls[id] = wait
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.calls, id)
		s.mu.Unlock()
	}()
	b := wire.AppendCall(nil, &wire.Call{ID: id, Method: method, Payload: payload})
	if !s.send(m.cfg.QueueBytes+callBytes, wire.Frame{Kind: wire.KindCall, Payload: b}) {
		return nil, ErrBusy
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r, ok := <-wait:
		switch {
		case !ok:
			return nil, ErrLost
		case r.Code == codeDone:
			return r.Payload, nil
		case r.Code == codeBusy:
			return nil, ErrBusy
		default:
			return nil, &CallError{Peer: to, Method: method, Message: r.Err}
		}
	}
}

// settle gives a reply to the call that waits for it.
func (s *session) settle(r wire.Reply) {
	r.Payload = append([]byte(nil), r.Payload...)
	s.mu.Lock()
	c := s.calls[r.ID]
	delete(s.calls, r.ID)
	s.mu.Unlock()
	if c != nil {
		c <- r // has room: one reply per id
	}
}

func (s *session) serveCall(ctx context.Context, c wire.Call) {
	m := s.m
	if m.call == nil {
		s.reply(&wire.Reply{ID: c.ID, Code: codeError, Err: "calls are not served here"})
		return
	}
	select {
	case m.calls <- struct{}{}:
	default:
		m.metrics.drop("calls")
		s.reply(&wire.Reply{ID: c.ID, Code: codeBusy})
		return
	}
	payload := append([]byte(nil), c.Payload...)
	m.wg.Go(func() {
		defer func() { <-m.calls }()
		ctx, cancel := context.WithTimeout(ctx, maxCall)
		defer cancel()
		r := wire.Reply{ID: c.ID}
		var err error
		if r.Payload, err = m.call(ctx, s.id, c.Method, payload); err != nil {
			r.Code, r.Err, r.Payload = codeError, err.Error(), nil
		}
		s.reply(&r)
	})
}

func (s *session) reply(r *wire.Reply) {
	if len(r.Payload) > wire.MaxFrame-4<<10-len(r.Err) {
		r.Code, r.Err, r.Payload = codeError, "answer too large", nil
	}
	if !s.send(s.m.cfg.QueueBytes+callBytes, wire.Frame{Kind: wire.KindReply, Payload: wire.AppendReply(nil, r)}) {
		s.m.metrics.drop("reply")
	}
}
