package gateway

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hearsay-llm/hearsay/state"
)

// Key is one key of a client, as an operator gives it.
type Key struct {
	Name        string     // for people and metrics; unique
	Digest      Digest     // of the key itself
	Tenant      string     // whose it is; several keys may be one tenant's
	Cap         state.Band // the highest priority that it may claim
	Weight      float64    // its tenant's share beside other tenants; 0 means 1
	MaxParallel int        // requests under way at a time, at this router; 0: any number
}

// Config is all that a Gate knows.
type Config struct {
	RequireKey bool // requests without a known key are refused
	Keys       []Key
}

// Gate tells whose a request is. Safe for concurrent use.
type Gate struct {
	table atomic.Pointer[table]
	set   sync.Mutex // one Set at a time
}

// table is one state of a Gate. It is never changed.
type table struct {
	require bool
	clients map[Digest]*Client
	list    []*Client // by name
}

// Client is who holds a key. It is never changed; a nil Client is somebody who gave none
// that is known.
type Client struct {
	Key
	running *atomic.Int64 // shared by all Clients of that name, over all tables
}

// New returns a Gate. The zero Config lets everybody in.
func New(cfg Config) *Gate {
	g := &Gate{}
	g.table.Store(&table{})
	g.Set(cfg)
	return g
}

// Set replaces the keys. Of two keys with one digest the later one counts. Requests that
// are under way go on and stay counted.
func (g *Gate) Set(cfg Config) {
	g.set.Lock()
	defer g.set.Unlock()
	running := map[string]*atomic.Int64{}
	for _, c := range g.table.Load().list {
		running[c.Name] = c.running
	}
	t := &table{require: cfg.RequireKey, clients: make(map[Digest]*Client, len(cfg.Keys))}
	for _, k := range cfg.Keys {
		if running[k.Name] == nil {
			running[k.Name] = new(atomic.Int64)
		}
		c := &Client{Key: k, running: running[k.Name]}
		t.clients[k.Digest] = c
		t.list = append(t.list, c)
	}
	slices.SortFunc(t.list, func(a, b *Client) int { return strings.Compare(a.Name, b.Name) })
	g.table.Store(t)
}

// Open reports whether there is nothing to look at: no key is known and none required.
func (g *Gate) Open() bool {
	t := g.table.Load()
	return !t.require && len(t.clients) == 0
}

// HasKeys reports whether any key is known.
func (g *Gate) HasKeys() bool { return len(g.table.Load().clients) > 0 }

// Requires reports whether requests need a key.
func (g *Gate) Requires() bool { return g.table.Load().require }

// Find is the client of a key, nil for one that is not known. How long it takes depends
// on the digest of what was sent, of which a stranger can't steer a single bit towards
// that of a key.
func (g *Gate) Find(key []byte) *Client {
	if len(key) == 0 {
		return nil
	}
	return g.table.Load().clients[DigestOf(key)]
}

// Clients are all clients, by name. The list is the Gate's: it is not to be changed.
func (g *Gate) Clients() []*Client { return g.table.Load().list }

// HasTenant reports whether any key is of that tenant.
func (g *Gate) HasTenant(name string) bool {
	return slices.ContainsFunc(g.Clients(), func(c *Client) bool { return c.Tenant == name })
}

// Share is whose a request is, as a pool's queue and its cache tell clients apart. A nil
// Client has no tenant, and the weight of one.
func (c *Client) Share() (tenant string, weight float64) {
	if c == nil {
		return "", 1
	}
	if c.Weight == 0 {
		return c.Tenant, 1
	}
	return c.Tenant, c.Weight
}

// Capped is the band that a request gets which claims another. A nil Client may claim
// normal at most.
func (c *Client) Capped(claim state.Band) state.Band {
	if c == nil {
		return claim.Capped(state.BandNormal)
	}
	return claim.Capped(c.Cap)
}

// Running is how many requests of the key are under way at this router.
func (c *Client) Running() int64 { return c.running.Load() }

// Place is one of the requests that a key may have under way. The zero Place is none. It
// belongs to one goroutine.
type Place struct{ running *atomic.Int64 }

// Enter takes a place; false where the key has none left. A nil Client needs none.
func (c *Client) Enter() (Place, bool) {
	if c == nil {
		return Place{}, true
	}
	for {
		n := c.running.Load()
		if c.MaxParallel > 0 && n >= int64(c.MaxParallel) {
			return Place{}, false
		}
		if c.running.CompareAndSwap(n, n+1) {
			return Place{c.running}, true
		}
	}
}

// Leave gives the place back. Later calls do nothing.
func (p *Place) Leave() {
	if p.running != nil {
		p.running.Add(-1)
		p.running = nil
	}
}
