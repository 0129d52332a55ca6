package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"

	"github.com/hearsay-llm/hearsay/state"
)

// maxBody bounds what is read of an engine's answer, bytes. vLLM's /metrics is
// about 60 kB.
const maxBody = 8 << 20

// Reader reads replicas over HTTP. Safe for concurrent use.
type Reader struct {
	client *http.Client
	key    func(pool string) string

	mu    sync.Mutex
	kinds map[string]state.EngineKind // guarded by mu; by base URL
}

// NewReader returns a reader that sends requests with client, which sets the
// connection limits, and must not follow redirects to other hosts. key gives the
// credential for a pool's engines, or "".
func NewReader(client *http.Client, key func(pool string) string) *Reader {
	return &Reader{client: client, key: key, kinds: map[string]state.EngineKind{}}
}

// errStatus is an answer other than 200.
type errStatus int

func (e errStatus) Error() string { return fmt.Sprintf("engine answered status %d", int(e)) }

// Read asks r for its load within ctx. It always returns a reading of r: when the
// engine can't be read OK is false and Err says why in a few words. The caller
// stamps it.
func (rd *Reader) Read(ctx context.Context, r state.Replica) state.Reading {
	out := state.UnknownReading(r.ID)
	kind := r.Engine
	if kind == "" || kind == state.EngineAuto {
		k, err := rd.detect(ctx, r)
		if err != nil {
			out.Err = short(err)
			var st errStatus
			out.Loading = errors.As(err, &st) && int(st) == http.StatusServiceUnavailable
			out.Refused = errors.Is(err, syscall.ECONNREFUSED)
			return out
		}
		kind = k
	}
	out.Kind = kind
	var err error
	switch kind {
	case state.EngineVLLM:
		err = rd.readMetrics(ctx, r, &out, vllmMetrics)
	case state.EngineSGLang:
		err = rd.readSGLang(ctx, r, &out)
	case state.EngineLlamaCpp:
		err = rd.readLlamaCpp(ctx, r, &out)
	default: // commercial or generic: alive is all that can be known
		_, err = rd.get(ctx, r, "/v1/models")
	}
	if err != nil {
		out.Err = short(err)
		var st errStatus
		if errors.As(err, &st) {
			// It answered. 503 is how engines say "loading" or "sleeping"; any other
			// status means only that it can't be read.
			out.Loading = int(st) == http.StatusServiceUnavailable
		} else {
			out.Refused = errors.Is(err, syscall.ECONNREFUSED)
			rd.forget(r.URL)
		}
		return out
	}
	out.OK = true
	return out
}

// detect tells which kind of engine answers at r's URL, and remembers it.
func (rd *Reader) detect(ctx context.Context, r state.Replica) (state.EngineKind, error) {
	rd.mu.Lock()
	k, ok := rd.kinds[r.URL]
	rd.mu.Unlock()
	if ok {
		return k, nil
	}
	var last error
	for _, p := range []struct {
		kind state.EngineKind
		path string
	}{
		{state.EngineVLLM, "/version"},
		{state.EngineSGLang, "/server_info"},
		{state.EngineSGLang, "/get_server_info"},
		{state.EngineLlamaCpp, "/props"},
		{state.EngineOpenAI, "/v1/models"},
	} {
		_, err := rd.get(ctx, r, p.path)
		if err == nil {
			rd.mu.Lock()
			rd.kinds[r.URL] = p.kind
			rd.mu.Unlock()
			return p.kind, nil
		}
		var st errStatus
		if !errors.As(err, &st) || int(st) == http.StatusServiceUnavailable {
			return "", err // not there, or loading: nothing to learn from other paths
		}
		last = err
	}
	return "", last
}

func (rd *Reader) forget(url string) {
	rd.mu.Lock()
	delete(rd.kinds, url)
	rd.mu.Unlock()
}

// get fetches one path of r, whole and bounded.
func (rd *Reader) get(ctx context.Context, r state.Replica, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+path, nil)
	if err != nil {
		return nil, err
	}
	if k := rd.key(r.Pool); k != "" {
		req.Header.Set("Authorization", "Bearer "+k)
	}
	resp, err := rd.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errStatus(resp.StatusCode)
	}
	return body, nil
}

// short makes an error fit for a status line: one line, bounded, without the URL
// that net/http puts in front.
func short(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "timed out"
	}
	s := err.Error()
	if i := strings.LastIndex(s, "\": "); i >= 0 {
		s = s[i+3:]
	}
	return s[:min(len(s), 120)]
}
