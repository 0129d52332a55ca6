// Package queue holds the requests of one pool that wait for a replica, and says in
// which order they get one.
//
// Bands come in the order of their rank, but a band that waits gets at least MinShare
// of the tokens released meanwhile. Inside a band tenants share by weight: the next one
// is the one that has had the fewest tokens for its weight since the band was last
// empty. That is deficit round robin with the smallest quantum there is (start-time
// fair queueing, Goyal, Vin and Cheng 1996): between two tenants that both wait, shares
// differ by less than one request's tokens over its weight. Inside a tenant it is first
// come, first served.
//
// An entry that can't be placed now does not block those behind it, unless they are of
// its class: of entries that need the same, the first one is to be served first.
//
// The package knows no requests, replicas or time: who waits keeps its own deadline and
// leaves. It starts no goroutines and holds no lock while it asks whether an entry can
// be placed.
package queue
