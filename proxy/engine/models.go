package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	// maxModels bounds the models, adapters aside, that are kept of one engine.
	maxModels = 32
	// maxName bounds a model's name, bytes.
	maxName = 256
	// modelsEvery is how often an engine is asked which models it lists, adaptersEvery
	// how often one is that has adapters: they come and go while it runs.
	modelsEvery   = 2 * time.Second
	adaptersEvery = 400 * time.Millisecond
	// modelsSeldom is the same of a server that is no engine we know.
	modelsSeldom = time.Minute
)

// served is what an engine lists.
type served struct {
	known    bool     // it has been read
	models   []string // all names, adapters' included; none = not known, or any will do
	adapters []string
	parents  []string // of the adapters; len = len(adapters)
}

// fill writes it to a reading.
func (s *served) fill(r *state.Reading) {
	if !s.known {
		return
	}
	r.Models, r.Adapters, r.AdapterParents = s.models, s.adapters, s.parents
	r.AdaptersSum = state.SumAdapters(s.adapters)
}

// noteModels asks a process now and then which models it lists. An answer that is none,
// or none that can be read, leaves what was known before.
func (s *session) noteModels(kind state.EngineKind) {
	every := modelsEvery
	switch {
	case len(s.p.served.adapters) > 0 || s.p.lora:
		every = adaptersEvery
	case kind == state.EngineOpenAI:
		every = modelsSeldom
	}
	if s.err != nil || !s.p.servedAt.IsZero() && time.Since(s.p.servedAt) < every {
		return
	}
	switch kind {
	case state.EngineVLLM, state.EngineOpenAI, state.EngineSGLang:
	default:
		return // llama.cpp lists no adapters, and answers under any name
	}
	s.p.servedAt = time.Now()
	ctx, cancel := context.WithTimeout(s.ctx, detectTimeout)
	defer cancel()
	body, _, err := s.get(ctx, "/v1/models")
	if err != nil {
		return
	}
	list, ok := readModels(body)
	if !ok {
		return
	}
	if kind == state.EngineSGLang {
		list.models = nil // it answers under any name
	}
	s.p.served = list
}

// readModels reads a list of models. Adapters are those that have a parent. It is not ok
// if it is no such list, or longer than is kept; of adapters the first ones are
// kept whose names are.
func readModels(body []byte) (list served, ok bool) {
	var doc struct {
		Data []struct {
			ID     string `json:"id"`
			Parent any    `json:"parent"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &doc) != nil || doc.Data == nil {
		return served{}, false
	}
	list.known = true
	for _, m := range doc.Data {
		parent, _ := m.Parent.(string)
		bad := m.ID == "" || len(m.ID) > maxName
		if bad && parent == "" {
			return served{}, false
		}
		if parent != "" {
			if bad || len(list.adapters) == state.MaxAdapters {
				continue // it hides no other
			}
			list.adapters, list.parents = append(list.adapters, m.ID), append(list.parents, parent)
		} else if len(list.models)-len(list.adapters) == maxModels {
			return served{}, false
		}
		list.models = append(list.models, m.ID)
	}
	return list, true
}
