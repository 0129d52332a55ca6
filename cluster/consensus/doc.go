// Package consensus is what the routers agree on: the committed facts
// (state.Facts), replicated by Raft among a few voters, and leadership.
//
// It promises:
//   - a command that Apply reported as done is in the facts of every later
//     leader; a command is applied once, whatever repeats its id;
//   - OnLead runs on one router at a time per term, with a context that ends no
//     later than the term does as far as this router can know, and with an epoch
//     (the index of an entry committed at the term's start) that fences what a
//     paused leader of the past still does;
//   - a router that is no voter follows the same facts from any peer, and every
//     router keeps the last facts it knew on disk, so that it serves with them
//     before, and without, any leader;
//   - a cluster is bootstrapped once: alone only without a join list, and else by
//     the lowest id among bootstrap_expect routers none of which has a cluster.
//
// It does not find peers (Config.Peers comes from gossip), does not carry
// forwarded commands or fetched facts itself (Config.Forward, Config.Fetch; the
// other side calls HandleForward and FactsAfter), and decides nothing about
// scaling.
//
// With two live routers there is one voter: two would let the loss of either
// freeze writes. From three on there are three (or five), and never fewer again.
package consensus
