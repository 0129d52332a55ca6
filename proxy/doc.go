// Package proxy serves clients: an OpenAI-compatible streaming reverse proxy in
// front of inference replicas. A request is read whole, parsed as far as routing
// needs, sent to the replica that routing picks, and its answer is relayed byte
// for byte, event by event.
//
// It promises that
//   - a client that leaves is noticed at once, in every phase, and the engine's
//     connection is closed with it;
//   - another replica is tried only while no byte of an answer has reached the
//     client, and never after a client's own mistake;
//   - what a replica was charged (in-flight, pending prefix, tokens to prefill) is
//     given back exactly once, whatever way a request ends;
//   - a broken stream never looks like a finished one;
//   - no gossip, consensus, disk or name service is waited for on the request path.
//
// It does not decide where a request goes (package routing), does not know who
// the client is, and keeps no prompt, answer or key beyond the request.
//
// A client that closes its sending half before its answer has come counts as
// gone: TCP cannot tell it from one that left.
//
// The admit-pick-account part (Core) takes plain structs and byte slices. fasthttp
// stays in the front: Server, the handler and the relay.
package proxy
