package proxy

import (
	"net/http"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
)

const (
	// prefillBytes bounds a prefill's answer: one token, and the ids of the prompt's
	// blocks.
	prefillBytes = 8 << 20
	// askNixl are the parameters of a prefill whose KV another engine will fetch.
	askNixl = `"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`
)

// prefill has the prompt prefilled elsewhere, by another replica when one fails. A
// failure is one of the request; where no prefill comes of it, the replica that
// answers will do it itself.
func (r *request) prefill() (f *failure, quiet bool) {
	l, t := r.legs, &r.tries
	attempts := orDefault(r.job.Pool().Spec.RetryAttempts, defaultAttempts)
	for ; l.failed < attempts; t.under = false {
		var f *failure
		if !t.under {
			if l.replica = r.job.NextPrefill(); l.replica == nil {
				if l.failed == 0 {
					r.count(hopNoReplica)
				}
				return nil, false
			}
			r.phase = phaseConnecting
			f = r.preparePrefill(l.replica)
		}
		if f == nil {
			err := r.x.send(&r.out)
			if err == errQuiet {
				return nil, true
			}
			f = r.took(err)
		}
		r.x.drop()
		r.phase = phaseConnecting
		if f == nil {
			return nil, false
		}
		r.job.EndPrefill(f.result())
		if r.call.cause() != nil || f.outcome == OutcomeAborted {
			return f, false
		}
		r.count(hopFailed)
		r.s.meets.forget(l.replica.ID)
		if l.failed++; f.outcome == OutcomeRejected {
			break // the replica that answers will say what is wrong, of what the client wrote
		}
	}
	r.job.Recompute()
	return nil, false
}

// took takes a prefill's answer, after err from sending the request.
func (r *request) took(err error) *failure {
	l := r.legs
	if err != nil {
		return r.unsent(err)
	}
	r.noteLoad(&r.job.Pool().Spec, l.replica)
	if status := r.x.resp.StatusCode(); status >= 300 || status == http.StatusNoContent {
		return r.rejected(status)
	}
	b, err := readBounded(&r.x, prefillBytes)
	switch {
	case err == errTooLong:
		return broken("bad_response", true)
	case err != nil:
		return r.unsent(err)
	}
	read := api.ReadResponse(b, api.Inclusive, nil)
	params, ok := api.Transfer(b)
	if !ok || read.Error {
		return broken("bad_response", true)
	}
	r.x.close() // read whole: the connection is good
	if l.engine != "" {
		params = fetchMooncake(l.replica, l.engine, l.transfer)
	}
	l.usage, l.hasUsage, l.params = read.Usage, read.HasUsage, params
	r.job.EndPrefill(&Result{Outcome: OutcomeServed, Usage: read.Usage, HasUsage: read.HasUsage})
	if params == nil {
		r.count(hopNoParams)
		r.job.Recompute()
		return nil
	}
	r.count(hopHanded)
	return nil
}

// preparePrefill makes the exchange with a replica that prefills: the client's body,
// for one token, not streamed.
func (r *request) preparePrefill(p *state.ReplicaView) *failure {
	spec := &r.job.Pool().Spec
	pool, err := r.s.up.of(p.URL)
	if err != nil {
		return broken("bad_url", true)
	}
	add := askNixl
	if r.legs.engine = ""; spec.KVConnector == state.ConnectorMooncake {
		if r.legs.engine, err = r.engineID(p); err != nil {
			return r.unsent(err)
		}
		r.legs.transfer = newName()
		add = askMooncake(r.legs.transfer)
	}
	body := r.job.legs.body
	r.edit(spec, p, true)
	r.edits = body.Set(r.edits, api.LegStream, "false")
	r.edits = body.Set(r.edits, api.LegMaxTokens, "1")
	r.edits = body.Set(r.edits, api.LegMaxCompletionTokens, "1")
	if !body.Has(api.LegStream) {
		add += `,"stream":false`
	}
	if !body.Has(api.LegMaxTokens) {
		add += `,"max_tokens":1`
	}
	r.edits = body.Rewrite(r.edits, add, prefillFields...)
	r.assemble(spec, p, pool)
	return nil
}

// prefillFields are those that a prefill must not have.
var prefillFields = append([]api.LegName{api.LegStreamOptions, api.LegMinTokens}, handOverFields...)
