// Package sim runs whole clusters at scale in virtual time: the real state, sketch,
// routing, calibration, prefix hashing, gossip and mesh of many routers over a
// simulated network, in front of simulated engines that are called in process, with
// recorded and generated workloads.
//
// A simulated router is what cmd/node wires, without the parts that no figure here
// depends on: no HTTP (clients hand their body to proxy.Core and take the answer
// from the engine's scheduler), no Raft and no committed facts, no encryption
// between routers. Sharing is switched off as cmd/node does it.
//
// What is simpler than a real cluster: a token reaches the client as it is made;
// the requests of a killed router end at their engines unnoticed; with sharing off
// routers have no membership either, since nothing here depends on it; engines
// never fail.
//
// Group mixed is another thing: whole nodes (test/harness) with keys, queues, roles and
// adapters, over HTTP.
//
// It needs a testing/synctest bubble, so it is run through its test: a reduced
// matrix with laws always, and whole matrices by `make sim`. Virtual time makes
// latencies independent of the machine. Workloads, router draws, links and tie
// breaks follow from the seed; the order in which goroutines of one instant run
// does not, so two runs of a seed agree closely and not to the last digit.
package sim
