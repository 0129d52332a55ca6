package enginesim

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The kind Anthropic: what its API asks of a request and tells of its models. It has
// no path that tells health or load.

const (
	modelsPath      = "/v1/models"
	requestIDHeader = "Request-Id"
)

// messagesPaths are those of the Messages API, which engines have too.
func (e *Engine) messagesPaths(handle route) {
	handle(http.MethodPost, messagesPath, e.ranked(func(e *Engine) http.HandlerFunc { return e.inference(e.messages) }))
	handle(http.MethodPost, countTokensPath, e.countTokens)
}

func (e *Engine) anthropicPaths(handle route) {
	e.messagesPaths(handle)
	handle(http.MethodGet, modelsPath, e.anthropicModels)
	handle(http.MethodGet, modelsPath+"/{id...}", e.anthropicModel)
}

// identify gives an answer of Anthropic's the id of its request.
func (e *Engine) identify(w http.ResponseWriter) {
	if e.cfg.Kind == Anthropic {
		w.Header().Set(requestIDHeader, fmt.Sprintf("req_%016x", mix(e.cfg.Seed+uint64(e.answers.Add(1)))))
	}
}

// admit checks the headers that Anthropic requires, and a body, if there is one, by the
// rules of the version. The key may be any, and come in either header: the libraries
// that send version2026 have it as a bearer token, older ones as x-api-key.
func (e *Engine) admit(r *http.Request, body []byte) *apiError {
	if e.cfg.Kind != Anthropic {
		return nil
	}
	version := r.Header.Get("Anthropic-Version")
	switch {
	case r.Header.Get("X-Api-Key") == "" && !bearer(r):
		return &apiError{status: http.StatusUnauthorized, message: "x-api-key or Authorization header is required"}
	case version == "":
		return badRequest("anthropic-version: header is required")
	case !slices.Contains(anthropicVersions, version):
		return badRequest("anthropic-version: %q is not a valid version", version)
	case version == version2026 && body != nil:
		return checkVersion2026(body)
	}
	return nil
}

func bearer(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "bearer") && strings.TrimSpace(token) != ""
}

// modelInfo is a model as Anthropic lists it.
type modelInfo struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	Name      string `json:"display_name"`
	Created   string `json:"created_at"`
	MaxInput  int    `json:"max_input_tokens"`
	MaxOutput int    `json:"max_tokens"`
}

func (e *Engine) modelInfos() []modelInfo {
	e.mu.Lock()
	created := e.born.UTC().Format(time.RFC3339)
	e.mu.Unlock()
	var list []modelInfo
	for _, id := range append([]string{e.cfg.Model}, e.cfg.Adapters...) {
		list = append(list, modelInfo{"model", id, id, created, e.cfg.contextLen(), e.cfg.contextLen()})
	}
	return list
}

// The length of a page of models.
const (
	defaultPage = 20
	maxPage     = 1000
)

// anthropicModels answers a page of models: limit of them, after after_id or before
// before_id.
func (e *Engine) anthropicModels(w http.ResponseWriter, r *http.Request) {
	if err := e.admit(r, nil); err != nil {
		e.writeError(w, r, err)
		return
	}
	query, limit := r.URL.Query(), defaultPage
	if v := query.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > maxPage {
			e.writeError(w, r, badRequest("limit: Input should be from 1 to %d", maxPage))
			return
		}
		limit = n
	}
	list := e.modelInfos()
	at := func(id string) int { return slices.IndexFunc(list, func(m modelInfo) bool { return m.ID == id }) }
	more := false
	if i := at(query.Get("before_id")); i >= 0 {
		list = list[:i]
		more = len(list) > limit
		list = list[max(0, len(list)-limit):]
	} else {
		list = list[at(query.Get("after_id"))+1:]
		more = len(list) > limit
		list = list[:min(limit, len(list))]
	}
	page := struct {
		Data  []modelInfo `json:"data"`
		More  bool        `json:"has_more"`
		First *string     `json:"first_id"`
		Last  *string     `json:"last_id"`
	}{Data: list, More: more}
	if len(list) > 0 {
		page.First, page.Last = &list[0].ID, &list[len(list)-1].ID
	} else {
		page.Data = []modelInfo{}
	}
	writeJSON(w, http.StatusOK, page)
}

func (e *Engine) anthropicModel(w http.ResponseWriter, r *http.Request) {
	err := e.admit(r, nil)
	id := strings.TrimPrefix(r.URL.Path, modelsPath+"/")
	if err == nil {
		for _, m := range e.modelInfos() {
			if m.ID == id {
				writeJSON(w, http.StatusOK, m)
				return
			}
		}
		err = &apiError{status: http.StatusNotFound, message: "model: " + id}
	}
	e.writeError(w, r, err)
}
