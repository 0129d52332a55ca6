package enginesim

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
)

// loraAdapter is an adapter that is served beside the model.
type loraAdapter struct{ name, path string }

func startAdapters(names []string) (list []loraAdapter) {
	for _, n := range names {
		list = append(list, loraAdapter{n, n})
	}
	return list
}

// listed are the adapters served now, in the order in which they came.
func (e *Engine) listed() []loraAdapter {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.adapters)
}

func (e *Engine) serves(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.adapters, func(a loraAdapter) bool { return a.name == name })
}

// AddAdapter serves one more adapter from now on, at all ranks, until the process
// starts anew. It reports false where there is one of that name.
func (e *Engine) AddAdapter(name, path string) bool {
	if e.serves(name) {
		return false
	}
	for _, s := range e.all() {
		s.mu.Lock()
		s.adapters = append(s.adapters, loraAdapter{name, path})
		s.mu.Unlock()
	}
	return true
}

// RemoveAdapter ends that; requests that run with it go on. It reports false where
// there is none.
func (e *Engine) RemoveAdapter(name string) bool {
	if !e.serves(name) {
		return false
	}
	for _, s := range e.all() {
		s.mu.Lock()
		s.adapters = slices.DeleteFunc(slices.Clone(s.adapters), func(a loraAdapter) bool { return a.name == name })
		s.mu.Unlock()
	}
	return true
}

// adapterOf is the adapter that a model's name means: the name itself, of SGLang what
// stands behind the first colon, where everything else is the model. It is not ok if
// there is no such adapter.
func (e *Engine) adapterOf(model string) (adapter string, ok bool) {
	if e.cfg.Kind == SGLang {
		_, name, found := strings.Cut(model, ":")
		if !found || name == "" {
			return "", false
		}
		return strings.Clone(name), e.serves(name)
	}
	if !e.serves(model) {
		return "", false
	}
	return strings.Clone(model), true
}

type adapterRequest struct {
	Name string `json:"lora_name"`
	Path string `json:"lora_path"`
}

func readAdapter(r *http.Request) (a adapterRequest, ok bool) {
	err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&a)
	return a, err == nil && a.Name != ""
}

// vllmAdapter loads or unloads an adapter as vLLM does where it is allowed to.
func (e *Engine) vllmAdapter(load bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a, ok := readAdapter(r)
		switch {
		case !ok || load && a.Path == "":
			e.writeError(w, r, &apiError{status: http.StatusBadRequest, kind: "InvalidUserInput", message: "Both 'lora_name' and 'lora_path' must be provided."})
		case load && !e.AddAdapter(a.Name, a.Path):
			e.writeError(w, r, &apiError{status: http.StatusBadRequest, kind: "InvalidUserInput", message: "The lora adapter '" + a.Name + "' has already been loaded."})
		case load:
			_, _ = io.WriteString(w, "Success: LoRA adapter '"+a.Name+"' added successfully.")
		case !e.RemoveAdapter(a.Name):
			e.writeError(w, r, &apiError{status: http.StatusNotFound, kind: "NotFoundError", message: "The lora adapter '" + a.Name + "' cannot be found."})
		default:
			_, _ = io.WriteString(w, "Success: LoRA adapter '"+a.Name+"' removed successfully.")
		}
	}
}

// sglangAdapter is the same of SGLang.
func (e *Engine) sglangAdapter(load bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a, ok := readAdapter(r)
		fault := ""
		switch {
		case !ok || load && a.Path == "":
			fault = "lora_name and lora_path are required"
		case load && !e.AddAdapter(a.Name, a.Path):
			fault = "LoRA with name " + a.Name + " already exists"
		case !load && !e.RemoveAdapter(a.Name):
			fault = "LoRA with name " + a.Name + " does not exist"
		}
		status, loaded := http.StatusOK, map[string]string{}
		if fault != "" {
			status = http.StatusBadRequest
		}
		for _, x := range e.listed() {
			loaded[x.name] = x.path
		}
		writeJSON(w, status, map[string]any{"success": fault == "", "error_message": fault, "loaded_adapters": loaded})
	}
}
