package gossip

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

// Reasons for not letting a router in as a member.
const (
	RefusedScheme    = "scheme"    // it hashes prefixes otherwise
	RefusedVersion   = "version"   // no wire version in common
	RefusedMalformed = "malformed" // it says of itself what is not understood here
	RefusedTwice     = "twice"     // its id is one of a router at another address
)

// Refused is a router that knocks and is not let in as a member, nor lets this one
// in where it is of a release that checks the same.
type Refused struct {
	ID                  state.RouterID
	Name                string    // empty when it was not understood
	Addr                string    // membership
	Reason              string    // one of the above
	Scheme              string    // its own
	MinVersion, Version uint64    // wire versions it reads and speaks
	Since, At           time.Time // first and last time it was refused for that reason
}

const (
	keepRefused = 10 * time.Second // it knocks, or is knocked at, about once a second
	maxRefused  = 64
	// moveGrace is longer than it takes to find a router dead that has come back at
	// another address: till then its id is at two.
	moveGrace = 10 * time.Second
)

// Refused lists the routers that were refused lately, in id order.
func (g *Gossip) Refused() []Refused {
	r, now := g.roster, time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Refused
	for _, x := range r.refused {
		if now.Sub(x.At) < keepRefused && (x.Reason != RefusedTwice || x.At.Sub(x.Since) >= moveGrace) {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(a, b Refused) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return list
}

// refuse notes that a router is not let in.
func (r *roster) refuse(x Refused) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x.At = time.Now()
	x.Since = x.At
	old, ok := r.refused[x.ID]
	if ok && old.Reason == x.Reason && x.At.Sub(old.At) < keepRefused {
		x.Since = old.Since
		if x.Addr == old.Addr {
			x.Name = cmp.Or(x.Name, old.Name)
		}
	}
	if ok || len(r.refused) < maxRefused {
		r.refused[x.ID] = x
	}
}

// twice notes that an id that is a member's at one address is some router's at
// another one, too.
func (r *roster) twice(id state.RouterID, name, addr, other string) {
	r.refuse(Refused{ID: id, Name: name, Addr: other, Reason: RefusedTwice})
	r.warn("conflict "+string(id), func(e *zerolog.Event) {
		e.Str("peer", string(id)).Str("name", name).Str("addr", addr).Str("other", other).Msg("router id at two addresses")
	})
}

// placed notes at which address the router at the other end of a stream says it is.
// One of another boot than the member of its id, elsewhere, has that id too: it may
// never have asked this router to be let in.
func (r *roster) placed(id state.RouterID, boot state.BootID, addr string) {
	r.hint(id, addr)
	r.mu.Lock()
	m, at := r.members[id], ""
	if m != nil && m.state == Alive && m.meta.Boot != boot {
		at = m.node.Address()
	}
	r.mu.Unlock()
	if at != "" && addr != "" && addr != at {
		r.twice(id, "", at, addr)
	}
}

// refusedAt says that who answers at an address is not let in. The caller holds mu.
func (r *roster) refusedAt(addr string, now time.Time) bool {
	for _, x := range r.refused {
		if x.Addr == addr && now.Sub(x.At) < keepRefused {
			return true
		}
	}
	return false
}
