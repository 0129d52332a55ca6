package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// body reads a JSON request into v; an empty body leaves v as it is. Unknown
// fields are refused, so that a misspelt one is not silently ignored.
func body(w http.ResponseWriter, r *http.Request, v any) bool {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil && !errors.Is(err, io.EOF) {
		fail(w, http.StatusBadRequest, "bad_request", "the body is not the JSON this path takes: "+err.Error())
		return false
	}
	return true
}

// command fills in what every write shares: an id that makes repeats harmless.
func command(r *http.Request, kind state.CommandKind) state.Command {
	id := r.Header.Get("Idempotency-Key")
	if id == "" {
		id = rand.Text()
	}
	return state.Command{ID: string(kind) + ":" + id, Kind: kind}
}

// operatorsID is the id of the decision that a command bears: a repeat bears the same.
func operatorsID(c *state.Command) string {
	return "op-" + strings.TrimPrefix(c.ID, string(c.Kind)+":")
}

func (s *Server) commit(w http.ResponseWriter, r *http.Request, c state.Command) {
	index, behind, err := s.write.Commit(r.Context(), c)
	s.done(w, index, behind, err)
}

// done answers with what came of a commit.
func (s *Server) done(w http.ResponseWriter, index uint64, behind bool, err error) {
	if err != nil {
		failWrite(w, err)
		return
	}
	respond(w, http.StatusOK, Done{Index: index, Behind: behind})
}

func (s *Server) setTarget(w http.ResponseWriter, r *http.Request) {
	var req TargetRequest
	if !body(w, r, &req) {
		return
	}
	v, name := s.node.View(), r.PathValue("name")
	pool := s.pool(name)
	if pool == nil {
		unknownPool(w, name)
		return
	}
	k, why := targetKey(v, pool, state.Role(req.Role))
	if why != "" {
		fail(w, http.StatusBadRequest, "invalid", why)
		return
	}
	now, known := v.Facts.Targets[k]
	switch {
	case req.Release && req.To == nil && !v.Facts.Holds[k]:
		unchanged(w, v, "no operator holds the target of pool "+name)
	case req.Release && req.To == nil:
		s.release(w, r, pool, k)
	case req.To == nil || req.Release:
		fail(w, http.StatusBadRequest, "invalid", `give "to": N or "release": true`)
	case *req.To < pool.Spec.ScaleMin || *req.To > pool.Spec.ScaleMax:
		fail(w, http.StatusBadRequest, "invalid", fmt.Sprintf("pool %s has bounds %d to %d (scale.min, scale.max): %d is beyond them",
			name, pool.Spec.ScaleMin, pool.Spec.ScaleMax, *req.To))
	case known && now == *req.To && v.Facts.Holds[k] && !failed(v.Facts.LastDecision(k)):
		unchanged(w, v, fmt.Sprintf("pool %s: target %d, held already", name, now))
	default:
		from := now
		if !known {
			from = len(ofRole(pool, k.Role))
		}
		c := command(r, state.CommandSetTarget)
		c.Hold = true
		c.Decision = &state.Decision{
			ID: operatorsID(&c), Pool: k.Pool, Role: k.Role, From: from, To: *req.To,
			Reason: "set by an operator", By: state.ByOperator, At: time.Now().UTC(),
		}
		index, behind, err := s.write.Commit(r.Context(), c)
		if err == nil && pool.Spec.ScaleActuator == state.DryRun {
			respond(w, http.StatusOK, Done{Index: index, Behind: behind, Message: fmt.Sprintf(
				"pool %s: target %d, held until --release. Its actuator is %s: the target is recorded, nothing is started or stopped", name, *req.To, state.DryRun)})
			return
		}
		s.done(w, index, behind, err)
	}
}

// release gives a target back to the autoscaler. Where the actuator starts and stops
// nothing, what the operator wanted has not come and will not: then the target is again
// what there is.
func (s *Server) release(w http.ResponseWriter, r *http.Request, pool *state.PoolView, k state.TargetKey) {
	there, spec := len(ofRole(pool, k.Role)), &pool.Spec
	there = min(max(there, spec.ScaleMin), spec.ScaleMax)
	if now := s.node.View().Facts.Targets[k]; spec.ScaleActuator == state.DryRun && now != there {
		c := command(r, state.CommandSetTarget)
		c.ID += "-there"
		c.Decision = &state.Decision{
			ID: operatorsID(&c), Pool: k.Pool, Role: k.Role, From: now, To: there,
			Reason: "released by an operator: what there is", By: state.ByOperator, At: time.Now().UTC(),
		}
		if _, _, err := s.write.Commit(r.Context(), c); err != nil {
			failWrite(w, err)
			return
		}
	}
	c := command(r, state.CommandRelease)
	c.Target = k
	s.commit(w, r, c)
}

// unchanged answers an edit of what is so already; so says what is.
func unchanged(w http.ResponseWriter, v *state.View, so string) {
	respond(w, http.StatusOK, Done{Index: v.Facts.Index, Message: so + ": nothing changed"})
}

// failed reports that a target was given up: setting it again is a new try.
func failed(d *state.Decision) bool { return d != nil && d.Outcome == state.OutcomeFailed }

func (s *Server) addReplica(w http.ResponseWriter, r *http.Request) {
	var req ReplicaRequest
	if !body(w, r, &req) {
		return
	}
	v := s.node.View()
	if req.Pool == "" && len(v.Pools) == 1 {
		req.Pool = v.Pools[0].Spec.Name
	}
	if req.Pool == "" {
		var names []string
		for _, p := range v.Pools {
			names = append(names, p.Spec.Name)
		}
		fail(w, http.StatusBadRequest, "invalid", "--pool is needed: the pools here are "+strings.Join(names, ", "))
		return
	}
	rep, err := s.operate.Replica(req.Pool, req.URL)
	if err != nil {
		fail(w, http.StatusBadRequest, "invalid", err.Error())
		return
	}
	if addedBefore(w, v, &rep) {
		return
	}
	c := command(r, state.CommandAddReplica)
	c.Replica = &rep
	index, behind, err := s.write.Commit(r.Context(), c)
	if err != nil {
		failWrite(w, err)
		return
	}
	done := Done{Index: index, Behind: behind}
	if is, why := s.firstSeen(r.Context(), rep.URL); is != "" && !is.TakesRequests() {
		done.Message = fmt.Sprintf("%s was added, but is %s: %s. It gets requests when it is ready: see hearsay replicas", rep.URL, is, cmp.Or(why, "it was read a moment ago"))
	}
	respond(w, http.StatusOK, done)
}

// firstLook is how long the answer to an added replica waits for the first reading of it.
const firstLook = 1500 * time.Millisecond

// firstSeen is a new replica's condition by the first reading of it, and why in words;
// empty where none comes.
func (s *Server) firstSeen(ctx context.Context, url string) (state.Condition, string) {
	ctx, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		v, now := s.node.View(), time.Now()
		x := at(v, url)
		if x == nil {
			return "", ""
		}
		if p := v.PoolNamed(x.Pool); p != nil && !x.ReadingAt.IsZero() {
			is, _, words := condition(v, p, x, now)
			return is, words
		}
		select {
		case <-ctx.Done():
			return "", ""
		case <-t.C:
		}
	}
}

func (s *Server) removeReplica(w http.ResponseWriter, r *http.Request) {
	id := s.findID(r.PathValue("id"))
	v := s.node.View()
	rep, ok := v.Facts.Replicas[id]
	if !ok {
		switch x := v.Replica(id); {
		case x == nil:
			unknownReplica(w, id)
		case x.Source == state.SourceDiscovery:
			fail(w, http.StatusConflict, "discovered", string(id)+" is discovered: take it out where it is listed (discover of pool "+x.Pool+"), or drain it")
		default:
			fail(w, http.StatusConflict, "static", string(id)+" stands in the configuration (a file, or --replica of serve): take it out there on every router, or drain it")
		}
		return
	}
	if rep.ID = id; actuated(v, &rep, time.Now()) {
		fail(w, http.StatusConflict, "autoscaled", fmt.Sprintf("the autoscaler runs %s and would add it again: use drain, or scale %s --to N", id, rep.Pool))
		return
	}
	c := command(r, state.CommandRemoveReplica)
	c.Of = id
	s.commit(w, r, c)
}

func unknownReplica(w http.ResponseWriter, id state.ReplicaID) {
	fail(w, http.StatusNotFound, "unknown", "no replica "+string(id)+": see hearsay replicas")
}

func (s *Server) drain(w http.ResponseWriter, r *http.Request)   { s.setDrain(w, r, true) }
func (s *Server) undrain(w http.ResponseWriter, r *http.Request) { s.setDrain(w, r, false) }

// onlyHere marks the reason of a drain that no other router knows of. It ends by an
// undrain on the same router, or by a committed one through any.
const onlyHere = ", on this router alone"

// setDrain commits a drain. Without a leader, or if only this router is meant, it
// acts here alone and says so.
func (s *Server) setDrain(w http.ResponseWriter, r *http.Request, on bool) {
	var req ReasonRequest
	if !body(w, r, &req) {
		return
	}
	id := s.findID(r.PathValue("id"))
	rep := s.node.View().Replica(id)
	if rep == nil {
		unknownReplica(w, id)
		return
	}
	v := s.node.View()
	was, committed := v.Facts.Draining[id]
	same := committed && was.By == state.ByOperator && (req.Reason == "" || was.Reason == req.Reason)
	if req.Reason == "" {
		req.Reason = "drained by an operator"
	}
	if req.Local && !on && committed {
		fail(w, http.StatusConflict, "drained_everywhere", string(id)+" is drained on all routers: undrain it without --local")
		return
	}
	idle := !on && !committed && !rep.Draining // nothing to end here
	if req.Local {
		s.operate.Drain(id, on, req.Reason+onlyHere)
		done := Done{Local: true}
		if idle {
			done = Done{Message: string(id) + " is not draining here: nothing changed"}
		}
		respond(w, http.StatusOK, done)
		return
	}
	c := command(r, state.CommandUndrain)
	if on {
		c = command(r, state.CommandDrain)
		spec := v.Pool(rep.Pool)
		c.Drain = &state.Drain{Reason: req.Reason, By: state.ByOperator}
		if spec != nil {
			c.Drain.Deadline = spec.Spec.DrainDeadline
		}
	}
	c.Of = id
	if on && same && was.Deadline == c.Drain.Deadline {
		s.operate.Drain(id, false, "")
		unchanged(w, v, string(id)+" is draining on all routers already")
		return
	}
	index, behind, err := s.write.Commit(r.Context(), c)
	switch {
	case err == nil:
		s.operate.Drain(id, false, "") // the committed word stands for the local one
		done := Done{Index: index, Behind: behind}
		if idle {
			done.Message = string(id) + " is not draining here: nothing changed, unless other routers had drained it alone"
		}
		respond(w, http.StatusOK, done)
	case errors.Is(err, ErrNoLeader) && committed && on:
		unchanged(w, v, string(id)+" is draining on all routers already")
	case errors.Is(err, ErrNoLeader) && committed:
		noLeader(w, string(id)+" stays drained: what all routers drain ends on all, with a leader")
	case errors.Is(err, ErrNoLeader):
		s.operate.Drain(id, on, req.Reason+onlyHere)
		now := "takes work again on this router alone"
		switch {
		case on:
			now = "is draining on this router alone"
		case idle:
			now = "is not draining here, nothing changed"
		}
		respond(w, http.StatusAccepted, Done{
			Local: true, Message: fmt.Sprintf("no leader: %s %s: repeat it on the others, or when there is a leader", id, now),
		})
	default:
		failWrite(w, err)
	}
}

func (s *Server) flush(w http.ResponseWriter, r *http.Request) {
	id := s.findID(r.PathValue("id"))
	if s.node.View().Replica(id) == nil {
		unknownReplica(w, id)
		return
	}
	s.operate.Flush(id)
	respond(w, http.StatusOK, map[string]any{"flushed": id})
}

func (s *Server) explainRequest(w http.ResponseWriter, r *http.Request) {
	var req struct {
		RequestID string          `json:"request_id"`
		Path      string          `json:"path"`
		Tenant    string          `json:"tenant"`
		Body      json.RawMessage `json:"body"`
	}
	if !body(w, r, &req) {
		return
	}
	if req.RequestID != "" {
		past, ok := s.explain.Past(req.RequestID)
		if !ok {
			fail(w, http.StatusNotFound, "unknown", "this router remembers no pick for that request id: only the router that served it does, among its last 1,024 picks")
			return
		}
		respond(w, http.StatusOK, past)
		return
	}
	if req.Path == "" {
		req.Path = "/v1/chat/completions"
	}
	out, err := s.explain.Explain(r.Context(), req.Tenant, req.Path, req.Body)
	if err != nil {
		fail(w, http.StatusBadRequest, "invalid", err.Error())
		return
	}
	respond(w, http.StatusOK, out)
}

func (s *Server) removeMember(w http.ResponseWriter, r *http.Request) {
	given, members := r.PathValue("id"), s.node.Members()
	ids := findMember(members, given)
	if len(ids) > 1 {
		fail(w, http.StatusConflict, "ambiguous", fmt.Sprintf("%d routers are called %s: give one as %s", len(ids), given,
			strings.Join(namesOf(members).all(ids), " or ")))
		return
	}
	id := given // a voter that membership has forgotten has no name any more
	if len(ids) == 1 {
		id = ids[0]
	}
	if v := s.node.Info().Raft.Voters; len(v) > 0 && !slices.Contains(v, id) { // a learner knows none
		known := namesOf(members).all(v)
		why := "no voter " + given + ": the voters are " + strings.Join(known, ", ")
		if slices.ContainsFunc(v, func(id string) bool { return slices.Contains(known, id) }) {
			why += " (a router that this one has not met since its start stands there by its id: give that)"
		}
		if len(ids) == 1 {
			why += ". A router without a vote is forgotten by itself: an hour after it died, ten minutes after it left"
		}
		fail(w, http.StatusNotFound, "unknown", why)
		return
	}
	c := command(r, state.CommandRemoveMember)
	c.Router = state.RouterID(id)
	index, behind, err := s.write.Commit(r.Context(), c)
	var refused *state.Refusal
	if errors.As(err, &refused) {
		err = &state.Refusal{Code: refused.Code, Reason: given + ": " + refused.Reason}
	}
	s.done(w, index, behind, err)
}

func (s *Server) logLevel(w http.ResponseWriter, r *http.Request) {
	var req LevelRequest
	if !body(w, r, &req) {
		return
	}
	if err := s.operate.LogLevel(req.Level); err != nil {
		fail(w, http.StatusBadRequest, "invalid", err.Error())
		return
	}
	respond(w, http.StatusOK, req)
}
