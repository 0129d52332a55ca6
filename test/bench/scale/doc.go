// Command scale drives the real loop 3 (package autoscale) in simulated time over a
// model of one pool, beside two rules of the kind that clusters scale with and an
// oracle. All get the same arrivals, the same start-up times and the same way of
// draining. It prints tables, draws plots and writes the figures as JSON.
//
// The model is fluid in steps of one second: a replica has prompt tokens that wait,
// requests they belong to and streams that decode, all real numbers. How fast it
// works is test/enginesim's calibrated step time for Llama-2-70B on four H100, with
// full steps of 2,048 prompt tokens, 256 streams and 400,000 KV tokens at most.
// Lengths are those of Azure's conversation trace; outputs are taken to be
// memoryless with that mean. No prompt finds a prefix in a cache.
//
// A minute is violated when more than 1 % of its requests have a TTFT above 2 s, are
// refused or are cut off, or more than 1 % of its decoding happens at a TPOT above
// 200 ms: the bounds that MLPerf's inference benchmark sets for this model's server
// scenario, at its percentile. TPOT is smoothed over 10 s, about a request's length.
// A request that would wait for more than 10 s is refused.
//
// What is left out: lumps of single requests (with a pick by shortest queue among 12
// replicas used to 90 % Sakasegawa's approximation puts them at less than 0.1 s);
// failures of replicas; the routers' own queues; clients that come back.
//
// What the loop reads is what a real leader is told, through a real state.Store: rows
// of three routers that have a third of the load each, with what they count of it, and
// readings of the engines, all 0.3 s old when it looks, which is every 5 s and not
// every second as in reality; a plan comes every 15 s here and there. The routers' calibration is the real one, too; it is
// shown one request of each replica at each look. The leader itself serves no clients.
// Commits succeed at once and the routers follow them at once.
package main
