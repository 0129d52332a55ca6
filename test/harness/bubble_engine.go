package harness

import (
	"context"
	"fmt"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// Engine is one simulated engine of a Bubble. Its cache and record outlive Kill and
// Start; a start is a new process with an empty cache.
type Engine struct {
	*enginesim.Engine
	ID   state.ReplicaID // as routers know it
	Name string          // of its host

	b      *Bubble
	host   *simnet.Host
	cancel context.CancelFunc // nil while it does not run
	done   chan struct{}
}

const enginePort = ":8000"

func (b *Bubble) addEngine(i int) {
	b.T.Helper()
	cfg := b.cfg.Engine
	if b.cfg.EachEngine != nil {
		b.cfg.EachEngine(i, &cfg)
	}
	name := fmt.Sprintf("e%d", i)
	e := &Engine{Engine: enginesim.New(cfg), ID: state.ReplicaID(name + enginePort), Name: name, b: b, host: b.Net.Host(name)}
	b.engines = append(b.engines, e)
	e.serve()
}

// URL is what routers' files call it.
func (e *Engine) URL() string { return "http://" + e.Name + enginePort }

// Running reports whether its process is there.
func (e *Engine) Running() bool { return e.cancel != nil }

func (e *Engine) serve() {
	e.b.T.Helper()
	ln, err := e.host.Listen("tcp", enginePort)
	if err != nil {
		e.b.T.Fatalf("%s: %v", e.Name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	e.cancel, e.done = cancel, done
	go func() {
		defer close(done)
		if err := e.Serve(ctx, ln); err != nil && ctx.Err() == nil {
			e.b.T.Errorf("%s: %v", e.Name, err)
		}
	}()
}

// Kill ends the engine's process: connections are reset, dials are refused.
func (e *Engine) Kill() {
	if e.cancel == nil {
		return
	}
	cancel := e.cancel
	e.cancel = nil
	cancel() // first, since the crash ends its server with an error
	e.host.Crash()
	<-e.done
}

// Start starts a killed engine again, as a new process at the same address.
func (e *Engine) Start() {
	e.b.T.Helper()
	if e.cancel != nil {
		e.b.T.Fatalf("%s runs", e.Name)
	}
	e.host.Restart()
	e.Restart()
	e.serve()
}

func (e *Engine) stop() {
	if e.cancel != nil {
		e.cancel()
		e.cancel = nil
	}
	<-e.done
}

// Fault starts a fault.
func (e *Engine) Fault(f enginesim.Fault) {
	e.b.T.Helper()
	if err := e.SetFault(f); err != nil {
		e.b.T.Fatalf("%s: %v", e.Name, err)
	}
}

// Find is the engine that routers know by an id, or nil.
func (b *Bubble) Find(id state.ReplicaID) *Engine {
	for _, e := range b.engines {
		if e.ID == id {
			return e
		}
	}
	return nil
}

// Served finds the record of a request by its id, and the engine that has it last.
func (b *Bubble) Served(requestID string) (*Engine, enginesim.RequestRecord) {
	b.T.Helper()
	var at *Engine
	var rec enginesim.RequestRecord
	for _, e := range b.engines {
		for _, r := range e.Record().Requests {
			if r.XRequestID == requestID && (at == nil || r.Arrival.After(rec.Arrival)) {
				at, rec = e, r
			}
		}
	}
	if at == nil {
		b.T.Fatalf("no engine has request %s", requestID)
	}
	return at, rec
}
