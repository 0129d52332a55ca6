// Package replay sends a workload (test/traces) to routers and measures what a client sees: time to first token, time per output
// token, end-to-end time, cache hit rate, goodput and errors by kind.
//
// The loop is open: a request goes out when it is due, whatever became of the earlier ones, so that a slow system under test
// meets the queue that real clients would build. What the client itself adds is measured too and reported as lateness: how long
// after its due time a request was sent. Two things do hold a request back, and both are counted: the bound on concurrent requests,
// and, in a session that carries real answers, the answer it replies to.
//
// Times are taken with the monotonic clock at the client: from just before the request is written to the event that carries
// the first piece of the answer, and to the last such event. Token counts are the engine's (usage), never estimates.
//
// A run can be faster than real time, against engines simulated at the same factor (Config.Speed): the trace's times are divided by
// it and measured times multiplied by it, so that figures read in the engine's seconds. Real costs on the way (network, routers,
// this client) are magnified by the factor with them; Report.Raw has the figures of the wall clock.
//
// The package generates no load by itself, decides nothing about pass or fail, and logs nothing; Config.Progress shows a person
// that it lives.
package replay
