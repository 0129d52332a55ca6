package gossip

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/sketch"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// outbox is the sending goroutine's state. Only wanted is read elsewhere, under
// Gossip.mu.
type outbox struct {
	seq      uint64                        // of the last rows message
	told     map[state.ReplicaID]state.Row // as last told
	versions []uint64                      // of the cells when last looked at, by slot
	rows     []state.Row
	waits    map[string]state.Backlog // by pool, as last told
	backlogs []state.Backlog
	traffic  []state.Traffic
	loads    []wire.Rows // of one peer
	frames   []wire.Frame
	batch    wire.OpBatch
	buf      []byte
	rowsBuf  []byte
	opsBuf   []byte

	rowsDirty, opsDirty bool
	milestones          []milestone // of the journal, oldest first
	stuck               bool        // a peer's queue was full
	rowsAt              time.Time   // earliest next message of changed rows
	opsAt               time.Time   // when dirty: next look at the journal
	fullAt              time.Time
	beaconAt            time.Time
	udpAt               time.Time
	tickAt              time.Time
	snapshotAt          time.Time
	taken               *snapshot // the last one made
	teacher             teacher
	adapters            map[state.ReplicaID]toldAdapters

	followed uint64                  // changes of members and streams that were acted on
	wanted   map[state.RouterID]bool // should have a stream; guarded by Gossip.mu
	set      map[state.RouterID]string
	unheard  []state.RouterID // alive members without a stream
}

const (
	tickEvery = 250 * time.Millisecond
	udpEvery  = 4 * time.Second
	never     = 24 * time.Hour
)

func newOutbox(now time.Time) outbox {
	return outbox{
		told:   map[state.ReplicaID]state.Row{},
		waits:  map[string]state.Backlog{},
		wanted: map[state.RouterID]bool{}, opsDirty: true,
		fullAt: now, beaconAt: now, udpAt: now, tickAt: now, teacher: teacher{seq: 1, at: now},
	}
}

// tell is the sending loop.
func (g *Gossip) tell(ctx context.Context) {
	o := &g.out
	warm := time.Now().Add(g.cfg.WarmBound)
	t := time.NewTimer(0)
	defer t.Stop()
	var appended <-chan struct{} // of the journal; kept until it is seen closed, else a change would be missed
	for {
		if appended == nil {
			appended = g.index.Journal().Changed()
		}
		now := time.Now()
		if now.After(warm) {
			g.warm.Do(func() { close(g.ready) })
		}
		t.Reset(max(0, time.Until(g.step(now))))
		rows, changed := g.store.Changed(), appended
		if o.rowsDirty {
			rows = nil
		}
		if o.opsDirty {
			changed = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-rows:
			o.rowsDirty = true
			now = time.Now()
			o.rowsAt = later(o.rowsAt, now.Add(gather))
			o.teacher.learns(now)
		case <-changed:
			appended, o.opsDirty = nil, true
			o.opsAt = time.Now().Add(jitter(g.cfg.OpsEvery) * 3 / 4) // within OpsEvery with the jitter
		case <-g.poke:
		case <-t.C:
		}
	}
}

// step does all that is due and returns when to look again.
func (g *Gossip) step(now time.Time) (next time.Time) {
	o := &g.out
	if !now.Before(o.tickAt) {
		o.tickAt = now.Add(jitter(tickEvery))
		g.tick(now)
	}
	g.bury(now)
	if v := g.roster.changes.Load() + g.streamChanges.Load(); v != o.followed {
		o.followed = v
		g.follow(now)
	}
	g.mu.Lock()
	if g.greet {
		g.greet, o.fullAt = false, now
	}
	if g.resume {
		g.resume, o.opsDirty, o.opsAt = false, true, now
		o.snapshotAt = now // for summaries
	}
	again := g.again
	g.again = false
	if g.say {
		g.say, o.beaconAt = false, now
	}
	g.mu.Unlock()
	if again {
		g.retell(now)
	}
	if !now.Before(o.beaconAt) {
		o.beaconAt = now.Add(jitter(g.cfg.BeaconEvery))
		g.beacons(now)
	}
	if !now.Before(o.udpAt) {
		o.udpAt = now.Add(jitter(udpEvery))
		g.datagrams(now)
	}
	g.turn(now)
	g.readings(now)
	if g.teaches() && !now.Before(o.teacher.at) {
		g.teach(now)
	}
	g.passOn(now)
	if !now.Before(o.snapshotAt) {
		g.snapshots(now)
	}
	next = o.tickAt
	for _, due := range []time.Time{o.beaconAt, o.udpAt, o.fullAt, o.snapshotAt} {
		if due.Before(next) {
			next = due
		}
	}
	if g.teaches() && o.teacher.at.Before(next) {
		next = o.teacher.at
	}
	if (o.rowsDirty || g.relaying()) && o.rowsAt.Before(next) {
		next = o.rowsAt
	}
	if o.opsDirty && o.opsAt.Before(next) {
		next = o.opsAt
	}
	return next
}

// passes says that a peer gets an origin's rows and readings from us.
func (g *Gossip) passes(p *peer, origin state.BootID, from state.RouterID, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.needs(origin, from) && now.Sub(p.upAt) >= relayAfter
}

// lacks says that a peer gets an op only from us. It is known to have what it passed
// on itself, and what came before that.
func (g *Gossip) lacks(p *peer, op *sketch.Op) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.needs(op.Boot, "") && (op.Seq == 0 || op.Seq > p.knows[op.Boot])
}

// unheardBy says that a peer hears an origin only through us.
func (g *Gossip) unheardBy(p *peer, origin state.BootID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.needs(origin, "")
}

// passOn relays lessons to those who do not hear their origin.
func (g *Gossip) passOn(now time.Time) {
	g.mu.Lock()
	list := g.relay
	g.relay = nil
	g.mu.Unlock()
	if len(list) == 0 {
		return
	}
	for _, p := range g.streams() {
		for _, m := range list {
			if g.passes(p, m.origin, m.from, now) {
				g.send(p.id, m.kind, m.payload)
			}
		}
	}
}

// beacons says who we are and whom we hear, and measures the delay.
func (g *Gossip) beacons(now time.Time) {
	b := wire.Beacon{Router: g.cfg.Self, Boot: g.boot, Sent: g.clock.Since(now), Addr: g.roster.self(), Version: g.cfg.Version}
	members := map[state.RouterID]member{}
	for _, m := range g.roster.snapshot() {
		members[m.id] = m
	}
	hears := g.hears(now)
	for _, p := range g.streams() {
		m, ok := members[p.id]
		b.UDPQuiet = ok && m.state == Alive && g.udpQuiet(&m, p, now)
		b.Hears, b.Same = g.sayHears(p, hears)
		g.send(p.id, wire.KindBeacon, wire.AppendBeacon(nil, &b))
	}
}

// settled is how long a stream must be up before others may stop relaying to us.
const settled = time.Second

// hears lists whose news we get from themselves, in order. It is not changed afterwards.
func (g *Gossip) hears(now time.Time) []state.BootID {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]state.BootID, 0, len(g.peers))
	for _, p := range g.peers {
		if now.Sub(p.upAt) >= settled {
			list = append(list, p.boot)
		}
	}
	slices.Sort(list)
	return list
}

// sayHears is what a peer is to be told of that; nothing where it was told the same.
func (g *Gossip) sayHears(p *peer, list []state.BootID) (say []state.BootID, same bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.speak >= tableVersion && p.saidHears != nil && slices.Equal(list, p.saidHears) {
		return nil, true
	}
	p.saidHears = list // shared by all who are told the same
	return list, false
}

// datagrams shows peers that datagrams of ours pass.
func (g *Gossip) datagrams(now time.Time) {
	b := wire.AppendBeacon(nil, &wire.Beacon{Router: g.cfg.Self, Boot: g.boot, Sent: g.clock.Since(now)})
	for _, p := range g.streams() {
		g.roster.send(p.id, wire.KindBeacon, b)
	}
}

// goodbye says that we leave, on every way there is.
func (g *Gossip) goodbye() {
	b := wire.AppendBeacon(nil, &wire.Beacon{
		Router: g.cfg.Self, Boot: g.boot, Sent: g.clock.Since(time.Now()), Leaving: true,
	})
	for _, p := range g.streams() {
		g.mesh.Send(p.id, wire.KindBeacon, b)
	}
	for _, m := range g.roster.snapshot() {
		if m.state == Alive {
			g.roster.send(m.id, wire.KindBeacon, b)
		}
	}
}

// tick looks after what no message brings: silence, gauges, forgetting.
func (g *Gossip) tick(now time.Time) {
	for _, id := range g.store.DropSilent(now.Add(-g.cfg.Silence)) {
		g.mu.Lock()
		h := g.heard[id]
		g.mu.Unlock()
		g.log.Warn().Str("peer", string(id)).Str("name", g.roster.name(id)).Msg("router is silent, its rows are dropped")
		if h.boot != 0 {
			g.index.DropBoot(h.boot, h.at) // what it did since, if it lives, will count
		}
	}
	g.out.mark(now, g.index.Journal().Head())
	g.roster.prune(now)
	g.follow(now)
	if t := g.out.taken; t != nil && now.Sub(t.at) > reuse {
		g.out.taken = nil
	}
	if now.Sub(g.out.teacher.takenAt) > reuse {
		g.out.teacher.summaries = nil
	}
	members := g.roster.snapshot()
	count := map[MemberState]int{Alive: 1}
	bad := map[string][]*member{}
	g.mu.Lock()
	for i := range members {
		count[members[i].state]++
		if d := g.degraded(&members[i], now); d != "" {
			bad[d] = append(bad[d], &members[i])
		}
	}
	g.mu.Unlock()
	for _, s := range []MemberState{Alive, Dead, Left} {
		g.metrics.members.WithLabelValues(string(s)).Set(float64(count[s]))
	}
	for _, r := range degradedReasons {
		g.metrics.degraded.WithLabelValues(r).Set(float64(len(bad[r])))
		if len(bad[r]) > 0 {
			g.roster.warnDegraded(r, bad[r])
		}
	}
}

// bury acts on the deaths membership told of.
func (g *Gossip) bury(now time.Time) {
	for _, d := range g.roster.takeGone() {
		g.mu.Lock()
		h := g.heard[d.id]
		alive := g.peers[d.id] != nil && g.peers[d.id].boot == d.boot
		g.mu.Unlock()
		if alive {
			continue // its stream says otherwise: silence will tell
		}
		at := now
		if h.boot == d.boot {
			g.store.DropRouter(d.id)
			at = h.at // it may be cut off only: what it did since will count
		}
		g.index.DropBoot(d.boot, at)
	}
}

// follow keeps the mesh's wishes in step with membership.
func (g *Gossip) follow(now time.Time) {
	o := &g.out
	addr, taken := map[state.RouterID]string{}, map[string]bool{}
	var ids, alive []state.RouterID
	members := g.roster.snapshot()
	for _, m := range members {
		if m.state == Alive {
			alive = append(alive, m.id)
			addr[m.id] = dialable(m.meta.MeshAddr, m.node.Addr)
			taken[addr[m.id]] = true
		}
	}
	ids = append(ids, alive...)
	for _, m := range members {
		if m.state != Dead || now.Sub(m.since) >= keepDial {
			continue
		}
		// Where another router answers by now the dead one is not: it was started
		// without its disk, or its address was given away.
		if a := dialable(m.meta.MeshAddr, m.node.Addr); !taken[a] {
			ids = append(ids, m.id)
			addr[m.id] = a
		}
	}
	want := map[state.RouterID]string{}
	for _, id := range neighbours(g.cfg.Self, ids, g.cfg.AllPairs) {
		want[id] = addr[id]
	}
	g.mu.Lock()
	o.unheard = o.unheard[:0]
	for _, id := range alive {
		if _, ok := want[id]; ok && g.peers[id] == nil {
			o.unheard = append(o.unheard, id)
		}
	}
	changed := !maps.Equal(want, o.set)
	if changed {
		o.set = want
		clear(o.wanted)
		for id := range want {
			o.wanted[id] = true
		}
	}
	g.mu.Unlock()
	if changed {
		g.mesh.SetPeers(want)
	}
}
