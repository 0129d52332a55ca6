package gossip

import (
	"context"
	"errors"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// inbound is one message on its way to the apply loop.
type inbound struct {
	kind    wire.Kind
	from    state.RouterID // direct sender by the mesh; empty: a datagram, whose sender only says who it is
	boot    state.BootID
	payload []byte
	at      time.Time
}

// frame takes a frame from a reader goroutine of the mesh. When the apply loop is
// behind it waits, and so does that peer.
func (g *Gossip) frame(k wire.Kind, from state.RouterID, boot state.BootID, payload []byte) {
	g.metrics.in[k].Add(float64(len(payload)))
	in := inbound{kind: k, from: from, boot: boot, payload: append([]byte(nil), payload...), at: time.Now()}
	select {
	case g.inbox <- in:
	case <-g.stopped:
	}
}

// packet takes a datagram. It never blocks, as memberlist's loop must not.
func (g *Gossip) packet(b []byte) {
	if len(b) == 0 {
		return
	}
	k := wire.Kind(b[0])
	if k != wire.KindRows && k != wire.KindBeacon {
		return
	}
	g.metrics.in[k].Add(float64(len(b)))
	select {
	case g.inbox <- inbound{kind: k, payload: append([]byte(nil), b[1:]...), at: time.Now()}:
	default:
		g.metrics.drop("inbox")
	}
}

// up and down note a peer's stream. They come from the mesh.
func (g *Gossip) up(id state.RouterID, boot state.BootID) {
	now := time.Now()
	g.note(id, boot, now, true)
	g.mu.Lock()
	p := &peer{id: id, boot: boot, upAt: now, has: map[state.BootID]uint64{}, knows: map[state.BootID]uint64{}, speak: wire.MinVersion}
	g.peers[id] = p
	clear(g.byAll)
	g.streamChanges.Add(1)
	b := wire.Beacon{Router: g.cfg.Self, Boot: g.boot, Sent: g.clock.Since(now), Addr: g.roster.self(), Version: g.cfg.Version}
	g.send(id, wire.KindBeacon, wire.AppendBeacon(nil, &b)) // first: it places our stamps
	g.ask(p, now)
	g.greet = true
	g.mu.Unlock()
	g.wake()
}

func (g *Gossip) down(id state.RouterID, _ state.BootID) {
	now := time.Now()
	g.mu.Lock()
	delete(g.peers, id)
	clear(g.byAll)
	g.streamChanges.Add(1)
	g.say = true
	g.roster.hint(id, "")
	if g.source == id {
		g.source = ""
		for _, p := range g.peers {
			delete(g.cursors, p.boot)
			g.ask(p, now)
			if g.source != "" {
				break
			}
		}
	}
	g.mu.Unlock()
	g.wake()
}

// drain bounds the messages applied under one publication of the View.
const drain = 256

// apply is the one loop that changes Store and Index for what came.
func (g *Gossip) apply(ctx context.Context) {
	var dec wire.Decoder
	batch := make([]inbound, 0, drain)
	for {
		select {
		case <-ctx.Done():
			return
		case in := <-g.inbox:
			batch = append(batch[:0], in)
		}
	more:
		for len(batch) < drain {
			select {
			case in := <-g.inbox:
				batch = append(batch, in)
			default:
				break more
			}
		}
		g.store.Batch(func() {
			for i := range batch {
				if err := g.take(&dec, &batch[i]); err != nil {
					g.metrics.drop("malformed")
					g.log.Debug().Err(err).Str("peer", string(batch[i].from)).Stringer("kind", batch[i].kind).Msg("message dropped")
				}
				batch[i].payload = nil
			}
		})
	}
}

// take applies one message.
func (g *Gossip) take(dec *wire.Decoder, in *inbound) error {
	switch in.kind {
	case wire.KindRows:
		m, err := dec.Rows(in.payload)
		if err != nil {
			return err
		}
		g.takeRows(&m, in)
	case wire.KindStreamRows:
		p := g.peerOf(in)
		if p == nil {
			g.metrics.drop("out_of_step")
			return nil
		}
		list, err := dec.Loads(&p.heard, in.payload)
		if err != nil {
			return g.outOfStep(p, in, err)
		}
		for i := range list {
			g.takeRows(&list[i], in)
		}
	case wire.KindStreamOps:
		p := g.peerOf(in)
		if p == nil {
			g.metrics.drop("out_of_step")
			return nil
		}
		m, err := dec.OpsOn(&p.heard, in.payload)
		if err != nil {
			return g.outOfStep(p, in, err)
		}
		g.takeOps(&m, in)
	case wire.KindReadings:
		list, err := dec.Readings(in.payload)
		if err != nil {
			return err
		}
		g.takeReadings(list, in)
	case wire.KindOps, wire.KindSnapshotChunk:
		m, err := dec.Ops(in.payload)
		if err != nil {
			return err
		}
		g.takeOps(&m, in)
	case wire.KindSnapshotEnd:
		m, err := dec.SnapshotEnd(in.payload)
		if err != nil {
			return err
		}
		g.takeEnd(m, in)
	case wire.KindResume:
		m, err := dec.Resume(in.payload)
		if err != nil {
			return err
		}
		if p := g.peerOf(in); p != nil {
			g.resumed(p, m)
		}
	case wire.KindLessons:
		m, err := dec.Lessons(in.payload)
		if err != nil {
			return err
		}
		g.takeLessons(&m, in)
	case wire.KindBeacon:
		m, err := dec.Beacon(in.payload)
		if err != nil {
			return err
		}
		g.takeBeacon(&m, in)
	case wire.KindBeaconReply:
		m, err := dec.BeaconReply(in.payload)
		if err != nil {
			return err
		}
		if d := g.clock.Since(in.at) - m.Sent; d >= 0 && d < time.Minute {
			g.metrics.delay.Observe((d / 2).Seconds())
		}
	}
	return nil
}

// outOfStep asks a peer to start over. What was lost is repaired like that of a
// lost frame.
func (g *Gossip) outOfStep(p *peer, in *inbound, err error) error {
	g.mu.Lock()
	if g.peers[p.id] == p && p.heard.Begun() && in.at.Sub(p.askedAt) > askAgain {
		g.ask(p, in.at)
	}
	g.mu.Unlock()
	if errors.Is(err, wire.ErrOutOfStep) {
		g.metrics.drop("out_of_step")
		return nil
	}
	return err
}

// peerOf is the stream's peer, unless the stream is of another boot by now.
func (g *Gossip) peerOf(in *inbound) *peer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.peerHere(in)
}

// peerHere is peerOf for a caller that holds mu.
func (g *Gossip) peerHere(in *inbound) *peer {
	if p := g.peers[in.from]; p != nil && p.boot == in.boot {
		return p
	}
	return nil
}

func (g *Gossip) takeRows(m *wire.Rows, in *inbound) {
	if m.Router == g.cfg.Self || m.Boot == g.boot || m.Boot == 0 {
		return
	}
	direct := in.from == m.Router && in.boot == m.Boot
	if in.from == "" {
		g.roster.heardUDP(m.Router, in.at)
	}
	if direct || in.from == "" { // a datagram comes from its origin, too
		g.clock.Observe(m.Boot, m.Sent, in.at)
	}
	if !g.note(m.Router, m.Boot, in.at, direct) {
		g.metrics.drop("old_boot")
		return
	}
	news := g.store.ApplyRows(m.Rows)
	if !news && g.lives(m, in, direct) && g.store.Reinstate(m.Router, m.Boot) {
		news = g.store.ApplyRows(m.Rows)
	}
	g.appliedRows(m, news)
	g.passRows(m, in, direct, news)
}

func (g *Gossip) takeReadings(list []state.Reading, in *inbound) {
	for _, r := range list {
		if r.Reader == g.cfg.Self || !g.store.ApplyReading(r) {
			continue
		}
		g.mu.Lock()
		if g.wanting(r.At.Boot, in.from, in.at) {
			if x := g.store.View().Replica(r.Replica); x != nil && x.AdaptersSum == r.AdaptersSum {
				r.Adapters = x.Adapters // only its sum may have come; whoever gets it from here may lack the list
			}
			g.keepReading(reading{Reading: r, from: in.from})
			g.wake()
		}
		g.mu.Unlock()
	}
}

// askAgain is the least time between two requests to resume to one peer.
const askAgain = 200 * time.Millisecond

func (g *Gossip) takeOps(m *wire.Ops, in *inbound) {
	if m.Unknown > 0 {
		g.metrics.dropped.WithLabelValues("unknown_op").Add(float64(m.Unknown))
	}
	news := 0
	for i := range m.Ops {
		if g.index.Apply(m.Ops[i], in.at) {
			if news == 0 && in.kind != wire.KindSnapshotChunk {
				defer g.appliedOps(m.Ops[i].Stamp)
			}
			news++
		}
	}
	g.metrics.ops.add(news, len(m.Ops)-news)
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.peerHere(in)
	if p != nil {
		p.list(m.Ops, in)
	}
	if in.kind == wire.KindSnapshotChunk {
		return
	}
	if p != nil {
		p.passedOn(m.Ops)
	}
	c := g.cursors[in.boot]
	switch {
	case c.open || m.From <= c.next:
		g.cursors[in.boot] = cursor{next: max(m.Next, c.next)}
		if c.open {
			g.cursors[in.boot] = cursor{next: m.Next}
		}
	default: // a frame was lost
		if p != nil && in.at.Sub(p.askedAt) > askAgain {
			g.ask(p, in.at)
		}
	}
}

// takeEnd closes a snapshot.
func (g *Gossip) takeEnd(m wire.SnapshotEnd, in *inbound) {
	g.mu.Lock()
	g.cursors[in.boot] = cursor{next: m.Cursor}
	first := !g.synced
	g.synced = true
	if g.source == in.from {
		g.source = ""
	}
	g.mu.Unlock()
	if first {
		g.log.Info().Str("peer", string(in.from)).Str("name", g.roster.name(in.from)).Msg("first snapshot applied")
	}
	g.warm.Do(func() { close(g.ready) })
	g.listed(in)
}

func (g *Gossip) takeBeacon(m *wire.Beacon, in *inbound) {
	if m.Leaving {
		g.roster.leaves(m.Router, m.Boot)
	}
	if in.from == "" {
		g.roster.heardUDP(m.Router, in.at)
		return
	}
	if m.Router != in.from || m.Boot != in.boot {
		return
	}
	g.clock.Observe(m.Boot, m.Sent, in.at)
	g.note(m.Router, m.Boot, in.at, true)
	g.roster.setQuiet(m.Router, m.UDPQuiet)
	g.roster.placed(m.Router, m.Boot, m.Addr)
	g.send(in.from, wire.KindBeaconReply, wire.AppendBeaconReply(nil, &wire.BeaconReply{Boot: g.boot, Sent: m.Sent}))
	g.mu.Lock()
	if p := g.peerHere(in); p != nil {
		p.speak = min(m.Version, g.cfg.Version)
	}
	g.mu.Unlock()
	if m.Same {
		return
	}
	hears := make(map[state.BootID]struct{}, len(m.Hears))
	for _, b := range m.Hears {
		hears[b] = struct{}{}
	}
	g.mu.Lock()
	if p := g.peerHere(in); p != nil {
		if p.lose(hears) {
			g.again = true
			g.wake()
		}
		p.hears = hears
		clear(g.byAll)
	}
	g.mu.Unlock()
}
