package gossip

import (
	"time"

	"github.com/hearsay-llm/hearsay/state/sketch"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// lists is which of its own placements a router tells of while it sends a snapshot:
// those under way then, in the snapshot, and those since, in its journal. What it
// placed before and does not tell of has ended, and we missed it.
type lists struct {
	since   time.Time // arrival of the first chunk
	running map[uint64]struct{}
}

// list notes the peer's own placements, from the first chunk of its snapshot on.
func (p *peer) list(ops []sketch.Op, in *inbound) {
	if p.lists == nil {
		if in.kind != wire.KindSnapshotChunk {
			return
		}
		p.lists = &lists{since: in.at, running: map[uint64]struct{}{}}
	}
	for i := range ops {
		if op := &ops[i]; op.Boot == in.boot && (op.Kind == sketch.OpPlace || op.Kind == sketch.OpFirst) {
			p.lists.running[op.Placement] = struct{}{}
		}
	}
}

// listed is the end of a snapshot.
func (g *Gossip) listed(in *inbound) {
	p := g.peerOf(in)
	if p == nil || p.lists == nil {
		return
	}
	l := p.lists
	p.lists = nil
	g.index.Running(in.boot, func(id uint64) bool { _, ok := l.running[id]; return ok }, l.since)
}
