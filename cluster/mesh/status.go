package mesh

import (
	"cmp"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hearsay-llm/hearsay/state"
)

// PeerStatus is what can be said of the stream to one peer.
type PeerStatus struct {
	ID       state.RouterID
	Name     string // as the peer calls itself; empty while down
	Boot     state.BootID
	Addr     string // where it is dialled; empty: it dialled us, or is not wanted
	Up       bool
	Since    time.Time     // of the present stream
	Dialled  bool          // by us
	Key      string        // KeyID of the shared key it was opened with; empty: none, or down
	Version  uint64        // wire version of the peer; 0 while down
	BytesIn  uint64        // since this router's start
	BytesOut uint64        // since this router's start
	Drops    uint64        // frames not queued since this router's start
	Queued   int           // bytes waiting
	RTT      time.Duration // smoothed; 0: not measured
	Err      string        // why the last attempt or stream ended
	ErrAt    time.Time
	Refused  string // reason of the refusal, by either side, that stands between us now; empty: none, or up
}

// Status lists all peers wanted or connected, in id order.
func (m *Mesh) Status() []PeerStatus {
	m.mu.RLock()
	defer m.mu.RUnlock()
	list := make([]PeerStatus, 0, len(m.peers))
	for id, p := range m.peers {
		st := PeerStatus{ID: id, Addr: p.addr, BytesIn: p.in, BytesOut: p.out, Drops: p.drops, ErrAt: p.errAt}
		if p.err != nil {
			st.Err = p.err.Error()
		}
		st.Refused = p.refused()
		if s := p.session; s != nil {
			st.Up, st.Name, st.Boot, st.Since, st.Dialled = true, s.name, s.boot, s.since, s.dialled
			st.Key, st.Version = s.key, s.version
			st.BytesIn += s.in.Load()
			st.BytesOut += s.out.Load()
			st.Drops += s.drops.Load()
			st.RTT = time.Duration(s.rtt.Load())
			s.mu.Lock()
			st.Queued = len(s.pending)
			s.mu.Unlock()
		}
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b PeerStatus) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return list
}

// Refused is the reason for which this router's last attempt at a stream to a peer
// was refused, by either side; empty: it was not, or there is a stream.
func (m *Mesh) Refused(id state.RouterID) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if p := m.peers[id]; p != nil {
		return p.refused()
	}
	return ""
}

// refused is Mesh.Refused of the peer. The caller holds Mesh.mu.
func (p *peer) refused() string {
	var r *RefusedError
	if p.session != nil || !errors.As(p.err, &r) || r.Reason == ReasonDuplicate {
		return ""
	}
	return r.Reason
}

// Refusal is one kind of refused handshake, with one remote host.
type Refusal struct {
	Remote string // host of the other side
	Reason string
	ByPeer bool // the other side refused us
	Count  uint64
	Last   time.Time
	warned time.Time
}

const (
	maxRefusals = 64
	warnEvery   = time.Minute
)

type refusals struct {
	mu   sync.Mutex
	list []Refusal // guarded by mu
}

// Refusals lists what was refused, latest first, at most 64 entries.
func (m *Mesh) Refusals() []Refusal {
	m.refusals.mu.Lock()
	defer m.refusals.mu.Unlock()
	list := slices.Clone(m.refusals.list)
	slices.SortStableFunc(list, func(a, b Refusal) int { return cmp.Compare(b.Last.UnixNano(), a.Last.UnixNano()) })
	return list
}

// note counts a refused handshake and warns of it once a minute per remote host
// and reason. Broken connections are not refusals.
func (m *Mesh) note(err error, remote string, dialled bool) {
	var r *RefusedError
	if !errors.As(err, &r) || r.Reason == ReasonDuplicate {
		return
	}
	m.metrics.refused.WithLabelValues(r.Reason).Inc()
	host, _, splitErr := net.SplitHostPort(remote)
	if splitErr != nil {
		host = remote
	}
	now := time.Now()
	m.refusals.mu.Lock()
	i := slices.IndexFunc(m.refusals.list, func(x Refusal) bool {
		return x.Remote == host && x.Reason == r.Reason && x.ByPeer == r.Remote
	})
	if i < 0 {
		if len(m.refusals.list) >= maxRefusals {
			oldest := 0
			for j := range m.refusals.list {
				if m.refusals.list[j].Last.Before(m.refusals.list[oldest].Last) {
					oldest = j
				}
			}
			m.refusals.list = slices.Delete(m.refusals.list, oldest, oldest+1)
		}
		m.refusals.list = append(m.refusals.list, Refusal{Remote: host, Reason: r.Reason, ByPeer: r.Remote})
		i = len(m.refusals.list) - 1
	}
	e := &m.refusals.list[i]
	warn := e.Count == 0 || now.Sub(e.warned) >= warnEvery
	e.Count++
	e.Last = now
	if warn {
		e.warned = now
	}
	m.refusals.mu.Unlock()
	if warn {
		e := m.log.Warn().Err(err).Str("remote", remote).Str("reason", r.Reason).Bool("by_peer", r.Remote).Bool("dialled", dialled)
		if r.peer != "" {
			e = e.Str("peer", string(r.peer)).Str("name", r.name)
		}
		e.Msg("mesh handshake refused")
	}
}

type metrics struct {
	sessions prometheus.Gauge
	bytes    *prometheus.CounterVec
	in, out  prometheus.Counter
	dropped  *prometheus.CounterVec
	refused  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		sessions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hearsay_mesh_sessions", Help: "Streams to peer routers that are up.",
		}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_mesh_bytes_total", Help: "Bytes over streams to peer routers, before encryption.",
		}, []string{"direction"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_mesh_dropped_total", Help: "Frames and connections given up at a bound, by reason.",
		}, []string{"reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_mesh_refused_total", Help: "Handshakes refused by either side, by reason.",
		}, []string{"reason"}),
	}
	m.in, m.out = m.bytes.WithLabelValues("in"), m.bytes.WithLabelValues("out")
	for _, r := range []string{"queue", "too_large", "kind", "calls", "reply", "handshakes", "layer"} {
		m.dropped.WithLabelValues(r)
	}
	for _, r := range reasons {
		m.refused.WithLabelValues(r)
	}
	if reg != nil {
		reg.MustRegister(m.sessions, m.bytes, m.dropped, m.refused)
	}
	return m
}

func (m *metrics) drop(reason string) { m.dropped.WithLabelValues(reason).Inc() }
