// Package gossip spreads what routers know among them: membership and failure by
// memberlist; load rows, engine readings and sketch ops over the mesh.
//
// Promises: a change of own load is with every peer 10 ms after it happened or
// sooner, sketch ops within 100 ms; full rows every second repair what was lost. A
// peer's rows go when it is dead by membership or nothing came of it for 2 s; what
// it knew of caches stays. After a broken stream the journal is resumed where it
// was left, or a throttled snapshot is sent: one path for late joiners, healed
// partitions and slow readers. News is relayed to a peer exactly when that peer
// does not hear its origin itself, so that a mesh with holes in it converges and a
// whole one carries everything once. Membership finds its way back after any cut.
//
// It keeps one goroutine that sends and one that applies. Nothing received is
// trusted to be well-formed, and no replica exists because gossip said so.
//
// It does not decide anything: it moves state between a state.Store, a
// sketch.Index and their like on other routers.
package gossip
