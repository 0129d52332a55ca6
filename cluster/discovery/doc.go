// Package discovery finds out which replicas exist, and keeps a pool's list of them
// up to date: from a file, from DNS, from Kubernetes.
//
// A Source looks and reports whole snapshots. A Pool merges those of its sources into
// one list. Sources fail, flap and lie; the list holds on: a source that fails keeps
// what it last said, an empty answer where there were several replicas is not believed
// for a while, and a replica that is listed no more drains before it is taken out, so
// that one that comes back in time is the same replica as before.
//
// Every router discovers for itself. Two routers may differ for a while: what they
// tell each other is keyed by the replica's id, which is the same on both.
//
// The package does not probe replicas: whether one answers is cluster/observe's to say.
package discovery
