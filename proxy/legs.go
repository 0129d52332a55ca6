package proxy

import (
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
)

// legs is a request of a pool whose replicas serve legs, on its way: how its prompt is
// prefilled elsewhere for the replica that answers. vLLM's legs follow each other and
// share the request's exchange (legs_vllm.go); SGLang's run at once and wait for each
// other, so the prefill has one of its own (legs_sglang.go).
type legs struct {
	stage   legStage
	kind    state.EngineKind   // of both engines
	replica *state.ReplicaView // that prefills
	failed  int                // prefills that failed
	params  []byte             // vLLM: what the replica that decodes is handed over; nil: nothing
	spoilt  bool               // vLLM: the last replica failed with what it was handed over
	counted bool               // what came of it, in metrics

	usage    api.Usage // of the prefill
	hasUsage bool

	transfer string // Mooncake: the hand-over's name
	engine   string // Mooncake: the prefilling engine's name

	add    string // SGLang: fields by which the legs meet
	rid    string // SGLang: the request's name at both engines
	side   *side  // SGLang: the prefill, until its books are closed
	decode *call  // SGLang: of the attempt at the replica that decodes
}

// legStage is what a request with two legs does.
type legStage uint8

const (
	stageWhole   legStage = iota // one replica does it all
	stagePrefill                 // the prompt is being prefilled, the replica that decodes waits to be asked
	stageDecode                  // the replica that decodes is asked
)

// lead does what comes before the present attempt's replica is asked. It returns as
// attempt does; without a failure that replica is to be asked next.
func (r *request) lead() (f *failure, quiet bool) {
	l, t := r.legs, &r.tries
	switch {
	case t.under && l.stage != stagePrefill: // it has been asked
		return nil, false
	case t.under:
	case !r.job.Hops():
		l.stage = stageWhole
		r.wholeLeg()
		return nil, false
	default:
		if l.kind = kindOf(&r.job.Pool().Spec, r.replica); l.kind == state.EngineSGLang {
			return r.leadAtOnce(), false
		}
		if l.params != nil { // the replica before this one never saw them
			l.stage = stageDecode
			r.job.legs.handed = true
			return nil, false
		}
		l.stage = stagePrefill
	}
	if f, quiet := r.prefill(); f != nil || quiet {
		return f, quiet
	}
	t.under, l.stage = false, stageWhole
	if l.params != nil {
		l.stage = stageDecode
	}
	return nil, false
}

// Results of prefills elsewhere, as metrics have them.
const (
	hopHanded    = "handed_over" // the replica that decodes got the prompt's KV
	hopShort     = "short"       // not worth it: the replica that answered had too little to prefill
	hopWhole     = "whole"       // a replica that does both was the better choice
	hopUnfit     = "unfit"       // the request can't be served in two legs
	hopNoReplica = "no_replica"  // no replica could prefill it
	hopNoParams  = "no_params"   // the prefill handed nothing over
	hopFailed    = "failed"      // the prefill failed; there may have been another
)

var hopResults = []string{hopHanded, hopShort, hopWhole, hopUnfit, hopNoReplica, hopNoParams, hopFailed}

// count counts what came of a prefill elsewhere.
func (r *request) count(result string) {
	r.legs.counted = true
	r.s.metrics.prefills.WithLabelValues(r.job.Pool().Spec.Name, result).Inc()
}

// wholeLeg counts why a request is served by one replica.
func (r *request) wholeLeg() {
	j := r.job
	switch {
	case r.legs.counted:
	case r.replica.Role != state.RoleDecode:
		r.count(hopWhole)
	case j.legs.unfit(j.pool):
		r.count(hopUnfit)
	case !j.req.Hop.Offered:
		r.count(hopNoReplica)
	default:
		r.count(hopShort)
	}
}

// missed ends an attempt that failed before it was answered: what is left of the
// prefill is closed with it, and KV for the replica is given up unless that never
// heard of it.
func (r *request) missed(f *failure) {
	l := r.legs
	l.spoilt = l.rid == "" && l.stage == stageDecode && f.retry && f.status >= http.StatusInternalServerError && f.outcome == OutcomeFailed
	if l.rid != "" {
		if f.status == http.StatusRequestTimeout && !f.other { // it waited for KV in vain
			f.outcome, f.retry, f.err = OutcomeTimeout, true, api.BadGateway("decode_timeout")
		}
		r.closeSide(f)
	}
	if !f.unreached {
		l.params = nil
		if l.engine != "" { // it may have been told of an engine that is no more
			r.s.meets.forget(l.replica.ID)
		}
	}
	l.stage = stageWhole
}

// withoutKV lets the last replica be tried again where no other one is left and what
// it was handed over may be what it failed with: it then prefills the prompt itself.
func (r *request) withoutKV() bool {
	l := r.legs
	if !l.spoilt {
		return false
	}
	l.spoilt, l.failed = false, orDefault(r.job.Pool().Spec.RetryAttempts, defaultAttempts)
	r.job.Again()
	return true
}

// editLegs notes what the replica that answers must see differently. What clients say
// of the hand-over never reaches it.
func (r *request) editLegs() {
	l, body := r.legs, r.job.legs.body
	if body == nil {
		return
	}
	add, drop := "", handOverFields
	switch {
	case l.stage != stageDecode:
	case l.rid != "":
		add, drop = l.add, meetFields
	default:
		add = `"kv_transfer_params":` + string(l.params)
	}
	r.edits = body.Rewrite(r.edits, add, drop...)
}

// Fields by which clients could reach into a hand-over, without and with the name
// that SGLang aborts by.
var (
	handOverFields = []api.LegName{api.LegTransfer, api.LegBootstrapHost, api.LegBootstrapPort, api.LegBootstrapRoom}
	meetFields     = append([]api.LegName{api.LegRID}, handOverFields...)
)

// billLegs puts the usage of both legs together: what the cache saved is what it saved
// where the prompt was prefilled. vLLM's engine that decodes counts KV that it was
// handed as cached; SGLang's says what the prefill said.
func (r *request) billLegs(res *Result) {
	l := r.legs
	r.collect()
	if !r.job.handed() || !res.HasUsage {
		return
	}
	switch {
	case l.hasUsage && l.usage.CachedKnown:
		res.Usage.InputCached, res.Usage.CachedKnown = min(l.usage.InputCached, res.Usage.InputTotal), true
	case l.kind == state.EngineVLLM:
		res.Usage.InputCached, res.Usage.CachedKnown = 0, false
	}
}

// closeLegs ends what the request still has of a second leg.
func (r *request) closeLegs() {
	if r.legs.rid != "" {
		r.closeSide(nil)
	}
	if r.job != nil {
		r.job.EndPrefill(&Result{Outcome: OutcomeAborted})
	}
}

// bootstrapOf is the host, as URLs have it, and the port where a replica hands over KV.
func bootstrapOf(p *state.ReplicaView) (host string, port int) {
	if u, err := url.Parse(p.URL); err == nil {
		host = u.Hostname()
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port = p.BootstrapPort; port == 0 {
		port = state.DefaultBootstrapPort
	}
	return host, port
}

// newName is a name for a hand-over. All have one length, since SGLang takes the name
// that it is to abort for the beginning of others.
func newName() string {
	var b [16]byte
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return "hearsay-" + hex.EncodeToString(b[:])
}

// newRoom names where two legs meet: an integer of 63 bits. It leaves room for those
// that the engine counts on from it.
func newRoom() string { return strconv.FormatInt(rand.Int64N(1<<63-1-1<<16), 10) }
