package engine

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// detectTimeout bounds each probe. They run side by side.
const detectTimeout = time.Second

// probe is a path that one kind of engine answers in its own way.
type probe struct {
	kind state.EngineKind
	path string
	ours func(body []byte) (version string, ok bool)
}

// probes, the most telling first: some engines also answer others' paths.
var probes = []probe{
	{state.EngineSGLang, "/server_info", sglangInfo},
	{state.EngineSGLang, "/get_server_info", sglangInfo},
	{state.EngineLlamaCpp, "/props", llamaProps},
	{state.EngineVLLM, "/version", vllmVersion},
	{state.EngineAnthropic, "/v1/models", anthropicModels},
	{state.EngineOpenAI, "/v1/models", anything},
	{state.EngineOpenAI, "/health", anything},
}

var errNoEngine = errors.New("it answers like no known engine")

// detect tells which kind of engine answers.
func (s *session) detect() (state.EngineKind, string, error) {
	ctx, cancel := context.WithTimeout(s.ctx, detectTimeout)
	defer cancel()
	type result struct {
		version string
		ok      bool
		err     error
	}
	results := make([]result, len(probes))
	var wg sync.WaitGroup
	for i := range probes {
		wg.Go(func() {
			r := &results[i]
			var body []byte
			switch body, _, r.err = s.get(ctx, probes[i].path); {
			case r.err == nil:
				r.version, r.ok = probes[i].ours(body)
			case probes[i].kind == state.EngineAnthropic:
				r.ok = anthropicError(body) // it wants a credential, and says so in its own way
			}
		})
	}
	wg.Wait()
	// What failed without an answer may be the one that would have told: then only a
	// kind of its own counts, not that something generic answered.
	var unanswered, loading error
	for i := range results {
		switch err := results[i].err; {
		case err == nil:
		case errors.Is(err, syscall.ECONNREFUSED):
			return "", "", err
		case statusOf(err) == http.StatusServiceUnavailable:
			loading = err
		case statusOf(err) == 0:
			unanswered = err
		}
	}
	for i := range results {
		r := &results[i]
		if !r.ok || generic(probes[i].kind) && (unanswered != nil || loading != nil) {
			continue
		}
		return probes[i].kind, r.version, nil
	}
	switch {
	case loading != nil:
		return "", "", loading
	case unanswered != nil:
		return "", "", unanswered
	}
	for i := range results {
		if st := statusOf(results[i].err); st == http.StatusUnauthorized || st == http.StatusForbidden {
			return state.EngineOpenAI, "", nil // it is there and wants a credential
		}
	}
	return "", "", errNoEngine
}

// generic is a kind that other engines may be taken for.
func generic(k state.EngineKind) bool { return k == state.EngineOpenAI || k == state.EngineAnthropic }

// anthropicModels tells a page of models as Anthropic's API lists them.
func anthropicModels(body []byte) (string, bool) {
	var doc struct {
		Object string `json:"object"`
		More   *bool  `json:"has_more"`
	}
	err := json.Unmarshal(body, &doc)
	return "", err == nil && doc.More != nil && doc.Object == ""
}

// anthropicError tells an error as Anthropic's API writes them.
func anthropicError(body []byte) bool {
	var doc struct {
		Type  string `json:"type"`
		Error struct {
			Type string `json:"type"`
		} `json:"error"`
	}
	return json.Unmarshal(body, &doc) == nil && doc.Type == "error" && doc.Error.Type != ""
}

func anything([]byte) (string, bool) { return "", true }

func vllmVersion(body []byte) (string, bool) {
	var doc struct {
		Version string `json:"version"`
	}
	err := json.Unmarshal(body, &doc)
	return bounded(doc.Version), err == nil && doc.Version != ""
}

func sglangInfo(body []byte) (string, bool) {
	var doc struct {
		Version   string `json:"version"`
		ModelPath string `json:"model_path"`
		Tokens    any    `json:"max_total_num_tokens"`
	}
	err := json.Unmarshal(body, &doc)
	return bounded(doc.Version), err == nil && (doc.ModelPath != "" || doc.Tokens != nil)
}

func llamaProps(body []byte) (string, bool) {
	var doc struct {
		Slots    any    `json:"total_slots"`
		Settings any    `json:"default_generation_settings"`
		Build    string `json:"build_info"`
	}
	err := json.Unmarshal(body, &doc)
	return bounded(doc.Build), err == nil && (doc.Slots != nil || doc.Settings != nil)
}

// bounded cuts a foreign string to what is kept of it.
func bounded(s string) string { return s[:min(len(s), 64)] }
