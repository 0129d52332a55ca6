// Package state is what one router knows of its cluster: replicas, the load
// every router puts on them, engine readings, committed facts. A Store is the
// single writer; readers take an immutable View by atomic pointer and are never
// blocked. The sketch of what replicas hold (state/sketch) stands beside the
// View, since it is too large to copy.
//
// # Data rules
//
//  1. Identities. A router has a stable id (RouterID) and a random boot id per
//     start; a replica's id is its UID where discovery gives one, else its
//     normalised URL and rank. An empty disk is a new router id.
//  2. Load rows have one writer: keyed (router, boot id, replica) and ordered by
//     that writer's sequence, never last-writer-wins across routers. Sums add
//     over writers; a replica's reading is the freshest reader's. Rows of a dead
//     or silent router are dropped; what it had running shows as foreign load.
//  3. Sketches have no owner: entries merge by later use and travel unchanged.
//  4. Age is data. Past a bound a signal is unknown: neither zero nor full.
//  5. Publish whole: a View is immutable. Own dispatches are visible at once
//     through the Cell that every View of a replica shares.
//  6. Everything is bounded and every bound has a drop counter.
//  7. No foreign wall clock decides: a Stamp is (origin boot, origin monotonic
//     time), and each receiver places it on its own clock.
//  8. The configuration file says how a node runs and seeds pools at first boot;
//     pool targets, draining and replica edits are committed facts.
//  9. Foreign bytes never panic.
//
// The package imports nothing of this module and starts no goroutine.
package state
