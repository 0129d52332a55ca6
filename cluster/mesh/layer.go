package mesh

import (
	"context"
	"net"
	"sync"

	"github.com/hearsay-llm/hearsay/state"
)

// layerBacklog bounds the streams of a layer that nobody accepted yet.
const layerBacklog = 64

// LayerConn is an authenticated stream of another protocol, sealed where mesh
// streams are. It belongs to whoever accepted or dialled it.
type LayerConn struct {
	net.Conn
	Peer state.RouterID
}

// layer is the listener of one other protocol.
type layer struct {
	addr   net.Addr
	queue  chan *LayerConn
	closed chan struct{}
	once   sync.Once
}

// Layer opens the mesh's port for another protocol, named by a byte that is not
// used yet. The listener gives the streams that peers opened; it ends with Run.
// Dialling works at any time. Both ends passed the mesh's handshake. It panics on
// a byte that is taken.
func (m *Mesh) Layer(proto byte) (net.Listener, func(ctx context.Context, addr string) (net.Conn, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if proto == protoMesh || m.layers[proto] != nil {
		panic("mesh: layer byte is taken")
	}
	l := &layer{
		addr: m.cfg.Listener.Addr(), queue: make(chan *LayerConn, layerBacklog), closed: make(chan struct{}),
	}
	m.layers[proto] = l
	return l, func(ctx context.Context, addr string) (net.Conn, error) {
		a, err := m.connect(ctx, addr, proto, nil)
		if err != nil {
			return nil, err
		}
		return &LayerConn{Conn: a.conn, Peer: a.peer.Router}, nil
	}
}

func (m *Mesh) serves(proto byte) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return proto == protoMesh || m.layers[proto] != nil
}

// offer reports false when the layer is closed or its backlog full.
func (l *layer) offer(c *LayerConn) bool {
	select {
	case <-l.closed:
		return false
	default:
	}
	select {
	case l.queue <- c:
		return true
	default:
		return false
	}
}

// Accept implements net.Listener.
func (l *layer) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: "mesh", Addr: l.addr, Err: net.ErrClosed}
	}
}

// Close implements net.Listener; streams not accepted yet are closed.
func (l *layer) Close() error {
	l.once.Do(func() { close(l.closed) })
	for {
		select {
		case c := <-l.queue:
			_ = c.Close()
		default:
			return nil
		}
	}
}

// Addr implements net.Listener.
func (l *layer) Addr() net.Addr { return l.addr }
