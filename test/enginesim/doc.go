// Package enginesim is a simulated inference engine: a replica that schedules,
// caches, times and speaks like vLLM (and, in outline, like SGLang, llama.cpp or
// Anthropic's API) without a model behind it. Routers are tested and measured against
// it, so it must not flatter them: whether a prefix is cached, how long a
// prefill takes and what a queue costs follow from the bytes it was sent.
//
// # What it imitates
//
//   - Scheduling of vLLM V1: one step at a time; each step has a token budget;
//     running requests first (one token per decoding stream, then the rest of a
//     begun prefill), then waiting ones first come first served, prefills cut
//     into chunks by the budget; a bound on running requests; preemption of the
//     youngest running request, by recomputation, when a block is missing.
//   - The KV cache: blocks of 16 tokens for prompts and outputs, pinned while in
//     use, identified by a hash chain (parent, token ids, adapter and
//     cache_salt), found again by later requests, the last prompt token always
//     computed anew; freed blocks wait in an LRU queue, the tail of a request
//     before its head.
//   - Time: steps take what measured prefill and decode times of llama2-70b on
//     A100 and H100 say (calibration/), so prefills delay the streams beside
//     them and time per token grows with the batch.
//   - Text: a deterministic, prefix-stable tokeniser and a ChatML-like
//     template; generated text, sent back as history, has the token ids it had
//     when generated.
//   - The wire: OpenAI-compatible endpoints, event streams, usage, error bodies,
//     metrics, idle keep-alive of 5 s, abort when the client closes.
//   - Anthropic's Messages API on the kinds vllm, sglang and anthropic: a request
//     renders to the tokens of the equal chat completion (see messagePrompt), so both
//     share the cache. Usage leaves out what came from the cache. That is vLLM since
//     mid 2026 (the path since 0.11.1, counting since early 2026) and SGLang since mid
//     2026 (both paths since early 2026); older ones counted it as input. The kind
//     anthropic knows API versions 2023-06-01 and 2026-10-21.
//   - OpenAI's Responses on the kinds vllm and sglang, with a store in the process that a
//     restart empties: a request that goes on from a response has the tokens of the chat
//     that says the same. Both engines end a stream with response.completed, also one that
//     max_output_tokens cut.
//   - Failure, on command: see Fault.
//
// # What it does not imitate
//
//   - Any meaning: answers are random words. A tool is called where tool_choice asks
//     for one, with random words for its only argument, "text", whatever its schema.
//     No log probabilities, structured output, reasoning or beam search; such fields
//     are accepted and ignored. The Messages API alone has thinking: when that is asked
//     for, half of the answer, or less, is thoughts.
//   - What Anthropic alone does: its cache is automatic here, with blocks of 16 tokens
//     and no least length; cache_control only decides what usage calls created. Keys
//     are not checked, no rate is limited, nothing but fields is validated (a result
//     need not follow its call), no tool runs at the server, and a prompt that ends
//     with the assistant's words is not continued. max_tokens is the length of an
//     answer unless Config.DrawUnderLimit. Only the rules of version 2026-10-21 that
//     concern sampling, documents and citations are known here.
//   - Of Responses: work in the background (it is answered at once), tools that run at the
//     server, and that vLLM keeps nothing unless it is told to and deletes nothing.
//   - vLLM's errors of validation, which have the OpenAI API's shape on /v1/messages
//     too. Here every error there has Anthropic's.
//   - Blocks become shareable when the step that computes them ends. vLLM lets a
//     request scheduled later in the same step share them as well.
//   - Draft tokens, pipelining of steps, CPU offload, sliding windows, priorities,
//     KV events. Data-parallel ranks share nothing, not even a step's barrier.
//   - A vocabulary: token ids are hashes of pieces of text, about 4 bytes per
//     token in ASCII text and 1.7 elsewhere. A tokeniser that merges across the
//     end of a prompt is not modelled.
//   - SGLang's prefill/decode pairs in full: with Config.Leg an engine that decodes
//     waits until the other one has answered, which waits for nobody; only engines of
//     one process meet. For vLLM a transfer takes no time: a request that names
//     remote blocks gets its prompt's blocks at once and computes the last token.
//   - The kinds differ in paths, metrics, usage and errors only; all run the same
//     scheduler and block cache (SGLang's tree and llama.cpp's slots evict otherwise,
//     and Anthropic's engine is unknown).
//
// # Use
//
// Core is the scheduler alone: pure, without goroutines or a clock. Engine runs
// a Core against package time and answers HTTP; in a testing/synctest bubble its
// times are exact. All of it is deterministic given Config.Seed and the order
// and times of arrival.
package enginesim
