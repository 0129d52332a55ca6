// Package traces yields the requests of recorded and generated workloads, one at a time, in order of their due time.
//
// A Source is a stream: it is read as it is replayed, and what it holds does not grow with the length of the trace. A Request
// says what its prompt is made of (ids of text runs and their lengths), not the text itself; the text is rendered when the
// request is sent (AppendMessages, AppendPrompt). Equal ids give equal text, a shorter run is a prefix of a longer one of the
// same id, and everything follows from the seeds: two readings of one source with one configuration are equal.
//
// Recorded: the Mooncake traces (prefix blocks by id) and Azure's conversation lengths are embedded with their licences (see
// data/README.md); Open reads those by name and other files of the same formats by path, and requests that a router has
// told as events (Events). Generated: Agents (multi-turn chats
// of agents with tools), SharedPrefix (groups of prompts below common system prompts), HotPrefix (one prefix in a given share of
// the requests), Unique (no reuse at all). Scale, Head and Window change any of them.
//
// The package does not send anything (test/replay does), and its text is made of English words without meaning: an engine that
// answers it answers nonsense, only the sizes and the shared prefixes are those of the workload.
package traces
