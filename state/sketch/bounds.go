package sketch

import (
	"math"
	"time"
	"unsafe"
)

// Bounds limit an Index. A zero field means its default.
type Bounds struct {
	// Bytes of memory that the index takes in all, its journal included; past it
	// that replica forgets its oldest which remembers the most beside its capacity:
	// at first what lies farthest beyond its horizon, at last each keeps the same
	// part of what its cache holds. Default 256 MiB: 1.5 M marks, 4 C_eff of 64
	// replicas with 700k tokens each at one mark per 120 tokens. Below 4 MiB counts
	// as 4 MiB.
	Bytes int
	// Entries over all replicas (a mark on a replica is one entry, about 150
	// bytes in all). Default: as many as Bytes holds.
	Entries int
	// EntriesPerReplica bounds one replica's. Default: Entries.
	EntriesPerReplica int
	// Replicas known at once. Past it the one without news for longest is
	// forgotten. Default 4096.
	Replicas int
	// Placements in flight per replica, of all routers. Default 16384, at most
	// 60000.
	Placements int
	// PlacementAge is the age past which a placement of which no end came is
	// released. Default 1 h: longer than any stream a router lets live.
	PlacementAge time.Duration
	// Journal is the number of ops kept for those who read on; their chains take at
	// most an eighth of Bytes. Default 1<<15, seconds of a busy cluster's news, or
	// as many as a 32nd of Bytes holds.
	Journal int
	// UnknownCapacity is C_eff, in tokens, of a replica of which nothing is known.
	// Default 1<<20: half of the truth costs more than twice the truth.
	UnknownCapacity float64
}

const (
	defaultBytes = 256 << 20
	leastBytes   = 4 << 20
	journalShare = 8
)

func (b Bounds) withDefaults() Bounds {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&b.Bytes, defaultBytes)
	b.Bytes = max(b.Bytes, leastBytes)
	def(&b.Entries, b.Bytes/int(entryBytes))
	def(&b.EntriesPerReplica, b.Entries)
	def(&b.Replicas, 4096)
	def(&b.Placements, 16384)
	b.Placements = min(b.Placements, 60000) // counts of a mark are 16 bits wide
	def(&b.Journal, min(1<<15, b.Bytes/32/int(opBytes)))
	if b.PlacementAge <= 0 {
		b.PlacementAge = time.Hour
	}
	if b.UnknownCapacity <= 0 {
		b.UnknownCapacity = 1 << 20
	}
	b.UnknownCapacity = min(max(b.UnknownCapacity, minCapacity), maxCapacity)
	return b
}

// What things weigh, in bytes, as the allocator hands them out.
const (
	entryBytes   = int64(unsafe.Sizeof(entry{}))
	bucketBytes  = int64(unsafe.Sizeof(bucket{}))
	stampedBytes = int64(unsafe.Sizeof(stamped{}))
	opBytes      = int64(unsafe.Sizeof(Op{}))
	linkBytes    = int64(unsafe.Sizeof(Link{}))
	windowBytes  = int64(unsafe.Sizeof(window{})) + 64
	replicaBytes = int64(unsafe.Sizeof(replica{})) + 1024 // lists, id, maps
	flightBytes  = int64(unsafe.Sizeof(flight{})) + 64    // its place in the map
	tombBytes    = int64(unsafe.Sizeof(tomb{}))*2 + 3*int64(unsafe.Sizeof(flightKey{}))
	owedBytes    = 128
	ownBytes     = 1024 // a placement with its marks, about

	markBytes = 150 // of a mark with one holder, all in all
)

// used is the memory the index takes.
func (x *Index) used() int64 {
	return int64(unsafe.Sizeof(Index{})) + x.entries.Load()*entryBytes + x.table.bytes.Load() +
		x.weight.Load() + x.origins.Load() + x.journal.bytes.Load()
}

// full reports that no entry may be added. makeRoom keeps it from being so, unless
// placements hold everything.
func (x *Index) full() bool {
	return x.entries.Load() >= int64(x.bounds.Entries) || x.used() > int64(x.bounds.Bytes+x.bounds.Bytes/64)
}

// weigh notes what the replica takes beside its entries. mu is held.
func (r *replica) weigh() {
	w := replicaBytes + int64(cap(r.ages.b))*bucketBytes + int64(cap(r.learn.samples))*stampedBytes +
		int64(len(r.tombs.keys))*tombBytes + r.tombs.ghosts + r.inFlight + int64(len(r.owed))*owedBytes + int64(cap(r.made))*8 +
		int64(cap(r.truth.last))*missBytes + int64(len(r.own))*ownBytes
	if d := w - r.weighed; d != 0 {
		r.weighed = w
		r.x.weight.Add(d)
	}
}

const (
	fillOne    = 1 << 16 // one C_eff, see replica.fill
	evictBatch = 256     // entries evicted beyond need, to be left in peace for a while
	evictMost  = 4096    // entries evicted at once: for so long others wait for that replica
)

// makeRoom lets the fullest replica forget its oldest until n more entries fit.
// Other replicas' locks are only tried, since r's is held.
func (x *Index) makeRoom(r *replica, n int) {
	cause := &x.totals.evictedEntries
	over := x.entries.Load() + int64(n) - int64(x.bounds.Entries)
	if bytes := x.used() + int64(n)*markBytes - int64(x.bounds.Bytes); over <= 0 && bytes > 0 {
		over, cause = bytes/entryBytes, &x.totals.evictedBytes
	}
	if over <= 0 {
		return
	}
	over = min(over+min(evictBatch, int64(x.bounds.Entries/256)), evictMost)
	big := x.fullest(r)
	dropped := big.evict(maxCapacity, max(0, big.entries-int(over)))
	cause.Add(uint64(dropped))
	big.drops.NoRoom += uint64(dropped)
	if big != r {
		big.settle()
		big.mu.Unlock()
	}
}

// fullest is the replica that remembers the most beside its capacity, locked, of
// those that are free, and r.
func (x *Index) fullest(r *replica) *replica {
	all := *x.bySlot.Load()
	below := int64(math.MaxInt64)
	for range 4 {
		big, most := r, r.fill.Load()
		if r.ages.count == 0 {
			most = 0 // it has nothing to give
		}
		for _, o := range all {
			if o == nil || o == r {
				continue
			}
			if f := o.fill.Load(); f > most && f < below {
				big, most = o, f
			}
		}
		if big == r || big.mu.TryLock() {
			return big
		}
		below = most
	}
	return r
}

// evictOld forgets what C_eff will never grow to see, and what is beyond the
// replica's own bound.
func (r *replica) evictOld(capacity int64) bool {
	n := r.evict(capacity*deadKept, maxCapacity)
	m := r.evict(maxCapacity, r.x.bounds.EntriesPerReplica)
	if n+m == 0 {
		return false
	}
	r.drops.Old += uint64(n)
	r.drops.TooMany += uint64(m)
	r.x.totals.evictedOld.Add(uint64(n))
	r.x.totals.evictedEntries.Add(uint64(m))
	return true
}

// deadKept is how many times C_eff is remembered: growth of C_eff needs to see
// marks that were believed dead and are not.
const deadKept = 4

// fetchOldest reads what removing e and those behind it will need first, of so many
// tokens in all, and returns how many they are beside e. A processor fetches many
// lines as fast as one.
func (r *replica) fetchOldest(e *entry, tokens int64) (n int) {
	for ; n < 16; n++ {
		r.x.table.fetch(e.hash)
		if tokens -= e.tokens(); tokens <= 0 || e.next == nil {
			break
		}
		e = e.next
	}
	return n
}

// evict removes the oldest entries until at most so many tokens and entries are
// left, and says how many. A parent outlives its children where their order allows
// it.
func (r *replica) evict(tokens int64, entries int) (n int) {
	fetched := 0
	for skipped := 0; r.ages.sum+r.ages.held > tokens || r.entries > entries; {
		e := r.ages.oldest()
		if e == nil {
			return n
		}
		if fetched--; fetched < 0 {
			fetched = r.fetchOldest(e, r.ages.sum+r.ages.held-tokens)
		}
		if e.kids > 0 && skipped < 64 {
			r.ages.later(e)
			skipped++
			continue
		}
		skipped = 0
		if e.use.Load() > r.liveFrom.Load() {
			r.x.totals.evictedLive.Add(1)
			r.drops.Live++
		}
		before := r.entries
		r.ages.remove(e)
		r.free(e)
		n += before - r.entries
	}
	return n
}
