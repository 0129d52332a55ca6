package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/hearsay-llm/hearsay/state"
)

// authorised lets a request through that carries the token, if there is one. A
// browser page of another origin is refused even on loopback, where no token may
// be set.
func (s *Server) authorised(h http.HandlerFunc) http.HandlerFunc {
	want := sha256.Sum256([]byte(s.cfg.Token))
	return func(w http.ResponseWriter, r *http.Request) {
		if o := r.Header.Get("Origin"); o != "" {
			if u, err := url.Parse(o); err != nil || u.Host != r.Host {
				fail(w, http.StatusForbidden, "foreign_origin", "requests from pages of another origin are refused")
				return
			}
		}
		if s.cfg.Token != "" {
			got, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			have := sha256.Sum256([]byte(got))
			if subtle.ConstantTimeCompare(have[:], want[:]) != 1 {
				why := "an admin token is needed: give --token or set HEARSAY_TOKEN"
				if got != "" {
					why = "the admin token given is not this router's (admin.token_file)"
				}
				w.Header().Set("WWW-Authenticate", "Bearer")
				fail(w, http.StatusUnauthorized, "unauthorized", why)
				return
			}
		}
		h(w, r)
	}
}

// apiError is the shape of every error of the admin API.
type apiError struct {
	Error struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func fail(w http.ResponseWriter, status int, code, message string) {
	var e apiError
	e.Error.Code, e.Error.Message = code, message
	respond(w, status, e)
}

// failWrite maps a failed commit to the status operators rely on.
func failWrite(w http.ResponseWriter, err error) {
	var refused *state.Refusal
	switch {
	case errors.Is(err, ErrNoLeader):
		noLeader(w, "nothing was changed; requests go on with the last committed facts; see hearsay members")
	case errors.Is(err, ErrUnknownOutcome):
		fail(w, http.StatusGatewayTimeout, "outcome_unknown",
			"the commit may still come: repeat the call with the same Idempotency-Key")
	case errors.As(err, &refused):
		status := http.StatusConflict
		switch refused.Code {
		case state.RefusedUnknown:
			status = http.StatusNotFound
		case state.RefusedInvalid:
			status = http.StatusBadRequest
		}
		fail(w, status, string(refused.Code), refused.Reason)
	default:
		fail(w, http.StatusInternalServerError, "internal", "the change could not be made: "+err.Error())
	}
}

// noLeader says that nothing can be committed at present, and what that means.
func noLeader(w http.ResponseWriter, so string) {
	w.Header().Set("Retry-After", "2")
	fail(w, http.StatusServiceUnavailable, "no_leader", "the cluster has no leader: "+so)
}

func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v)
}
