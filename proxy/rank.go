package proxy

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	engines "github.com/hearsay-llm/hearsay/proxy/engine"
	"github.com/hearsay-llm/hearsay/state"
)

// kindOf is the kind of a replica's engine: as it was set for the replica or its pool,
// else as it was found.
func kindOf(spec *state.PoolSpec, r *state.ReplicaView) state.EngineKind { return spec.Kind(r) }

// addRank names the replica's rank in the body for SGLang, which older releases read
// only there. It comes last, where the engine's parser lets it win over a client's.
func (r *request) addRank(spec *state.PoolSpec, replica *state.ReplicaView) {
	if spec.RanksOf(&replica.Replica) == 1 || kindOf(spec, replica) != state.EngineSGLang {
		return
	}
	_, body := r.sent()
	end := bytes.LastIndexByte(body, '}')
	if end < 0 {
		return
	}
	at := api.Span{Start: end, End: end}
	r.edits = append(r.edits, api.Edit{Span: at, With: `,"data_parallel_rank":` + strconv.Itoa(replica.Rank)})
}

// asksLoad reports whether a replica is asked to add its load to the answer. One that
// is a rank of several is not: what it says is of one of them.
func (r *request) asksLoad(spec *state.PoolSpec, replica *state.ReplicaView) bool {
	return r.s.core.loads != nil && spec.RanksOf(&replica.Replica) == 1 && kindOf(spec, replica) == state.EngineVLLM
}

// noteLoad passes on the load that came with an answer's head.
func (r *request) noteLoad(spec *state.PoolSpec, replica *state.ReplicaView) {
	if !r.asksLoad(spec, replica) {
		return
	}
	if l, ok := engines.LoadHeader(r.x.resp.Peek(engines.LoadReplyHeader)); ok {
		r.s.core.loads(replica, time.Now(), l.KVUsage, l.Waiting)
	}
}

// siblings are the replicas that were tried and the other ranks of their processes:
// what ails one rank often ails all.
func (j *Job) siblings() []state.ReplicaID {
	if len(j.tried) == 0 {
		return j.tried
	}
	out := slices.Clone(j.tried)
	urls := make([]string, 0, len(j.tried))
	for _, r := range j.pool.Replicas {
		if slices.Contains(j.tried, r.ID) {
			urls = append(urls, r.URL)
		}
	}
	for _, r := range j.pool.Replicas {
		if slices.Contains(urls, r.URL) && !slices.Contains(j.tried, r.ID) {
			out = append(out, r.ID)
		}
	}
	return out
}
