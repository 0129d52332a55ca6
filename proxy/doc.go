// Package proxy serves clients: an OpenAI-compatible streaming reverse proxy in
// front of inference replicas. A request is read whole, parsed as far as routing
// needs, sent to the replica that routing picks, and its answer is relayed byte
// for byte, event by event.
//
// It promises that
//   - a client that leaves is noticed at once, in every phase, and the engine's
//     connection is closed with it;
//   - another replica is tried only while no byte of an answer has reached the
//     client, and never after a client's own mistake; comments are no answer (heart);
//   - a request is sent to the same replica again only on proof that it was not read
//     whole, once (exchange.send);
//   - a replica that names a time with a 429 gets no request before (limited);
//   - what a replica was charged (in-flight, pending prefix, tokens to prefill) is
//     given back exactly once, whatever way a request ends;
//   - a broken stream never looks like a finished one;
//   - no gossip, consensus, disk or name service is waited for on the request path.
//
// Chats, completions and embeddings are read as far as their prompts' prefixes; a closed
// list of further paths (api.PassedThrough) is relayed without a look at more than the
// model, and counts as load alone.
//
// Where a pool's replicas have roles, one prefills the prompt and another one takes
// its KV over and answers (legs). Each is counted, blamed and given back for itself; one
// that fails, or a client that leaves, ends both.
//
// It does not decide where a request goes (package routing), knows clients by their keys
// alone (package gateway), which no replica ever sees, and keeps no prompt, answer or key
// beyond the request.
//
// A client that closes its sending half before its answer has come counts as
// gone: TCP cannot tell it from one that left.
//
// A stream spends its life waiting and holds little meanwhile, so that a router has
// tens of thousands of them: no read buffer of either side, no relay buffer, and a
// stack of 8 KB. A body is held once, in memory of its size, from its arrival to the
// first byte of the answer, and takes memory only as it comes; that memory serves the
// next bodies for some seconds (bodyPool). The HTTP server sees heads alone (body.go
// says why); a connection to a replica has a reader only while there is something to
// read (upConn).
//
// The admit-pick-account part (Core) takes plain structs and byte slices. fasthttp
// stays in the front: Server, the handler and the relay.
package proxy
