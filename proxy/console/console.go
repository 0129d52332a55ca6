// Package console serves operators: the admin API as JSON, metrics, probes and
// profiles, on a listener of its own that no client path leads to.
//
// It reads the node through the small interfaces below and changes nothing but
// through them. Any router answers reads from its own knowledge; writes are
// committed facts and go to the leader wherever they arrive. It uses net/http:
// it is not on the request path, and the metrics and profile handlers of the
// standard tools plug in as they are.
package console

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// Node is what the console asks of the router it belongs to.
type Node interface {
	View() *state.View
	Info() Info
	Ready() (ok bool, reasons []string)
	Members() []Member
	Figures() Figures
	// Hindrance is what keeps a target from being reached now, for people; empty
	// when nothing does, or this router does not lead.
	Hindrance(k state.TargetKey) string
	// Refusals are the plans to scale that were refused in this term, the newest last;
	// none unless this router leads.
	Refusals() []Refusal
	Sketch(id state.ReplicaID) Sketch
	Speed(id state.ReplicaID) Speed
	// Queue is what waits for a pool of the View here, and what was refused.
	Queue(v *state.View, pool *state.PoolView) Queue
	// Refused is what was refused in the last minute before its pool was known, by
	// reason; nil: nothing.
	Refused() map[string]int64
	// Partings says where the latest prompts of a pool part.
	Partings(pool string) []prefix.Parting
	Config() any // as loaded, without secrets; marshalled as JSON
}

// Writer commits edits of the facts through the leader, wherever it is.
type Writer interface {
	// Commit returns once the edit is committed and this router's View has it, or
	// can't be waited for any longer (behind). A repeat of the same id is harmless.
	Commit(ctx context.Context, c state.Command) (index uint64, behind bool, err error)
}

// Explainer says where a request would go, or where a past one went and why.
type Explainer interface {
	// Explain answers with something that marshals as JSON; nothing is sent.
	// It is taken for a request of a tenant, "" for none.
	Explain(ctx context.Context, tenant, path string, body []byte) (any, error)
	// Past finds a recent pick by request id.
	Past(id string) (any, bool)
}

// Operator acts on this router alone.
type Operator interface {
	Drain(id state.ReplicaID, on bool, reason string)
	Flush(id state.ReplicaID)
	LogLevel(level string) error
	// Replica checks a URL and makes the replica that it would be in a pool.
	Replica(pool, url string) (state.Replica, error)
}

// Typed outcomes of writes. Writers wrap them.
var (
	// ErrNoLeader says that nothing can be committed now, and nothing was.
	ErrNoLeader = errors.New("no leader")
	// ErrUnknownOutcome says that the commit may or may not come: repeat it under
	// the same Idempotency-Key.
	ErrUnknownOutcome = errors.New("outcome unknown")
)

// Config of a Server.
type Config struct {
	Listener net.Listener
	Token    string // empty: none asked; only for loopback listeners
	Metrics  http.Handler
	Care     Care    // nil: its paths are not served
	Events   *Events // what others publish, too; nil: only what is seen from here is told
	Log      zerolog.Logger
}

// Server is the admin listener.
type Server struct {
	cfg     Config
	node    Node
	write   Writer
	explain Explainer
	operate Operator
	http    *http.Server
	routes  []route
	events  *Events

	looking sync.Mutex
	seen    *picture // guarded by looking; nil: nobody reads events
}

// New returns a server. It starts nothing.
func New(cfg Config, node Node, w Writer, e Explainer, o Operator) *Server {
	s := &Server{cfg: cfg, node: node, write: w, explain: e, operate: o, events: cfg.Events}
	if s.events == nil {
		s.events = NewEvents()
	}
	s.routes = s.table()
	mux := http.NewServeMux()
	for _, r := range s.routes {
		h := r.handler
		if !r.open {
			h = s.authorised(h)
		}
		mux.HandleFunc(r.method+" "+r.path, h)
	}
	mux.Handle("GET /metrics", cfg.Metrics)
	mux.HandleFunc("GET /debug/pprof/", s.authorised(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/profile", s.authorised(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/trace", s.authorised(pprof.Trace))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, "not_found", "no such path: see /admin/v1/openapi.json")
	})
	s.http = &http.Server{
		Handler:           http.MaxBytesHandler(mux, 64<<20),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          nil,
	}
	return s
}

// Run serves until ctx ends, then ends the streams of events and lets running requests
// finish for a second.
func (s *Server) Run(ctx context.Context) error {
	stopped := make(chan struct{})
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var watched sync.WaitGroup
	watched.Go(func() { s.watch(watching) })
	defer watched.Wait()
	defer stop()
	go func() {
		defer close(stopped)
		<-ctx.Done()
		s.events.close()
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if s.http.Shutdown(bound) != nil {
			_ = s.http.Close()
		}
	}()
	err := s.http.Serve(s.cfg.Listener)
	if errors.Is(err, http.ErrServerClosed) {
		<-stopped
		return nil
	}
	return err
}
