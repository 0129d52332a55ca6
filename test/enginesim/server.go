package enginesim

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Handler returns the HTTP side. Mounted on a foreign server it works as under
// Serve, but closing idle connections is that server's business.
func (e *Engine) Handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(method, path string, h http.HandlerFunc) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if method != "" && r.Method != method && (method != http.MethodGet || r.Method != http.MethodHead) {
				w.Header().Set("Allow", method)
				e.refuse(w, r, http.StatusMethodNotAllowed, "Method Not Allowed")
				return
			}
			h(w, r)
		})
	}
	if e.cfg.Kind == Anthropic {
		e.anthropicPaths(handle)
	} else {
		e.openAIPaths(handle)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { e.refuse(w, r, http.StatusNotFound, "Not Found") })
	sim := http.NewServeMux()
	sim.HandleFunc("POST /sim/fault", e.postFault)
	sim.HandleFunc("GET /sim/fault", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, e.Faults()) })
	sim.HandleFunc("GET /sim/record", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, e.Record()) })
	sim.HandleFunc("POST /sim/record/reset", func(w http.ResponseWriter, _ *http.Request) {
		e.ResetRecord()
		writeJSON(w, http.StatusOK, struct{}{})
	})
	mux.Handle("/sim/", sim)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		if e.stopped {
			e.mu.Unlock()
			cut(w, false)
		}
		e.handlers.Add(1)
		loading := e.faults.get(time.Now(), FaultLoading) != nil
		e.mu.Unlock()
		defer e.handlers.Done()
		e.identify(w)
		if loading && !isSim(r) {
			e.writeError(w, r, &apiError{status: http.StatusServiceUnavailable, kind: "unavailable_error", message: "Loading model"})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// openAIPaths are those of the engines, with what each kind has of its own.
func (e *Engine) openAIPaths(handle route) {
	handle(http.MethodPost, chatPath, e.ranked(func(e *Engine) http.HandlerFunc { return e.inference(e.chat) }))
	handle(http.MethodPost, textPath, e.ranked(func(e *Engine) http.HandlerFunc { return e.inference(e.completion) }))
	handle(http.MethodPost, embeddingPath, e.ranked(func(e *Engine) http.HandlerFunc { return e.inference(e.embedding) }))
	handle(http.MethodGet, modelsPath, e.models)
	handle(http.MethodGet, "/health", e.health)
	handle(http.MethodGet, "/metrics", e.metrics)
	handle(http.MethodPost, "/tokenize", e.tokenize)
	switch e.cfg.Kind {
	case VLLM:
		e.vllmPaths(handle)
		e.messagesPaths(handle)
		e.responsesPaths(handle)
	case SGLang:
		e.sglangPaths(handle)
		e.messagesPaths(handle)
		e.responsesPaths(handle)
	case LlamaCpp:
		e.llamaPaths(handle)
	}
}

func isSim(r *http.Request) bool { return len(r.URL.Path) >= 5 && r.URL.Path[:5] == "/sim/" }

// cut ends the connection without ending the response: with a TCP reset, or by
// closing it. What was written and flushed before has been sent. It does not
// return.
func cut(w http.ResponseWriter, reset bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
	panic(http.ErrAbortHandler)
}

// take claims a use of the first active fault among kinds, or returns nil.
func (e *Engine) take(kinds ...FaultKind) *activeFault {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for _, k := range kinds {
		if f := e.faults.use(now, k); f != nil {
			return f
		}
	}
	return nil
}

// hold blocks until the fault is over, the client has gone or the engine stops.
// A fault with a Count is over when all are ended, else also when it is replaced.
func (e *Engine) hold(ctx context.Context, f *activeFault) {
	for {
		e.mu.Lock()
		changed := e.faults.changed
		now := time.Now()
		over := e.stopped || e.faults.clears != f.age || !f.until.IsZero() && !now.Before(f.until)
		if f.Count == 0 {
			over = over || e.faults.get(now, f.Kind) != f
		}
		e.mu.Unlock()
		if over {
			return
		}
		var expire <-chan time.Time
		if !f.until.IsZero() {
			expire = time.After(f.until.Sub(now))
		}
		select {
		case <-ctx.Done():
			return
		case <-expire:
		case <-changed:
		}
	}
}

func (e *Engine) postFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&f)
	switch {
	case errors.Is(err, io.EOF):
		err = errors.New("no fault in the body")
	case err == nil:
		err = e.SetFault(f)
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error() + "; give one such as " + FaultExample})
		return
	}
	writeJSON(w, http.StatusOK, e.Faults())
}

func (e *Engine) health(w http.ResponseWriter, _ *http.Request) {
	if f := e.take(FaultHealth); f != nil {
		w.WriteHeader(f.Status)
		return
	}
	if e.cfg.Kind == LlamaCpp {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (e *Engine) metrics(w http.ResponseWriter, r *http.Request) {
	if f := e.take(FaultHangMetrics); f != nil {
		e.hold(r.Context(), f)
		if r.Context().Err() != nil {
			return
		}
	}
	if f := e.take(FaultMetricsStatus); f != nil {
		http.Error(w, http.StatusText(f.Status), f.Status)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(e.exposition())
}

func (e *Engine) models(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	created := e.born.Unix()
	e.mu.Unlock()
	owner := map[Kind]string{VLLM: "vllm", SGLang: "sglang", LlamaCpp: "llamacpp"}[e.cfg.Kind]
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
		Root    string `json:"root"`
		Parent  any    `json:"parent"`
		MaxLen  any    `json:"max_model_len"`
	}
	list := []model{{e.cfg.Model, "model", created, owner, e.cfg.Model, nil, e.cfg.contextLen()}}
	for _, a := range e.listed() {
		list = append(list, model{a.name, "model", created, owner, a.path, e.cfg.Model, nil})
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": list})
}

// tokenize answers {"prompt": text} or {"messages": [...]} with the token ids.
func (e *Engine) tokenize(w http.ResponseWriter, r *http.Request) {
	body, err := e.readBody(w, r)
	if err != nil {
		e.writeError(w, r, err)
		return
	}
	req, apiErr := e.parse(body)
	if apiErr != nil {
		e.writeError(w, r, apiErr)
		return
	}
	var ids []uint32
	if req.messages.Exists() {
		var err error
		if ids, err = appendChat(nil, req.messages, req.tools, e.cfg.MediaTokens); err != nil {
			e.writeError(w, r, badRequest("%v", err))
			return
		}
	} else {
		ids = textPrompt(req.prompt.String())
	}
	writeJSON(w, http.StatusOK, map[string]any{"count": len(ids), "max_model_len": e.cfg.contextLen(), "tokens": ids})
}

func (e *Engine) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *apiError) {
	if r.ContentLength > e.cfg.MaxBodyBytes {
		return nil, &apiError{status: http.StatusRequestEntityTooLarge, kind: "BadRequestError", message: "Request body too large"}
	}
	var body []byte
	var err error
	if r.ContentLength >= 0 {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, body)
	} else {
		body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, e.cfg.MaxBodyBytes))
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &apiError{status: http.StatusRequestEntityTooLarge, kind: "BadRequestError", message: "Request body too large"}
	case err != nil:
		return nil, badRequest("There was an error parsing the body")
	}
	return body, nil
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b := mustJSON(v)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// mustJSON marshals a value of our own, which never fails.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
