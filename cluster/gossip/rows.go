package gossip

import (
	"maps"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// fullPace is the number of routers up to which each tells the others at the full
// pace.
const fullPace = 32

// rowsEvery is longer in proportion where there are many routers, so that the
// writes and reads of a router in a second stay bounded.
func (g *Gossip) rowsEvery() time.Duration {
	n := len(g.store.View().Routers) + 1
	return g.cfg.RowsEvery * time.Duration((n+fullPace-1)/fullPace)
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
		g.metrics.unsent.WithLabelValues(k.String()).Inc()
		g.metrics.drop("queue")
		return false
	}
	g.metrics.out[k].Add(float64(len(payload)))
	return true
}

// sendAll gives one peer frames that use its table, all or none.
func (g *Gossip) sendAll(p *peer, frames []wire.Frame) bool {
	if !g.mesh.SendAll(p.id, frames...) {
		for i := range frames {
			g.metrics.unsent.WithLabelValues(frames[i].Kind.String()).Inc()
		}
		g.metrics.drop("queue")
		p.told.Reset() // it refers to what the peer did not get
		return false
	}
	for i := range frames {
		g.metrics.out[frames[i].Kind].Add(float64(len(frames[i].Payload)))
	}
	return true
}

// all gives every peer with a stream a frame.
func (g *Gossip) all(k wire.Kind, payload []byte) {
	for _, p := range g.streams() {
		g.send(p.id, k, payload)
	}
}

// turn tells what is due: rows of our own, rows to pass on, and what is new in the
// journal. What is due to one peer leaves together.
func (g *Gossip) turn(now time.Time) {
	o := &g.out
	var own *wire.Rows
	due := !now.Before(o.rowsAt)
	switch {
	case !now.Before(o.fullAt):
		o.fullAt = now.Add(jitter(g.cfg.FullEvery))
		own = g.fullRows(now)
		o.rowsDirty = false
	case o.rowsDirty && due:
		own = g.changedRows(now)
		o.rowsDirty = false
	}
	var relays []*load
	if due || own != nil {
		relays = g.takeLoads()
	}
	ops := o.opsDirty && !now.Before(o.opsAt)
	if own != nil || len(relays) > 0 {
		o.rowsAt = now.Add(jitter(g.rowsEvery()))
		ops = ops || o.opsDirty && !o.stuck // they leave in the same record
	}
	if own == nil && len(relays) == 0 && !ops {
		return
	}
	var sum told
	pages := map[uint64]page{}
	for _, p := range g.streams() {
		lead := g.rowsFor(p, own, relays, now)
		if ops {
			g.journalTo(p, pages, now, lead, &sum)
		} else if len(lead) > 0 {
			g.sendAll(p, lead)
		}
	}
	if own != nil {
		g.datagramRows(own)
	}
	if !ops {
		return
	}
	o.opsDirty, o.stuck = sum.stuck, sum.stuck
	switch {
	case sum.stuck:
		o.opsAt = now.Add(2 * g.cfg.OpsEvery)
	case sum.most > manyOps: // busy: fewer, larger frames
		o.opsDirty = true
		o.opsAt = now.Add(jitter(g.cfg.OpsEvery * 5))
	}
}

// gather is how long the first change waits for what arises with it: a request's
// row and its placement leave in one record.
const gather = time.Millisecond

// tableVersion is the wire version from which on streams have tables.
const tableVersion = 2

// rowsFor are the frames of rows for one peer: ours, and those it does not hear
// from their origins and has not passed on to us itself.
func (g *Gossip) rowsFor(p *peer, own *wire.Rows, relays []*load, now time.Time) []wire.Frame {
	o := &g.out
	o.loads, o.frames = o.loads[:0], o.frames[:0]
	if own != nil {
		o.loads = append(o.loads, *own)
	}
	g.mu.Lock()
	if now.Sub(p.upAt) >= relayAfter {
		for _, l := range relays {
			if p.needs(l.rows.Boot, "") && p.has[l.rows.Boot] < l.rows.Seq {
				o.loads = append(o.loads, l.message())
			}
		}
	}
	if p.again {
		p.again = false
		p.told.Reset()
	}
	onTable := p.speak >= tableVersion
	g.mu.Unlock()
	if len(o.loads) == 0 {
		return nil
	}
	o.rowsBuf = o.rowsBuf[:0]
	if onTable {
		o.rowsBuf = p.told.AppendLoads(o.rowsBuf, o.loads)
		return append(o.frames, wire.Frame{Kind: wire.KindStreamRows, Payload: o.rowsBuf})
	}
	for i := range o.loads {
		at := len(o.rowsBuf)
		o.rowsBuf = wire.AppendRows(o.rowsBuf, &o.loads[i])
		o.frames = append(o.frames, wire.Frame{Kind: wire.KindRows, Payload: o.rowsBuf[at:len(o.rowsBuf):len(o.rowsBuf)]})
	}
	return o.frames
}

// changedRows is the message of the replicas whose own row (load, failures) changed
// since it was last told; nil: none.
func (g *Gossip) changedRows(now time.Time) *wire.Rows {
	o := &g.out
	o.rows, o.backlogs = o.rows[:0], o.backlogs[:0]
	view := g.store.View()
	for _, p := range view.Pools {
		for _, r := range p.Replicas {
			if !o.changed(r) {
				continue
			}
			was, known := o.told[r.ID]
			if row := view.OwnRow(r); known && row != was || !known && row != (state.Row{Replica: r.ID}) {
				o.rows = append(o.rows, row)
			}
		}
		if b := p.OwnBacklog(); b != o.wait(b.Pool) {
			o.backlogs = append(o.backlogs, b)
			o.waits[b.Pool] = b
		}
	}
	if len(o.rows) == 0 && len(o.backlogs) == 0 {
		return nil
	}
	for _, row := range o.rows {
		if row == (state.Row{Replica: row.Replica}) {
			delete(o.told, row.Replica)
		} else {
			o.told[row.Replica] = row
		}
	}
	return g.ownRows(now, false)
}

// changed says that a replica's own load changed since it was last looked at. Of
// one that is not listed any more the next full rows tell.
func (o *outbox) changed(r *state.ReplicaView) bool {
	v := r.Cell.Version() + 1 // 0: not looked at
	if n := int(r.Slot) + 1 - len(o.versions); n > 0 {
		o.versions = append(o.versions, make([]uint64, n)...)
	}
	if o.versions[r.Slot] == v {
		return false
	}
	o.versions[r.Slot] = v
	return true
}

// wait is what was last told of a pool's queue.
func (o *outbox) wait(pool string) state.Backlog {
	if b, ok := o.waits[pool]; ok {
		return b
	}
	return state.Backlog{Pool: pool}
}

// fullRows is the message of all there is: the repair of what was lost, and a sign
// of life.
func (g *Gossip) fullRows(now time.Time) *wire.Rows {
	o := &g.out
	clear(o.versions)
	for _, p := range g.store.View().Pools {
		for _, r := range p.Replicas {
			o.changed(r)
		}
	}
	o.rows, o.backlogs = g.store.OwnRows(o.rows[:0]), g.store.OwnBacklogs(o.backlogs[:0])
	clear(o.waits)
	for _, b := range o.backlogs {
		o.waits[b.Pool] = b
	}
	clear(o.told)
	for _, row := range o.rows {
		o.told[row.Replica] = row
	}
	o.traffic = g.store.OwnTraffic(o.traffic[:0])
	m := g.ownRows(now, true)
	m.Traffic = o.traffic
	return m
}

// ownRows makes the next message of what stands in the outbox.
func (g *Gossip) ownRows(now time.Time, full bool) *wire.Rows {
	o := &g.out
	o.seq++
	return &wire.Rows{Sent: g.clock.Since(now), Rows: state.Rows{
		Router: g.cfg.Self, Boot: g.boot, Seq: o.seq, Full: full, FactsIndex: g.store.View().Facts.Index, Rows: o.rows, Backlogs: o.backlogs,
	}}
}

// rowsPerDatagram bounds the rows of one datagram, which should fit a packet.
const rowsPerDatagram = 24

// datagramRows gives rows to alive members without a stream: absolute values, so
// that each helps whichever arrives.
func (g *Gossip) datagramRows(own *wire.Rows) {
	o := &g.out
	if len(o.unheard) == 0 {
		return
	}
	m := *own
	parts := slices.Collect(slices.Chunk(own.Rows.Rows, rowsPerDatagram))
	if len(parts) == 0 {
		parts = [][]state.Row{nil}
	}
	for i, part := range parts {
		m.Rows.Rows, m.Full = part, own.Full && len(parts) == 1
		if i > 0 {
			o.seq++
			m.Seq, m.Backlogs, m.Traffic = o.seq, nil, nil
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
	for id, r := range fresh {
		g.out.thin(&r.Reading, now)
		fresh[id] = r
	}
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

// adaptersEvery is how often a list of adapters that does not change is told whole: to
// those who came meanwhile, or missed it.
const adaptersEvery = 2 * time.Second

// toldAdapters is a list of adapters as the others were told it last.
type toldAdapters struct {
	sum uint64
	at  time.Time
}

// thin takes the list of adapters out of a reading whose list has been told a moment
// ago: its sum is enough for those who have it.
func (o *outbox) thin(r *state.Reading, now time.Time) {
	if !r.ListsAdapters() {
		delete(o.adapters, r.Replica)
		return
	}
	if t := o.adapters[r.Replica]; t.sum == r.AdaptersSum && now.Sub(t.at) < adaptersEvery {
		r.Adapters = nil
		return
	}
	if o.adapters == nil || len(o.adapters) >= maxFresh {
		o.adapters = map[state.ReplicaID]toldAdapters{}
	}
	o.adapters[r.Replica] = toldAdapters{r.AdaptersSum, now}
}
