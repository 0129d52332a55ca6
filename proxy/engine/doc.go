// Package engine is the one place that knows how engines differ: how to tell them
// apart, and what their load, capacity and restart signals are called.
//
// A Reader asks one replica how it is and answers with a state.Reading. Figures
// an engine does not report stay negative (unknown); a missing gauge is never
// read as zero. The package keeps what it detected per base URL and forgets it
// when the engine stops answering, since another kind may come back at the same
// address. It starts no goroutine.
package engine
