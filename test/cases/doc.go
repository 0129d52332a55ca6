// Package cases shows, from outside, what becomes of requests when things go wrong:
// whole routers on loopback, in front of engines that are raw sockets and do exactly
// what a test says, byte by byte. Nothing is looked at but what clients, engines and
// operators see: bytes, closes, the metrics and the admin API.
//
// docs/cases.md lists the cases and their tests. Engines of these tests are not
// simulated, see test/enginesim for one that computes; clusters in simulated time are
// in test/scenario.
package cases
