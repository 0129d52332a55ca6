// Package arch holds the import law of ARCHITECTURE.md as a test: imports only go
// down, and the types of fasthttp, memberlist and raft stay where they belong.
package arch
