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

// Adapters are told apart by their parents, and followed while they come and go.
func TestAdaptersThatAnEngineLists(t *testing.T) {
	const base, a1 = `{"id":"m","parent":null}`, `{"id":"org/A b:c","root":"/x","parent":"m"}`
	list := func(entries ...string) string { return `{"object":"list","data":[` + strings.Join(entries, ",") + `]}` }
	f := func(name string, kind state.EngineKind, first, then string, models, adapters []string, sum bool) {
		t.Helper()
		s := serve(t, map[string]string{
			"/metrics": vllmText, "/v1/loads": sglangLoads, "/server_info": `{"enable_lora":true}`, "/health": "", "/v1/models": first,
		})
		rd := newReader(t)
		read := func() state.Reading {
			return rd.Read(t.Context(), []state.Replica{{ID: "x", URL: s.URL, Engine: kind}})[0]
		}
		read()
		s.set(func() { s.paths["/v1/models"] = then })
		rd.mu.Lock()
		p := rd.profiles[s.URL]
		p.servedAt = p.servedAt.Add(-adaptersEvery) // as if so much time had passed
		rd.profiles[s.URL] = p
		rd.mu.Unlock()
		r := read()
		if !r.OK || !slices.Equal(r.Models, models) || !slices.Equal(r.Adapters, adapters) || (r.AdaptersSum != 0) != sum || sum && !r.ListsAdapters() {
			t.Errorf("%s: %v %q lists %q, adapters %q of %q, sum %x", name, r.OK, r.Err, r.Models, r.Adapters, r.AdapterParents, r.AdaptersSum)
		}
	}
	f("one more", state.EngineVLLM, list(base), list(base, a1), []string{"m", "org/A b:c"}, []string{"org/A b:c"}, true)
	f("one less", state.EngineVLLM, list(base, a1), list(base), []string{"m"}, nil, true)
	f("SGLang answers under any name", state.EngineSGLang, list(base), list(base, a1), nil, []string{"org/A b:c"}, true)
	f("no list any more", state.EngineVLLM, list(base, a1), `<html>`, []string{"m", "org/A b:c"}, []string{"org/A b:c"}, true)
	f("never a list", state.EngineVLLM, `<html>`, `<html>`, nil, nil, false)
	f("odd parents", state.EngineVLLM, list(base), list(base, `{"id":"x","parent":7}`, `{"id":"y","parent":""}`), []string{"m", "x", "y"}, nil, true)
	f("a name too long to keep", state.EngineVLLM, list(base), list(base, `{"id":"`+strings.Repeat("x", maxName+1)+`","parent":"m"}`, `{"id":"","parent":"m"}`, a1), []string{"m", "org/A b:c"}, []string{"org/A b:c"}, true)
	many := []string{base}
	for i := range state.MaxAdapters + 5 {
		many = append(many, `{"id":"a`+strings.Repeat("x", i%7)+`","parent":"m"}`)
	}
	s := serve(t, map[string]string{"/metrics": vllmText, "/v1/models": list(many...)})
	if r := newReader(t).Read(t.Context(), []state.Replica{{ID: "x", URL: s.URL, Engine: state.EngineVLLM}})[0]; len(r.Adapters) != state.MaxAdapters {
		t.Errorf("%d adapters are kept", len(r.Adapters))
	}
}
