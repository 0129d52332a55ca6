// Package api knows the shapes of requests and responses as far as routing and metering need, and no further.
//
// Bodies are never decoded into structures and never encoded again: Parse says where things lie, and what must change
// on the way to an engine is a short list of edits applied to the bytes (Splice). Unknown fields are not looked at, so
// they arrive as sent.
//
// # Rules of Parse
//
//   - A body must be one JSON object (RFC 8259) in valid UTF-8, nested at most scan.MaxDepth deep. A UTF-8 byte order
//     mark before it is accepted and travels on. White space around it is fine, anything else is not.
//   - A top-level key that Parse reads may stand only once, also when one of the two is spelled with escapes: engines
//     take the last, others the first, and a request that means two things must not pass two checks.
//   - model must be a string that is not empty; it is matched exactly: case, blanks and all.
//   - stream must be true, false or null. stream_options must be an object or null where stream is true, and is the
//     engine's business where it is not. n must be an integer of at least 1, or null.
//   - max_tokens and max_completion_tokens travel as sent. A positive integer counts, the second before the first; any
//     other value counts as unknown.
//   - messages must be an array of objects, tools and functions arrays or null. Everything in them is the engine's
//     verdict.
//   - Responses: max_output_tokens is what max_completion_tokens is elsewhere. previous_response_id must be a string or
//     null. Its input, instructions, prompt and conversation, and Messages' system and thinking, are only located.
//   - user, cache_salt and priority of another type count as absent.
//   - For endpoints that are Other, n, tools, functions and messages are not looked at and the model may be missing. Their
//     bodies may be forms: ParseForm finds the model in them.
//
// The package does no I/O and keeps no state; all functions may be called from any goroutine.
package api
