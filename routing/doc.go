// Package routing is loop 1: it decides which replica serves a request. A Picker
// filters the replicas of a pool, scores them and chooses; all it reads is one
// immutable state.View, the replicas' live cells, the prefix sketch and the
// calibration. It waits for nothing, takes no lock that is held across I/O and
// allocates nothing when a Choice is reused.
//
// A Choice carries every term of every candidate's score, so that a pick can be
// explained afterwards exactly as it was made.
//
// The package doesn't dispatch: counting the request (state.Store.Begin) and
// recording its placement are the caller's, right after the pick. It decides
// neither ejections (routing/balance does, through state.Weights) nor queueing.
package routing
