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

// journal tells every following peer what is new in it.
func (g *Gossip) journal(now time.Time) {
	o := &g.out
	pages := map[uint64]page{}
	most, stuck := 0, false
	for _, p := range g.streams() {
		n, ok := g.journalTo(p, pages, now)
		most = max(most, n)
		stuck = stuck || !ok
	}
	o.opsDirty = stuck
	switch {
	case stuck:
		o.opsAt = now.Add(2 * g.cfg.OpsEvery)
	case most > manyOps: // busy: fewer, larger frames
		o.opsDirty = true
		o.opsAt = now.Add(jitter(g.cfg.OpsEvery * 5))
	}
}

// journalTo tells one peer; false: more waits, or its queue is full.
func (g *Gossip) journalTo(p *peer, pages map[uint64]page, now time.Time) (told int, all bool) {
	var batch wire.OpBatch
	size := 0
	for {
		g.mu.Lock()
		at, sent := p.cursor, p.sent
		follows := p.following && p.snapshot == nil
		g.mu.Unlock()
		if !follows {
			return told, true
		}
		pg, ok := pages[at]
		if !ok {
			pg.ops, pg.next, pg.gap = g.index.Journal().Read(at, readOps)
			pages[at] = pg
		}
		if pg.gap {
			if now.Sub(p.beganAt) < beginAgain {
				return told, false
			}
			g.begin(p, now)
			return told, true
		}
		if len(pg.ops) == 0 {
			return told, true
		}
		if size >= turnSize {
			return told, false
		}
		// What is left of the page after a frame was full goes into the next one.
		used := 0
		batch.Reset()
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
			g.out.buf = batch.Append(g.out.buf[:0], sent, next)
			if !g.send(p.id, wire.KindOps, g.out.buf) {
				return told, false
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
	if op.Boot != g.boot && !g.unheardBy(p, op.Boot) {
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
	p.snapshot, p.chunk, p.following = o.taken, 0, true
	g.mu.Unlock()
	o.snapshotAt = now
}

const snapshotEvery = 10 * time.Millisecond

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
			} else if !g.send(p.id, wire.KindSnapshotEnd, wire.AppendSnapshotEnd(nil, &wire.SnapshotEnd{Cursor: s.cursor})) {
				break
			}
			g.mu.Lock()
			if p.snapshot == s {
				p.chunk++
				if i == len(s.chunks) {
					p.snapshot, p.cursor, p.sent = nil, s.cursor, s.cursor
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
	p.untaught = !m.Tail && g.cfg.Lessons != nil // else the one it follows tells it
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
	case !g.synced && g.source == "":
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
