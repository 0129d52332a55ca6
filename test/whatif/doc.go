// Package whatif runs a workload through routing policies and parameters in virtual
// time, so that they can be compared before they are deployed.
//
// It joins the real parts that a pick rests on (proxy.Core, routing, state, sketch)
// with enginesim's scheduler, in one goroutine that goes from event to event: the same
// configuration, workload and seed give the same figures to the last digit, whatever
// the machine does.
//
// What is simpler than in test/bench/sim, which runs whole routers: what a router does
// reaches each other one after Config.Delay, with no loss; routers share what they learn
// of speeds and bytes per token; every replica is read by all at once; no replica fails
// or is ejected. A test compares the two.
package whatif
