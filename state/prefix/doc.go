// Package prefix turns a prompt into marks: hashes of everything up to a position, at positions that two prompts sharing
// a prefix always share. A router compares marks instead of prompts, and gossips them instead of token blocks.
//
// # The canonical stream
//
// A prompt is read as a stream of bytes in the order chat templates use it: a seed (scheme version, kind, model, adapter,
// cache salt, tenant), what goes before the first message (template, template arguments, reasoning effort, documents,
// tools, functions), then each message: role, name, content, tool calls. Strings are hashed as decoded UTF-8, so that
// \u00e9 and the letter itself agree and a relayed answer hashes as the next turn will send it. Nothing else is
// normalised. Every field is opened and closed by a two-byte frame that starts with 0xFF, a byte that no decoded string
// holds, so no two different structures make the same stream; lengths would not do, since what lies before a position
// must not depend on what comes after it.
//
// Equal on purpose, because engines see the same prompt: content that is null, absent, "" or [], and a string and
// a single text part with that text. Left out, because templates leave it out: tool_call_id, ids of tool calls,
// reasoning of earlier turns, and fields of messages this package does not know. Tools and unknown parts are hashed as
// JSON text without the white space between tokens and with strings decoded; member order and number spelling count, as
// they do in the prompt. Images, audio, video and files enter as a digest of their part, never fetched.
//
// # The families
//
// Prompts of different kinds share no marks, two turns of one kind do.
//
// Responses: what previous_response_id or conversation names is a part of the seed, since the body does not hold it. Then
// settings as in a chat, the reusable prompt named by the request, instructions as a system message, and the items of
// the input; a string is one message of the user. Calls and results are items of their own, reasoning items leave no
// trace, items of other types are JSON text without id and status.
//
// Messages: tools, system, thinking, messages, the order in which a change invalidates Anthropic's cache. cache_control
// never counts, on tools and on blocks; a tool's parameter of that name does. There is a mark behind every block of
// system, documents given as text are text, thinking blocks leave no trace, a tool's input is JSON text.
//
// # Marks
//
// A mark is set at the end of every message and of the part before the messages, and at the byte positions p(0) = 256,
// p(k+1) = p(k) + max(256, p(k)/16) of the stream after the seed. A mark at a message's end is left out where it would
// lie less than 1/256 of its position after the mark before: that costs at most 0.4 % of a match and bounds the marks of
// any prompt (some 3,200 for 64 MiB of the smallest messages).
//
// The hash is XXH3, 64 bits wide. It is no defence against someone who constructs collisions; the seed's salt and tenant
// fields keep those to their own prefixes, and a wrong match costs time and never a wrong answer, since engines compare
// tokens.
//
// # Where prompts part
//
// Compare reads two prompts side by side and names the first byte in which they differ, by JSON path and by offset in
// the body; Locate says between which places one prompt leaves a way of marks that is known. Both are for diagnosis.
package prefix
