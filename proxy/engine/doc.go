// Package engine is the one place that knows how engines differ: how to tell them
// apart, and what their load, capacity and restart signals are called.
//
// A Reader asks one engine process how it is and answers with a state.Reading for
// each replica it is: one, or one per data-parallel rank. Figures an engine does
// not report stay negative (unknown); a missing gauge is never read as zero. What
// was detected and what does not change while a process lives (kind, slots, paths
// that are off) is kept per base URL, until the process is found to be another one
// or can't be reached: another kind may come back at the same address. Probes that
// tell kinds apart run side by side and end within the reading.
//
// LoadHeader reads the load that vLLM adds to a reply when it is asked to.
package engine
