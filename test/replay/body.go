package replay

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"sync"

	"github.com/hearsay-llm/hearsay/test/traces"
)

// appendBody appends the request's JSON body, in the member order of common client libraries.
func appendBody(dst []byte, r *traces.Request, cfg *Config) []byte {
	if cfg.Endpoint == Completions {
		dst = append(dst, `{"prompt":`...)
		dst = r.AppendPrompt(dst)
	} else {
		dst = append(dst, `{"messages":`...)
		dst = r.AppendMessages(dst)
	}
	dst = append(dst, `,"model":`...)
	model, err := json.Marshal(cfg.Model)
	if err != nil { // a string always marshals
		model = []byte(`""`)
	}
	dst = append(dst, model...)
	dst = append(dst, `,"max_tokens":`...)
	dst = strconv.AppendInt(dst, int64(max(r.OutputTokens, 1)), 10)
	dst = append(dst, `,"stream":true,"stream_options":{"include_usage":true}`...)
	if cfg.IgnoreEOS {
		dst = append(dst, `,"ignore_eos":true`...)
	}
	if cfg.Endpoint == Chat && len(r.Tools) > 0 {
		dst = append(dst, `,"tools":`...)
		dst = r.AppendTools(dst)
	}
	return append(dst, '}')
}

// payload hands a body to the HTTP transport, again if it re-sends on another connection, and lets go of the bytes as early as it
// can: a response of minutes must not pin its prompt.
type payload struct {
	mu   sync.Mutex
	data []byte // nil once released; guarded by mu
}

var errReleased = errors.New("body was released")

// open returns a reader over the whole body.
func (p *payload) open() (io.ReadCloser, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.data == nil {
		return nil, errReleased
	}
	return &payloadReader{rest: p.data}, nil
}

// release gives up re-sending. Readers already open go on to their end.
func (p *payload) release() {
	p.mu.Lock()
	p.data = nil
	p.mu.Unlock()
}

// payloadReader is closed by the transport from another goroutine than the one that reads, sometimes during the read.
type payloadReader struct {
	mu   sync.Mutex
	rest []byte // guarded by mu; the bytes themselves never change
}

func (r *payloadReader) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rest) == 0 {
		r.rest = nil
		return 0, io.EOF
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *payloadReader) Close() error {
	r.mu.Lock()
	r.rest = nil
	r.mu.Unlock()
	return nil
}
