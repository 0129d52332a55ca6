package engine

import (
	"context"
	"encoding/json"

	"github.com/hearsay-llm/hearsay/state"
)

// maxModels bounds the model names that are kept of one engine.
const maxModels = 32

// noteModels asks a process once which models it serves, where a request for
// another is refused. Without an answer that is not known until it starts anew.
func (s *session) noteModels(kind state.EngineKind) {
	if s.err != nil || s.p.modelsAsked {
		return
	}
	s.p.modelsAsked = true
	if kind != state.EngineVLLM && kind != state.EngineOpenAI {
		return // llama.cpp and SGLang answer under any name
	}
	ctx, cancel := context.WithTimeout(s.ctx, detectTimeout)
	defer cancel()
	body, _, err := s.get(ctx, "/v1/models")
	if err == nil {
		s.p.models = modelNames(body)
	}
}

// modelNames are the ids of a list of models; none if the list is no such list, or
// longer than is kept.
func modelNames(body []byte) (names []string) {
	var doc struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &doc) != nil || len(doc.Data) > maxModels {
		return nil
	}
	for _, m := range doc.Data {
		if m.ID == "" || len(m.ID) > 256 {
			return nil
		}
		names = append(names, m.ID)
	}
	return names
}
