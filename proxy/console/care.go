package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Care is what is done to a router, or its cluster, once in a while.
type Care interface {
	// Leave takes this router out of the cluster for good and begins to stop it. It
	// returns when the others have its vote; the error is that of a commit.
	Leave(ctx context.Context) (done string, err error)
	// Save gives a snapshot of the committed facts: as they are now, by asking the
	// leader, or, stale, as this router knows them.
	Save(ctx context.Context, stale bool) ([]byte, error)
	// Restore commits the facts of a snapshot in place of the present ones, those of
	// another cluster only by force. The errors are those of a commit.
	Restore(ctx context.Context, snapshot []byte, force bool) (index uint64, behind bool, err error)
	// Keyring lists the shared secrets of all live routers, or changes them: add, use,
	// remove. A refusal has changed nothing; what single routers did not do is in Keys.
	// Where routers are away a change takes force.
	Keyring(ctx context.Context, op, fingerprint string, force bool) ([]Keys, error)
	// Reload reads this router's configuration again.
	Reload(ctx context.Context) (Reloaded, error)
}

// caring serves a path of Care's, where there is one.
func (s *Server) caring(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.Care == nil {
			fail(w, http.StatusNotFound, "not_found", "this router does not serve that")
			return
		}
		h(w, r)
	}
}

func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	out, err := s.cfg.Care.Reload(r.Context())
	if err != nil {
		failWrite(w, err)
		return
	}
	respond(w, http.StatusOK, out)
}

func (s *Server) listKeys(w http.ResponseWriter, r *http.Request) {
	s.keyring(w, r, &KeyringRequest{Op: "list"})
}

func (s *Server) changeKeys(w http.ResponseWriter, r *http.Request) {
	var req KeyringRequest
	if body(w, r, &req) {
		s.keyring(w, r, &req)
	}
}

func (s *Server) keyring(w http.ResponseWriter, r *http.Request, k *KeyringRequest) {
	out, err := s.cfg.Care.Keyring(r.Context(), k.Op, k.Key, k.Force)
	if err != nil {
		failWrite(w, err)
		return
	}
	respond(w, http.StatusOK, out)
}

func (s *Server) leave(w http.ResponseWriter, r *http.Request) {
	done, err := s.cfg.Care.Leave(r.Context())
	if err != nil {
		failWrite(w, err)
		return
	}
	respond(w, http.StatusOK, Done{Message: done})
}

func (s *Server) saveSnapshot(w http.ResponseWriter, r *http.Request) {
	b, err := s.cfg.Care.Save(r.Context(), r.URL.Query().Has("stale"))
	if errors.Is(err, ErrNoLeader) {
		noLeader(w, "what is committed can't be asked for; --stale (?stale) saves what this router knows of it")
		return
	}
	if err != nil {
		failWrite(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", fmt.Sprint(len(b)))
	_, _ = w.Write(b)
}

func (s *Server) restoreSnapshot(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	var tooLong *http.MaxBytesError
	if errors.As(err, &tooLong) {
		fail(w, http.StatusBadRequest, "bad_request", fmt.Sprintf("the snapshot is larger than %d MiB", tooLong.Limit>>20))
		return
	}
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", "the snapshot did not come whole: "+err.Error())
		return
	}
	index, behind, err := s.cfg.Care.Restore(r.Context(), b, r.URL.Query().Has("force"))
	s.done(w, index, behind, err)
}
