package gossip

import (
	"hash/fnv"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// A peer that hears an origin itself is not told what came of it. When it says that
// it does not hear it any more, what came lately may not have reached it: a stream
// is silent for a while before it is found dead. It is told that again.
const (
	retellSpan = 5 * time.Second // how far back
	retellers  = 3               // routers that do, where all have streams to all
	maxLost    = 256
)

// milestone is where the journal was at one time.
type milestone struct {
	at   time.Time
	head uint64
}

// mark keeps where the journal is, as far back as retelling goes.
func (o *outbox) mark(now time.Time, head uint64) {
	o.milestones = append(o.milestones, milestone{now, head})
	drop := 0
	for drop+1 < len(o.milestones) && now.Sub(o.milestones[drop+1].at) > retellSpan {
		drop++
	}
	o.milestones = append(o.milestones[:0], o.milestones[drop:]...)
}

// lose notes origins that a peer does not hear any more. The caller holds
// Gossip.mu.
func (p *peer) lose(hears map[state.BootID]struct{}) (any bool) {
	for b := range p.hears {
		if _, still := hears[b]; !still && len(p.lost) < maxLost {
			p.lost = append(p.lost, b)
			any = true
		}
	}
	return any
}

// retell tells peers again what came lately of origins that they have just lost.
func (g *Gossip) retell(now time.Time) {
	for _, p := range g.streams() {
		g.mu.Lock()
		lost := p.lost
		p.lost = nil
		follows := p.following && p.snapshot == nil
		g.mu.Unlock()
		if len(lost) == 0 || !follows || len(g.out.milestones) == 0 || !g.chosen(p) {
			continue
		}
		g.retellTo(p, lost, now)
	}
}

func (g *Gossip) retellTo(p *peer, lost []state.BootID, now time.Time) {
	o := &g.out
	of := make(map[state.BootID]bool, len(lost))
	for _, b := range lost {
		of[b] = true
	}
	g.mu.Lock()
	end, sent := p.cursor, p.sent
	onTable := p.speak >= tableVersion
	if p.again {
		p.again = false
		p.told.Reset()
	}
	g.mu.Unlock()
	at, size := o.milestones[0].head, 0
	for at < end && size < turnSize {
		ops, next, _ := g.index.Journal().Read(at, int(min(readOps, end-at)))
		if len(ops) == 0 {
			return
		}
		at = next
		o.batch.Reset()
		if onTable {
			o.batch.On(&p.told)
		}
		for i := range ops {
			if !of[ops[i].Boot] {
				continue
			}
			if op, ok := g.forPeer(p, ops[i], now); ok {
				o.batch.Add(&op)
			}
		}
		if o.batch.Len() == 0 {
			continue
		}
		f := wire.Frame{Kind: wire.KindOps}
		if onTable {
			f.Kind, o.opsBuf = wire.KindStreamOps, o.batch.AppendOn(o.opsBuf[:0], sent, sent)
		} else {
			o.opsBuf = o.batch.Append(o.opsBuf[:0], sent, sent)
		}
		f.Payload = o.opsBuf
		if !g.sendAll(p, []wire.Frame{f}) {
			return
		}
		size += o.batch.Size()
	}
}

// chosen says that retelling to a peer is for us: everybody, where routers have few
// streams; where all have them to all, a few that all agree on.
func (g *Gossip) chosen(p *peer) bool {
	rank := func(id state.RouterID) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(id))
		_, _ = h.Write([]byte{0})
		_, _ = h.Write([]byte(p.id))
		return h.Sum64()
	}
	members := g.roster.snapshot()
	if len(members)+1 > g.cfg.AllPairs {
		return true
	}
	before, mine := 0, rank(g.cfg.Self)
	for i := range members {
		if m := &members[i]; m.state == Alive && m.id != p.id && rank(m.id) < mine {
			before++
		}
	}
	return before < retellers
}
