package gossip

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/sketch"
	"github.com/hearsay-llm/hearsay/state/wire"
)

const (
	readOps   = 1024      // ops looked at in one go
	frameSize = 32 << 10  // bytes of ops after which a frame is closed
	turnSize  = 256 << 10 // bytes of ops per peer and turn
	markEvery = 4096      // a peer is told of so many positions that hold nothing for it
	manyOps   = 64        // frames this full may wait ten times as long
	tailOps   = 256       // ops repeated to a peer that begins at the tail
)

// page is a stretch of the journal, read once for all peers that stand there.
type page struct {
	ops  []sketch.Op
	next uint64
	gap  bool
}

// told is what came of telling the peers what is new in the journal.
type told struct {
	most  int  // ops told to one peer
	stuck bool // more waits, or a queue is full
}

// journalTo tells one peer what is new in the journal. lead are frames that leave
// with the first of it, or alone.
func (g *Gossip) journalTo(p *peer, pages map[uint64]page, now time.Time, lead []wire.Frame, sum *told) {
	o := &g.out
	told, size := 0, 0
	defer func() {
		if len(lead) > 0 {
			g.sendAll(p, lead)
		}
		sum.most = max(sum.most, told)
	}()
	for {
		g.mu.Lock()
		at, sent := p.cursor, p.sent
		follows, closing := p.following && p.snapshot == nil, p.closing
		onTable := p.speak >= tableVersion
		g.mu.Unlock()
		if !follows {
			return
		}
		pg, ok := pages[at]
		if !ok {
			pg.ops, pg.next, pg.gap = g.index.Journal().Read(at, readOps)
			pages[at] = pg
		}
		if pg.gap {
			if now.Sub(p.beganAt) < beginAgain {
				sum.stuck = true
				return
			}
			g.begin(p, now)
			return
		}
		if len(pg.ops) == 0 {
			if closing {
				lead = g.closeSnapshot(p, at, lead, sum)
			}
			return
		}
		if size >= turnSize {
			sum.stuck = true
			return
		}
		// What is left of the page after a frame was full goes into the next one.
		used := 0
		batch := &o.batch
		batch.Reset()
		if onTable {
			batch.On(&p.told)
		}
		for i := range pg.ops {
			if batch.Size() >= frameSize {
				break
			}
			used++
			if op, ok := g.forPeer(p, pg.ops[i], now); ok {
				batch.Add(&op)
			}
		}
		next := at + uint64(used)
		if batch.Len() > 0 || next-sent >= markEvery {
			f := wire.Frame{Kind: wire.KindOps}
			if onTable {
				f.Kind, o.opsBuf = wire.KindStreamOps, batch.AppendOn(o.opsBuf[:0], sent, next)
			} else {
				o.opsBuf = batch.Append(o.opsBuf[:0], sent, next)
			}
			f.Payload = o.opsBuf
			all := append(lead, f)
			lead = nil
			if !g.sendAll(p, all) {
				sum.stuck = true
				return
			}
			sent = next
			told += batch.Len()
			size += batch.Size()
		}
		g.mu.Lock()
		if p.cursor == at && p.snapshot == nil { // it did not resume elsewhere meanwhile
			p.cursor, p.sent = next, sent
		}
		g.mu.Unlock()
	}
}

// forPeer leaves out what a peer hears from its origin. An origin it does not hear
// may be unknown to its clock, so such a stamp is given on our own.
func (g *Gossip) forPeer(p *peer, op sketch.Op, now time.Time) (sketch.Op, bool) {
	if op.Boot != g.boot && !g.lacks(p, &op) {
		return op, false
	}
	if op.Stamp.Boot != g.boot && op.Stamp.Boot != p.boot && g.unheardBy(p, op.Stamp.Boot) {
		if re, ok := g.index.Restamp(op, now); ok {
			return re, true
		}
	}
	return op, true
}

// snapshot is everything the index held at one time, encoded.
type snapshot struct {
	at     time.Time
	cursor uint64 // journal position before it was taken
	chunks [][]byte
}

// reuse is how long a snapshot is given to further peers: the journal's ops since
// then follow it anyway.
const reuse = 2 * time.Second

// beginAgain is the least time between two snapshots for one peer: where the
// journal is overrun faster than a snapshot is sent, it must not be all we do.
const beginAgain = time.Second

// begin starts a peer on a snapshot.
func (g *Gossip) begin(p *peer, now time.Time) {
	o := &g.out
	p.beganAt = now
	if o.taken != nil {
		if _, _, overrun := g.index.Journal().Read(o.taken.cursor, 0); overrun || now.Sub(o.taken.at) > reuse {
			o.taken = nil
		}
	}
	if o.taken == nil {
		s := &snapshot{at: now, cursor: g.index.Journal().Head()}
		var batch wire.OpBatch
		flush := func() {
			if batch.Len() > 0 {
				s.chunks = append(s.chunks, batch.Append(nil, 0, 0))
				batch.Reset()
			}
		}
		g.index.Snapshot(func(op sketch.Op) bool {
			batch.Add(&op)
			if batch.Size() >= frameSize {
				flush()
			}
			return true
		})
		flush()
		o.taken = s
	}
	g.mu.Lock()
	p.snapshot, p.chunk, p.following, p.closing = o.taken, 0, true, false
	g.mu.Unlock()
	o.snapshotAt = now
}

const snapshotEvery = 10 * time.Millisecond

// closeSnapshot tells a peer that it has everything: the snapshot, and what came to
// the journal since that was taken. It returns what is left of lead.
func (g *Gossip) closeSnapshot(p *peer, at uint64, lead []wire.Frame, sum *told) []wire.Frame {
	end := wire.Frame{Kind: wire.KindSnapshotEnd, Payload: wire.AppendSnapshotEnd(nil, &wire.SnapshotEnd{Cursor: at})}
	if !g.sendAll(p, append(lead, end)) {
		sum.stuck = true
		return nil
	}
	g.mu.Lock()
	if p.cursor == at {
		p.closing, p.sent = false, at
	}
	g.mu.Unlock()
	return nil
}

// snapshots sends the next chunks of those under way, at the bounded rate for all
// together.
func (g *Gossip) snapshots(now time.Time) {
	o := &g.out
	budget := g.cfg.SnapshotRate / int(time.Second/snapshotEvery)
	open := false
	for _, p := range g.streams() {
		if g.sendSummaries(p, now, &budget) {
			open = true
			continue
		}
		for {
			g.mu.Lock()
			s, i := p.snapshot, p.chunk
			g.mu.Unlock()
			if s == nil {
				break
			}
			open = true
			if budget <= 0 {
				break
			}
			if i < len(s.chunks) {
				if !g.send(p.id, wire.KindSnapshotChunk, s.chunks[i]) {
					break
				}
				budget -= len(s.chunks[i])
			}
			g.mu.Lock()
			if p.snapshot == s {
				p.chunk++
				if i == len(s.chunks) {
					p.snapshot, p.cursor, p.sent, p.closing = nil, s.cursor, s.cursor, true
				}
			}
			g.mu.Unlock()
			if i == len(s.chunks) {
				o.opsDirty, o.opsAt = true, now
				break
			}
		}
	}
	o.snapshotAt = now.Add(never)
	if open {
		o.snapshotAt = now.Add(jitter(snapshotEvery))
	}
}

// resumed acts on a peer's word of how much of our journal it has.
func (g *Gossip) resumed(p *peer, m wire.Resume) {
	head := g.index.Journal().Head()
	g.mu.Lock()
	p.again, p.closing = true, false
	p.untaught = !m.Tail && g.teaches() // else the one it follows tells it
	switch {
	case m.Tail:
		p.following, p.snapshot = true, nil
		p.cursor = head - min(head, tailOps)
		p.sent = p.cursor
	case m.Boot == g.boot && m.Cursor <= head:
		p.following, p.snapshot = true, nil
		p.cursor, p.sent = m.Cursor, m.Cursor // a gap shows when it is read
	default:
		p.following, p.snapshot = true, nil
		p.cursor, p.sent = fromNothing, fromNothing // reads as a gap
	}
	g.resume = true
	g.mu.Unlock()
	g.wake()
}

// fromNothing is a position no journal has: reading there shows a gap, and so
// leads to a snapshot.
const fromNothing = ^uint64(0)

// ask tells a peer how much of its journal is here. The caller holds mu.
func (g *Gossip) ask(p *peer, now time.Time) {
	var m wire.Resume
	c, known := g.cursors[p.boot]
	known = known && !c.open
	switch {
	case known:
		m.Boot, m.Cursor = p.boot, c.next
	case !g.synced && (g.source == "" || g.source == p.id):
		g.source = p.id // everything, once, from the first who is there
	case !g.synced || g.knownByOthers(p.boot):
		m.Tail = true // what was before comes with the snapshot, or came long ago
	default:
		m.Boot = p.boot
	}
	if len(g.cursors) >= maxCursors {
		clear(g.cursors)
	}
	if !known {
		g.cursors[p.boot] = cursor{open: true}
	}
	p.askedAt = now
	if !g.send(p.id, wire.KindResume, wire.AppendResume(nil, &m)) && g.source == p.id {
		g.source = ""
	}
}

// knownByOthers says that a peer we follow hears that boot itself, so that its
// past came or comes through there. The caller holds mu.
func (g *Gossip) knownByOthers(b state.BootID) bool {
	for _, p := range g.peers {
		if p.boot == b {
			continue
		}
		if _, ok := p.hears[b]; ok {
			return true
		}
	}
	return false
}
