// Package balance is loop 2: on every router, alone, it watches what comes of the
// requests this router sends and says what pickers must avoid: it ejects replicas
// that fail, lets them back on trial, remembers who asked for patience, starts new
// ones slowly and measures how even each pool's load is, what its prompts share, which
// prefixes are hot, and how many requests engines run at a time. Its one output is an
// immutable state.Weights; if the loop stops, pickers go on with the last one.
// Diagnose, a pure function, makes of it what people are told.
//
// It decides from outcomes, never from silence: a replica whose metrics can't be
// read stays in. Failures of other routers, which travel with their load rows,
// count beside its own, so that a cluster finds a broken replica with about as many
// attempts as one router needs.
//
// It resizes nothing; a pool that is short as a whole is loop 3's (autoscale).
package balance
