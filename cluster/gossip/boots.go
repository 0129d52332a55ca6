package gossip

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// note keeps when a router was last heard of and by which boot. Only what comes
// from the router itself over its stream may say that a boot is new; it reports
// false for messages of a boot that is over, which were long on their way.
func (g *Gossip) note(id state.RouterID, boot state.BootID, at time.Time, direct bool) bool {
	present, since := g.roster.boot(id)
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.peers[id]; p != nil {
		present = p.boot
	}
	h := g.heard[id]
	if !direct {
		// One that membership told of after it was over is not: see lives.
		ended, over := g.retired[boot]
		if over && !since.After(ended) || present != 0 && present != boot || present == 0 && h.boot != 0 && h.boot != boot {
			return false
		}
	}
	if h.boot != 0 && h.boot != boot {
		if len(g.retired) >= maxRetired {
			clear(g.retired)
		}
		g.retired[h.boot] = at
		g.index.DropBoot(h.boot, at)
		h = hearsay{}
	}
	delete(g.retired, boot)
	if len(g.heard) >= maxMembers {
		for id, h := range g.heard {
			if at.Sub(h.at) > g.cfg.Silence {
				delete(g.heard, id)
			}
		}
	}
	h.boot, h.at = boot, at
	g.heard[id] = h
	return true
}

// lives says that rows are of the boot their router has now by membership and,
// where they came over its stream, by that too: where this holds, the boot is not
// over, whichever came after it. A router with the same id, of a copied data
// directory, has gone, or is not the one that membership has.
func (g *Gossip) lives(m *wire.Rows, in *inbound, direct bool) bool {
	boot, _ := g.roster.boot(m.Router)
	return boot == m.Boot && (!direct || g.peerOf(in) != nil)
}
