package gossip

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
	"github.com/rs/zerolog"
)

// delegate is roster as memberlist calls it.
type delegate struct{ r *roster }

// NodeMeta implements memberlist.Delegate.
func (d delegate) NodeMeta(int) []byte { return d.r.meta }

// NotifyMsg implements memberlist.Delegate: b is reused by the caller.
func (d delegate) NotifyMsg(b []byte) { d.r.packet(b) }

// GetBroadcasts implements memberlist.Delegate.
func (d delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate.
func (d delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (d delegate) MergeRemoteState([]byte, bool) {}

// NotifyAlive implements memberlist.AliveDelegate: routers we cannot work with are
// not let in.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	r := d.r
	if n.Name == string(r.cfg.Self) {
		return nil
	}
	var dec wire.Decoder
	meta, err := dec.Meta(n.Meta)
	reason := ""
	switch {
	case err != nil || meta.Boot == 0:
		reason = RefusedMalformed
	case meta.Version < wire.MinVersion || meta.MinVersion > r.cfg.Version:
		reason = RefusedVersion
	case meta.Scheme != r.cfg.Scheme:
		reason = RefusedScheme
	default:
		return nil
	}
	r.metrics.refused.WithLabelValues(reason).Inc()
	r.refuse(Refused{
		ID: state.RouterID(n.Name), Name: meta.Name, Addr: n.Address(), Reason: reason, Scheme: meta.Scheme,
		MinVersion: meta.MinVersion, Version: meta.Version,
	})
	r.warn("refuse "+n.Name+reason, func(e *zerolog.Event) {
		e.Str("peer", n.Name).Str("name", meta.Name).Str("addr", n.Address()).Str("reason", reason).Msg("router refused as a member")
	})
	return errors.New("refused: " + reason)
}

// NotifyJoin implements memberlist.EventDelegate.
func (d delegate) NotifyJoin(n *memberlist.Node) { d.note(n) }

// NotifyUpdate implements memberlist.EventDelegate.
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.note(n) }

func (d delegate) note(n *memberlist.Node) {
	r := d.r
	id := state.RouterID(n.Name)
	if id == r.cfg.Self {
		return
	}
	var dec wire.Decoder
	meta, err := dec.Meta(n.Meta)
	if err != nil {
		return
	}
	r.mu.Lock()
	m := r.members[id]
	if m == nil {
		if len(r.members) >= maxMembers {
			r.mu.Unlock()
			r.metrics.drop("members")
			return
		}
		m = &member{id: id}
		r.members[id] = m
	}
	if m.meta.Boot != 0 && m.meta.Boot != meta.Boot {
		r.gone = append(r.gone, goneBoot{id, m.meta.Boot})
	}
	if m.state != Alive {
		m.state, m.since, m.heard, m.quiet, m.bye = Alive, time.Now(), time.Time{}, false, false
	}
	m.meta, m.node, m.told = meta, copyNode(n), time.Now()
	delete(r.failed, n.Address())
	delete(r.refused, id)
	r.mu.Unlock()
	r.log.Info().Str("peer", n.Name).Str("name", meta.Name).Str("boot", meta.Boot.String()).Str("addr", n.Address()).Msg("member alive")
	r.changes.Add(1)
	r.changed()
}

// NotifyLeave implements memberlist.EventDelegate.
func (d delegate) NotifyLeave(n *memberlist.Node) {
	r := d.r
	id := state.RouterID(n.Name)
	r.mu.Lock()
	m := r.members[id]
	if m == nil {
		r.mu.Unlock()
		return
	}
	m.state, m.since = Dead, time.Now()
	if m.bye {
		m.state = Left
	}
	r.gone = append(r.gone, goneBoot{id, m.meta.Boot})
	s, name := m.state, m.meta.Name
	r.mu.Unlock()
	level := zerolog.WarnLevel
	if s == Left {
		level = zerolog.InfoLevel
	}
	r.log.WithLevel(level).Str("peer", n.Name).Str("name", name).Str("addr", n.Address()).Str("state", string(s)).Msg("member gone")
	r.changes.Add(1)
	r.changed()
}

// NotifyConflict implements memberlist.ConflictDelegate.
func (d delegate) NotifyConflict(existing, other *memberlist.Node) {
	var dec wire.Decoder
	meta, _ := dec.Meta(other.Meta) // for its name, if it has one
	d.r.twice(state.RouterID(other.Name), meta.Name, existing.Address(), other.Address())
}

func copyNode(n *memberlist.Node) memberlist.Node {
	c := *n
	c.Addr = slices.Clone(n.Addr)
	c.Meta = nil
	return c
}

// logWriter turns memberlist's lines into debug events: what matters of them is
// logged by the delegates, except that somebody knocks with another key or label,
// of which memberlist tells in no other way.
type logWriter struct{ r *roster }

func (w logWriter) Write(b []byte) (int, error) {
	line := strings.TrimSpace(string(b))
	w.r.log.Debug().Str("line", line).Msg("memberlist")
	reason := ""
	switch {
	case strings.Contains(line, "crypt"):
		reason = "secret"
	case strings.Contains(line, "label"):
		reason = "cluster"
	default:
		return len(b), nil
	}
	w.r.metrics.refused.WithLabelValues(reason).Inc()
	w.r.warn("line "+reason, func(e *zerolog.Event) {
		e.Str("reason", reason).Str("line", line).Msg("membership traffic refused")
	})
	return len(b), nil
}
