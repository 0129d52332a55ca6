package gossip

import (
	"maps"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/sketch"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// load is what came of one origin's rows since the last turn, in one message.
type load struct {
	rows wire.Rows // the newest but for its rows, sent when the oldest was
	at   map[state.ReplicaID]int
}

// merge puts a later message's rows over those there are.
func (l *load) merge(m *wire.Rows) {
	sent := min(l.rows.Sent, m.Sent)
	if m.Full || l.at == nil {
		list := l.rows.Rows.Rows[:0]
		l.rows = *m
		l.rows.Rows.Rows = append(list, m.Rows.Rows...)
		l.rows.Backlogs, l.rows.Traffic = slices.Clone(m.Backlogs), slices.Clone(m.Traffic)
		l.at = make(map[state.ReplicaID]int, len(m.Rows.Rows))
		for i := range m.Rows.Rows {
			l.at[m.Rows.Rows[i].Replica] = i
		}
	} else {
		for _, row := range m.Rows.Rows {
			if i, ok := l.at[row.Replica]; ok {
				l.rows.Rows.Rows[i] = row
				continue
			}
			l.at[row.Replica] = len(l.rows.Rows.Rows)
			l.rows.Rows.Rows = append(l.rows.Rows.Rows, row)
		}
		for _, b := range m.Backlogs {
			if i := slices.IndexFunc(l.rows.Backlogs, func(x state.Backlog) bool { return x.Pool == b.Pool }); i >= 0 {
				l.rows.Backlogs[i] = b
			} else {
				l.rows.Backlogs = append(l.rows.Backlogs, b)
			}
		}
		if len(m.Traffic) > 0 {
			l.rows.Traffic = slices.Clone(m.Traffic)
		}
		l.rows.Seq, l.rows.FactsIndex = m.Seq, m.FactsIndex
	}
	l.rows.Sent = sent
}

func (l *load) message() wire.Rows { return l.rows }

// passRows notes who else has an origin's rows, and keeps news for those who do
// not hear the origin.
func (g *Gossip) passRows(m *wire.Rows, in *inbound, direct, news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.peers[in.from]; p != nil && !direct {
		if len(p.has) >= maxMembers {
			clear(p.has)
		}
		p.has[m.Boot] = max(p.has[m.Boot], m.Seq)
	}
	if !news || !g.wanting(m.Boot, in.from, in.at) {
		return
	}
	l := g.loads[m.Boot]
	if l == nil {
		if len(g.loads) >= maxRelay {
			g.metrics.drop("queue")
			return
		}
		l = &load{rows: wire.Rows{Sent: m.Sent}}
		g.loads[m.Boot] = l
	}
	l.merge(m)
	g.wake()
}

// takeLoads takes the rows to pass on.
func (g *Gossip) takeLoads() []*load {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.loads) == 0 {
		return nil
	}
	list := slices.Collect(maps.Values(g.loads))
	clear(g.loads)
	return list
}

// relaying says that rows wait to be passed on.
func (g *Gossip) relaying() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.loads) > 0
}

// passedOn notes up to which op of other origins a peer knows: what it passed on
// needs not go back. The caller holds Gossip.mu.
func (p *peer) passedOn(ops []sketch.Op) {
	for i := range ops {
		if op := &ops[i]; op.Boot != p.boot {
			if len(p.knows) >= maxMembers {
				clear(p.knows)
			}
			p.knows[op.Boot] = max(p.knows[op.Boot], op.Seq)
		}
	}
}

// pass keeps a message for those who do not hear its origin.
func (g *Gossip) pass(m relayed) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.wanting(m.origin, m.from, time.Now()) {
		return
	}
	if len(g.relay) >= maxRelay {
		g.metrics.drop("queue")
		return
	}
	g.relay = append(g.relay, m)
	g.wake()
}

// heardByAll reports whether every peer but the origin hears it, as is so of all origins
// in a whole mesh. It is remembered, since it is asked at every message: to look at all
// peers each time would cost the square of their number. The caller holds mu.
func (g *Gossip) heardByAll(origin state.BootID) bool {
	all, known := g.byAll[origin]
	if !known {
		all = true
		for _, p := range g.peers {
			all = all && !p.needs(origin, "")
		}
		if len(g.byAll) < maxMembers {
			g.byAll[origin] = all
		}
	}
	return all
}

// wanting reports whether any peer needs an origin's rows and readings from us.
// The caller holds mu.
func (g *Gossip) wanting(origin state.BootID, from state.RouterID, now time.Time) bool {
	if g.heardByAll(origin) {
		return false
	}
	for _, p := range g.peers {
		if p.needs(origin, from) && now.Sub(p.upAt) >= relayAfter {
			return true
		}
	}
	return false
}
