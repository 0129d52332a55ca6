// Package harness runs whole clusters for tests and benchmarks: Procs as real
// processes on loopback, Bubble as nodes of one process over an in-memory network
// inside a testing/synctest bubble.
package harness
