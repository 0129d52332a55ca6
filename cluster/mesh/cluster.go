package mesh

import (
	"github.com/hearsay-llm/hearsay/state"
)

// ClusterID is the committed cluster id that a connected peer named when its
// stream began, or later (Named); empty when it had none, or is not connected.
func (m *Mesh) ClusterID(id state.RouterID) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if p := m.peers[id]; p != nil && p.session != nil {
		return p.session.cluster
	}
	return ""
}

// Unnamed lists the connected peers that have named no cluster id.
func (m *Mesh) Unnamed() (list []state.RouterID) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for id, p := range m.peers {
		if p.session != nil && p.session.cluster == "" {
			list = append(list, id)
		}
	}
	return list
}

// Named says which committed cluster id a connected peer has by now. If it is
// another one than this router's, the stream is closed as refused; the handshakes
// that follow are.
func (m *Mesh) Named(id state.RouterID, cluster string) {
	own := m.cfg.ID()
	m.mu.Lock()
	p := m.peers[id]
	if p == nil || p.session == nil {
		m.mu.Unlock()
		return
	}
	s := p.session
	s.cluster = cluster
	m.mu.Unlock()
	if own == "" || cluster == own {
		return
	}
	err := &RefusedError{Reason: ReasonClusterID, peer: s.id, name: s.name}
	m.note(err, s.conn.RemoteAddr().String(), s.dialled)
	s.close(err)
}
