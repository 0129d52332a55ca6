// Package messages translates Anthropic's Messages API to and from OpenAI's chat completions, for clients that speak
// the first to engines that speak the second.
//
// Request makes a chat completion's body of a message's, Response and Stream make a message of what the engine answers,
// Error makes the client's error of an engine's. What was asked and the answer needs to know travels in Asked.
//
// # What holds
//
//   - Texts, images, ids, names, schemas and numbers are copied as they lie, escapes included; nothing is decoded and
//     encoded again. A tool's input becomes the string of arguments byte for byte.
//   - A message is translated without a look at any other, and all messages stand in the order they came. So two requests
//     that begin with the same messages become two chats that begin with the same bytes, and engines find them in their
//     caches. cache_control, which clients move from turn to turn, leaves no trace; one block of text and a string are
//     the same.
//   - What can't be said in a chat completion is refused with the path of the field, never left out in silence, unless
//     the list below says so.
//   - Stream ends a message with message_stop only when the engine ended its answer. Anything else ends with an error
//     event.
//
// # Rules of Request
//
//   - The body must be one JSON object by the rules of package api. model, messages and max_tokens, an integer of at
//     least 1, are required. A field that is read may stand only once at the top; deeper inside the last one counts.
//   - system and the texts of a tool's result become one string, blocks joined by a line end. A system block that begins
//     with x-anthropic-billing-header is left out: a client puts a hash of each request there, before all else, and no
//     cache could ever match.
//   - A user's tool results become messages of role tool, in their order, before what else the user says. Images in them
//     come first in the user's message that follows, since a tool's message holds only text. What a tool returned with
//     is_error begins with "Error: ".
//   - An assistant's texts become one string without anything between: they are pieces of what the model wrote.
//   - Thinking goes back to engines that take it, where templates show it to the model within a run of tool calls and
//     caches match only then: as reasoning to vLLM, as reasoning_content to SGLang, llama.cpp and unknown engines, not at
//     all to OpenAI. redacted_thinking is left out; only who encrypted it can read it.
//   - A last message of the assistant is to be continued: vLLM and SGLang are told so, llama.cpp does it anyway, and
//     OpenAI can't.
//   - thinking says whether Response and Stream show what the model thought. Whether and how long it thinks is the
//     engine's: chat completions have no common word for it. chat_template_kwargs is passed on for those who need it.
//   - Tools that Anthropic defines or runs (a type other than custom) are refused. Of a tool, name, description,
//     input_schema and strict count. tool_choice without tools is left out where it asks for nothing.
//   - cache_control, service_tier, inference_geo, context_management, user_profile_id, betas, anthropic_version,
//     anthropic_beta, speed and metadata's other members are left out. container and mcp_servers are refused. So is a name
//     that chat completions use and this package writes. Any other unknown field is kept as it lies: engines have
//     fields of their own, such as cache_salt, priority and min_p.
//
// # Rules of answers
//
//   - Only the first choice counts. Without text there is no text block. A refusal is text, with the stop reason refusal.
//   - Thinking is shown only to those who asked for it, signed "unsigned": nobody signs here, and some clients drop
//     thinking that has no signature.
//   - Arguments that are no JSON object become {"INVALID_JSON":"..."} with what the model wrote, as Anthropic suggests;
//     none at all become {}. In streams they pass in pieces as they come, and only the client can tell.
//   - Blocks of a stream come one after another, each whole before the next one starts, as Anthropic's do and clients
//     rely on. Where an engine mixes the pieces of several calls, those of later ones wait until the call before is
//     whole: at most 4 MiB, or the stream fails.
//   - Usage is of the exclusive family: input_tokens leaves out what was cached, and cache_read_input_tokens is missing
//     where the engine does not say. Without any usage the counts are 0, since clients' types require them. A stream's
//     last event has the totals.
//
// The package does no I/O and keeps no state but Stream's; functions may be called from any goroutine.
package messages
