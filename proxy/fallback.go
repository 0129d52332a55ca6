package proxy

import (
	"net/http"

	"github.com/hearsay-llm/hearsay/proxy/api"
)

// Why a request goes to the pool that is asked in the place of its own, as metrics have
// it.
const (
	fellNoReplicas  = "no_replicas"   // the pool has none
	fellNone        = "none_eligible" // none can take it: ejected, draining, loading, ...
	fellBusy        = "busy"          // those asked, or all, said "later"
	fellUnreachable = "unreachable"   // no connection could be made to those tried
	fellFailed      = "failed"        // those tried failed before their answer began
)

var fallbackReasons = []string{fellNoReplicas, fellNone, fellBusy, fellUnreachable, fellFailed}

// fallbackReason is why another pool may do better where one failed so; empty if it
// may not: what the client did wrong is wrong anywhere.
func fallbackReason(f *failure) string {
	switch {
	case f.err != nil && f.err.Reason == "no_replicas":
		return fellNoReplicas
	case f.outcome == OutcomeBusy && (f.err == nil || f.err.Status == http.StatusTooManyRequests || !f.picked()):
		return fellBusy
	case f.picked(), f.reason == "no_prefill":
		return fellNone
	case f.unreached:
		return fellUnreachable
	case f.retry && (f.outcome == OutcomeFailed || f.outcome == OutcomeTimeout || f.other):
		return fellFailed
	}
	return ""
}

// lacks reports whether a replica said that its server has no such path or model, or does
// not know the router's credential.
func (f *failure) lacks() bool {
	switch f.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	}
	return false
}

// othersMay reports whether another pool may be asked for what a request is after: text.
// Vectors and tokens of another model are no substitute.
func othersMay(ask *api.Request) bool {
	switch ask.Endpoint {
	case api.Chat, api.Completions, api.Messages, api.Count, api.Responses:
		return !ask.Continues()
	}
	return false
}

// picked reports whether it is a pick that failed, so that nothing was sent.
func (f *failure) picked() bool { return f.shed != "" && !f.unreached }

// fallBack moves the request to the next pool that may be asked where f is what came of
// this one; false if there is none, or it would be no use. A request for an adapter
// stays: other pools' models are not what it asks for.
func (r *request) fallBack(f *failure) bool {
	reason := fallbackReason(f)
	if reason == "" || len(r.fallbacks) == 0 || r.call.cause() != nil || r.job.Adapter() != "" {
		return false
	}
	for len(r.fallbacks) > 0 {
		name := r.fallbacks[0]
		r.fallbacks = r.fallbacks[1:]
		if r.enterOther(name) {
			r.s.metrics.fallbacks.WithLabelValues(r.pool, name, reason).Inc()
			r.fell = reason
			return true
		}
	}
	return false
}

// enterOther admits the request to another pool, whose replicas may have to be asked in
// other words, and gives up what it holds of the present one. It changes nothing where
// that fails.
func (r *request) enterOther(name string) bool {
	pool := r.s.core.store.View().PoolNamed(name)
	if pool == nil {
		return false // it has gone since the pools were checked
	}
	switch r.ask.Endpoint {
	case api.Responses:
		if serveResponses(pool, &r.ask) != nil {
			return false
		}
	case api.Count:
		if !speaksMessages(pool) {
			return false // its engines count no messages
		}
	}
	chat, native := r.chat, r.native
	if r.ask.Endpoint == api.Messages && r.translate(pool, len(r.fallbacks) > 0) != nil {
		r.chat = chat
		return false
	}
	job, err := r.enter(pool)
	if err != nil {
		r.chat, r.native = chat, native
		return false
	}
	r.x.drop()
	if r.legs != nil {
		r.closeLegs()
	}
	r.stand()
	r.job.Release()
	r.job = job
	r.takeLegs()
	r.tries = tries{wait: r.tries.wait}
	r.phase = phaseConnecting
	return true
}
