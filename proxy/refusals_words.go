package proxy

import (
	"fmt"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
)

// words says why a request was refused: what it met, what was estimated then, and what to
// change. The candidates of k say what each replica had.
func (x *Refusal) words(k *Pick) []string {
	list := []string{x.met(k)}
	if x.Waiting > 0 {
		list = append(list, plural(x.Waiting, "request")+" waited for pool "+k.Pool+" then, at all routers")
	}
	if x.RoomAfter > 0 {
		list = append(list, "a replica was expected to have room after "+about(x.RoomAfter))
	}
	if x.RetryAfter > 0 {
		list = append(list, "the client was told to come again after "+about(x.RetryAfter))
	}
	if s := x.change(k); s != "" {
		list = append(list, "to change: "+s)
	}
	return list
}

// met says which bound the request met.
func (x *Refusal) met(k *Pick) string {
	wait := "queue.max_wait"
	if x.ByClient {
		wait = "its client's x-hearsay-max-wait"
	}
	switch x.Reason {
	case shedTimeout:
		return fmt.Sprintf("it waited %s for a replica with room, as long as %s (%s) allows", about(k.Queued), wait, x.MaxWait)
	case shedHoldTimeout:
		return fmt.Sprintf("it was held %s for a first replica, as long as queue.hold (%s) allows", about(k.Queued), x.Hold)
	case shedQueueFull:
		return fmt.Sprintf("the queue of its router was full: queue.max_requests is %d, queue.max_bytes %d", x.Requests, x.Bytes)
	case shedDisplaced:
		return fmt.Sprintf("the queue of its router was full (queue.max_requests %d, queue.max_bytes %d), and it made room for a request of a higher priority than %s", x.Requests, x.Bytes, k.Band)
	case shedSaturated:
		if x.ByClient {
			return "no replica had room, and " + wait + " let it wait no longer"
		}
		return "no replica had room, and a request of its kind, or one that is tried again, does not wait"
	case shedReplicasBusy:
		return fmt.Sprintf("the replicas that were asked (%s) answered that they are busy", plural(int64(max(1, k.Attempt)), "attempt"))
	case "connections":
		return "this router has as many connections to the replica as it may"
	case "no_replicas":
		return "pool " + k.Pool + " has no replica"
	case "body_budget":
		return "all requests together held as many bytes at its router as api.body_budget allows"
	case "rate_limited":
		return "its key had as many requests under way as it may (max_parallel)"
	case shedShutdown:
		return "its router was shutting down"
	}
	if why, ok := strings.CutPrefix(x.Reason, "all_"); ok {
		return "no replica of pool " + k.Pool + " could take it: all are " + why
	}
	if x.Reason == "none_eligible" || len(k.Candidates) > 0 {
		return "no replica of pool " + k.Pool + " could take it"
	}
	return x.Reason
}

// change says what an operator may do about it.
func (x *Refusal) change(k *Pick) string {
	switch x.Reason {
	case shedTimeout, shedSaturated, shedQueueFull, shedDisplaced:
		list := []string{"more replicas (hearsay scale " + k.Pool + " --to N, or hearsay replica add)", "a fallback pool"}
		if k.capped() {
			list = append(list, "a higher queue.max_inflight, if the engines can take more")
		}
		switch {
		case x.Reason == shedQueueFull, x.Reason == shedDisplaced:
			list = append(list, "higher queue.max_requests and queue.max_bytes")
		case x.ByClient:
			list = append(list, "a longer x-hearsay-max-wait, up to queue.max_wait")
		default:
			list = append(list, "a longer queue.max_wait")
		}
		return strings.Join(list, "; ")
	case shedHoldTimeout, "no_replicas":
		return "see why no replica comes up (hearsay replicas, hearsay scale log); a higher scale.min; a fallback pool"
	case shedReplicasBusy:
		return "more replicas; queue.max_inflight below what their engines refuse at, so that requests wait here; a higher retry.attempts; a fallback pool"
	case "body_budget":
		return "a higher api.body_budget, if there is memory; more routers"
	case "rate_limited":
		return "max_parallel of the key"
	case "all_" + routing.ExcludedITL:
		return "more replicas, or a higher slo.itl"
	case shedShutdown:
		return "api.drain_delay long enough for what balances before the routers to notice"
	}
	if strings.HasPrefix(x.Reason, "all_") || x.Reason == "none_eligible" {
		return "see what the replicas lack (hearsay replicas, hearsay diagnose); a fallback pool; queue.hold to wait for them"
	}
	return ""
}

// capped reports whether a replica had all the requests that queue.max_inflight allows.
func (k *Pick) capped() bool {
	for i := range k.Candidates {
		if h := k.Candidates[i].Had; h.Cap > 0 && h.InFlight >= h.Cap {
			return true
		}
	}
	return false
}

// about is a duration for people.
func about(d time.Duration) string {
	if d < time.Second {
		return max(time.Millisecond, d.Round(time.Millisecond)).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
