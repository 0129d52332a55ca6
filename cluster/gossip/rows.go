package gossip

import (
	"maps"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// rowsEvery is longer where messages take several hops, each router passing on
// everybody's.
func (g *Gossip) rowsEvery() time.Duration {
	n := len(g.store.View().Routers) + 1
	return g.cfg.RowsEvery * time.Duration((n+g.cfg.AllPairs-1)/g.cfg.AllPairs)
}

// streams copies the peers with a stream.
func (g *Gossip) streams() []*peer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.peers))
}

// send gives one peer a frame.
func (g *Gossip) send(to state.RouterID, k wire.Kind, payload []byte) bool {
	if !g.mesh.Send(to, k, payload) {
		g.metrics.drop("queue")
		return false
	}
	g.metrics.out[k].Add(float64(len(payload)))
	return true
}

// all gives every peer with a stream a frame.
func (g *Gossip) all(k wire.Kind, payload []byte) {
	for _, p := range g.streams() {
		g.send(p.id, k, payload)
	}
}

// changedRows tells of the replicas whose own row (load, failures) changed since
// it was last told.
func (g *Gossip) changedRows(now time.Time) bool {
	o := &g.out
	o.rows = o.rows[:0]
	seen := 0
	view := g.store.View()
	for _, p := range view.Pools {
		for _, r := range p.Replicas {
			was, known := o.told[r.ID]
			if known {
				seen++
			}
			v := r.Cell.Version()
			if at, ok := o.versions[r.Slot]; ok && at == v {
				continue
			}
			o.versions[r.Slot] = v
			if row := view.OwnRow(r); known && row != was || !known && row != (state.Row{Replica: r.ID}) {
				o.rows = append(o.rows, row)
			}
		}
	}
	if seen < len(o.told) {
		o.rows = g.vanished(o.rows)
	}
	if len(o.rows) == 0 {
		return false
	}
	for _, row := range o.rows {
		if row == (state.Row{Replica: row.Replica}) {
			delete(o.told, row.Replica)
		} else {
			o.told[row.Replica] = row
		}
	}
	g.sendRows(now, false, o.rows)
	return true
}

// vanished appends zero rows for replicas that were told of and are not listed any
// more.
func (g *Gossip) vanished(rows []state.Row) []state.Row {
	v := g.store.View()
	for id := range g.out.told {
		if v.Replica(id) == nil {
			rows = append(rows, state.Row{Replica: id})
		}
	}
	return rows
}

// fullRows tells all there is: the repair of what was lost, and a sign of life.
func (g *Gossip) fullRows(now time.Time) {
	o := &g.out
	clear(o.versions)
	for _, p := range g.store.View().Pools {
		for _, r := range p.Replicas {
			o.versions[r.Slot] = r.Cell.Version()
		}
	}
	o.rows = g.store.OwnRows(o.rows[:0])
	clear(o.told)
	for _, row := range o.rows {
		o.told[row.Replica] = row
	}
	g.sendRows(now, true, o.rows)
}

// datagramRows bounds the rows of one datagram, which should fit a packet.
const datagramRows = 24

// sendRows gives rows to every stream, and to alive members without one in
// datagrams: absolute values, so that each helps whichever arrives.
func (g *Gossip) sendRows(now time.Time, full bool, rows []state.Row) {
	o := &g.out
	m := wire.Rows{Sent: g.clock.Since(now), Rows: state.Rows{
		Router: g.cfg.Self, Boot: g.boot, Full: full, FactsIndex: g.store.View().Facts.Index, Rows: rows,
	}}
	o.seq++
	m.Seq = o.seq
	o.buf = wire.AppendRows(o.buf[:0], &m)
	g.all(wire.KindRows, o.buf)
	if len(o.unheard) == 0 {
		return
	}
	parts := slices.Collect(slices.Chunk(rows, datagramRows))
	if len(parts) == 0 {
		parts = [][]state.Row{nil}
	}
	for i, part := range parts {
		m.Rows.Rows, m.Full = part, full && len(parts) == 1
		if i > 0 {
			o.seq++
			m.Seq = o.seq
		}
		o.buf = wire.AppendRows(o.buf[:0], &m)
		for _, id := range o.unheard {
			if g.roster.send(id, wire.KindRows, o.buf) {
				g.metrics.out[wire.KindRows].Add(float64(len(o.buf)))
			}
		}
	}
}

// readings tells of the readings taken or heard since the last turn.
func (g *Gossip) readings(now time.Time) {
	g.mu.Lock()
	if len(g.fresh) == 0 {
		g.mu.Unlock()
		return
	}
	fresh := g.fresh
	g.fresh = map[state.ReplicaID]reading{}
	g.mu.Unlock()
	for _, p := range g.streams() {
		var list []state.Reading
		for _, r := range fresh {
			if r.from == "" || g.passes(p, r.At.Boot, r.from, now) {
				list = append(list, r.Reading)
			}
		}
		if len(list) > 0 {
			g.out.buf = wire.AppendReadings(g.out.buf[:0], list)
			g.send(p.id, wire.KindReadings, g.out.buf)
		}
	}
}
