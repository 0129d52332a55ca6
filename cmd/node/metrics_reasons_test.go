package node

import "strings"

// reasonsTail is the end of docs/metrics.md: label values that are not gossip's.
var reasonsTail = strings.ReplaceAll(`
## Why requests are refused, answers break, caches are lost

~hearsay_shed_total~ (requests that got 429, 502 or 503 instead of an answer), label ~reason~:

| reason | meaning |
|---|---|
| ~no_replicas~ | the pool has none |
| ~replicas_busy~ | those tried answered 429 or 503, or all want to be left alone for now |
| ~all_draining~, ~all_ejected~, ~all_trial~, ~all_loading~, ~all_unreachable~ | every replica is in that [state](#states-of-a-replica); ~all_trial~: each has its trial request already; ~all_unreachable~ also where those tried could not be reached |
| ~all_itl~ | one more stream would make every replica slower than ~slo.itl~ allows |
| ~none_eligible~ | none is left, for different reasons |
| ~queue_timeout~ | it waited for a replica with room for as long as it may |
| ~queue_full~, ~displaced~ | too much waits: it was one too many, or made room for a higher priority |
| ~hold_timeout~ | no first replica came in ~queue.hold~ |
| ~saturated~ | every replica is, and nothing that waits has come of it: another pool was to serve it and could not |

~hearsay_broken_answers_total~, label ~reason~: ~stream_broken~ (the engine's connection ended or its framing broke), ~idle_timeout~, ~total_timeout~, ~event_too_long~ (above
16 MiB), ~error_event~ (an error in mid-stream), ~shutdown~ (the router stopped), ~write_stall~ (the client did not read), ~no_answer~ (nothing answered behind heartbeats).

~hearsay_replica_cache_cleared_total~, label ~reason~: ~restarted~ (another process start), ~counters_back~ and ~cache_counters_back~ (counters fell, of all or of the prefix cache), ~back_again~ (it
was gone and is back). What an engine had before a router's first reading of it is not known to that router, and counts as no loss.
`, "~", "`")
