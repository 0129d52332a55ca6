// Package sketch knows which prompt prefixes each replica probably still holds in
// its KV cache. An Index maps a prefix mark (state/prefix) to the replicas that
// used it and when, and estimates per replica the instant before which its cache
// has forgotten (the horizon). Several routers' indexes become equal by telling
// each other Ops in any order, any number of times.
//
// # Promises
//
//   - Lookup allocates nothing and takes no lock.
//   - Merging ops is idempotent, commutative and associative: uses merge by the
//     later moment, placements by their phase, dead_before by the later instant,
//     evidence by its set of samples.
//   - Nothing grows younger by travelling: a Stamp is relayed unchanged and placed
//     by state.Clock; what was seen already is not news.
//   - Evidence moves the horizon and deletes nothing; only dead_before does.
//   - Everything is bounded, and what a bound drops is counted (Totals).
//   - Ops and files from elsewhere never panic.
//
// # What it does not do
//
// It starts no goroutine, sends nothing (cluster/gossip reads the Journal), opens
// no file, and does not score: a Match is what routing makes a price of. It does
// not know an engine's real blocks; engines with cache events would use the same
// table under another hasher.
package sketch
