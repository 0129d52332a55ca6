package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/state"
)

func TestModelsThatAnEngineServes(t *testing.T) {
	const list = `{"object":"list","data":[{"id":"llama-3.1-8b","object":"model"},{"id":"sql","parent":"llama-3.1-8b"}]}`
	f := func(name string, kind state.EngineKind, models string, want ...string) {
		t.Helper()
		s := serve(t, map[string]string{"/metrics": vllmText, "/health": "", "/v1/models": models, "/props": llamaServer, "/slots": llamaSlots})
		rd := newReader(t)
		for range 2 { // asked once, remembered
			if r := rd.Read(t.Context(), []state.Replica{{ID: "x", URL: s.URL, Engine: kind}}); !r[0].OK || !slices.Equal(r[0].Models, want) {
				t.Errorf("%s: %v %q serves %q, want %q", name, r[0].OK, r[0].Err, r[0].Models, want)
			}
			s.set(func() { s.paths["/v1/models"] = `{"data":[{"id":"other"}]}` })
		}
	}
	f("vLLM with an adapter", state.EngineVLLM, list, "llama-3.1-8b", "sql")
	f("a server of no kind of its own", state.EngineOpenAI, list, "llama-3.1-8b", "sql")
	f("llama.cpp does not look at the name", state.EngineLlamaCpp, list)
	f("no list", state.EngineVLLM, `{"data":"x"}`)
	f("an id is missing", state.EngineVLLM, `{"data":[{"id":"a"},{}]}`)
	f("more than is kept", state.EngineVLLM, `{"data":[{"id":"a"}`+strings.Repeat(`,{"id":"b"}`, maxModels)+`]}`)
}
