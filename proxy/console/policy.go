package console

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// PolicyRequest gives a pool a routing policy, on all routers.
type PolicyRequest struct {
	Policy *string `json:"policy"` // empty: the one of the configuration again
}

func (s *Server) setPolicy(w http.ResponseWriter, r *http.Request) {
	var req PolicyRequest
	if !body(w, r, &req) {
		return
	}
	v, name := s.node.View(), r.PathValue("name")
	now, set := v.Facts.Policies[name]
	pool := s.pool(name)
	switch {
	case pool == nil && !set: // what a pool that is gone was given can be taken back
		unknownPool(w, name)
	case req.Policy == nil:
		fail(w, http.StatusBadRequest, "invalid", `give "policy": a name, or "" for the one of the configuration`)
	case *req.Policy != "" && !slices.Contains(routing.Policies(), *req.Policy):
		fail(w, http.StatusBadRequest, "invalid", fmt.Sprintf("policy %q is unknown: use %s", *req.Policy, strings.Join(routing.Policies(), ", ")))
	case *req.Policy == "" && !set:
		unchanged(w, v, fmt.Sprintf("pool %s has the policy of its configuration, %s", name, cmp.Or(pool.FilePolicy, routing.TTFT)))
	case set && now == *req.Policy:
		unchanged(w, v, fmt.Sprintf("pool %s: policy %s, set already", name, now))
	default:
		c := command(r, state.CommandSetPolicy)
		c.Pool, c.Policy = name, *req.Policy
		s.commit(w, r, c)
	}
}
