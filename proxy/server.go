package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/proxy/gateway"
)

// Server serves clients on its listeners. Build it with New, run it once with Run.
type Server struct {
	cfg     Config
	limits  Limits
	core    *Core
	log     zerolog.Logger
	metrics *metrics
	http    *fasthttp.Server
	up      *connPools
	watch   watcher
	keys    keys
	budget  budget
	bodies  bodyPool
	aborts  atomic.Int32 // calls under way that tell replicas to drop a request
	meets   meetings
	gate    *gateway.Gate

	draining atomic.Bool
	stopping chan struct{}  // closed as draining is set
	serving  sync.WaitGroup // connections and what they need

	mu    sync.Mutex
	conns map[*clientConn]struct{} // guarded by mu
	calls map[*call]struct{}       // guarded by mu
	dead  error                    // guarded by mu; set when calls are refused
	polls bool                     // guarded by mu; the watcher runs
}

// New builds a server. It starts nothing and accepts nothing yet.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	cfg.Limits.fill()
	if cfg.Dial == nil {
		d := Dialer()
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	if cfg.Gate == nil {
		cfg.Gate = gateway.New(gateway.Config{})
	}
	if cfg.Getenv == nil {
		cfg.Getenv = func(string) string { return "" }
	}
	s := &Server{
		cfg: cfg, limits: cfg.Limits,
		log:      cfg.Logger.With().Str("component", "proxy").Logger(),
		metrics:  newMetrics(cfg.Registry),
		gate:     cfg.Gate,
		keys:     keys{getenv: cfg.Getenv},
		budget:   budget{limit: int64(cfg.Limits.BodyBudget)},
		stopping: make(chan struct{}),
		conns:    make(map[*clientConn]struct{}),
		calls:    make(map[*call]struct{}),
	}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(inflightByKey{s.gate})
	}
	for _, p := range cfg.Core.Store.View().Pools {
		s.metrics.know(&p.Spec)
	}
	s.core = newCore(cfg.Core, s.limits.Picks, s.metrics)
	s.core.panicked = s.panicked
	s.up = newConnPools(&s.cfg)
	s.http = &fasthttp.Server{
		Handler:        s.handle,
		ErrorHandler:   s.badHead,
		ExpectHandler:  s.expect,
		ReadBufferSize: s.limits.HeaderBytes,
		HeaderReceived: noBody,
		IdleTimeout:    s.limits.Idle,
		Concurrency:    1 << 30, // counted here, before a goroutine exists
		Logger:         discardLogger{},
		ConnState: func(c net.Conn, st fasthttp.ConnState) {
			if cc, ok := c.(*clientConn); ok {
				switch st {
				case fasthttp.StateActive:
					cc.active()
				case fasthttp.StateIdle:
					cc.idle()
				}
			}
		},
		NoDefaultServerHeader:        true,
		NoDefaultDate:                cfg.NoDate,
		NoDefaultContentType:         true,
		DisablePreParseMultipartForm: true,
		SecureErrorLogMessage:        true,
		ReduceMemoryUsage:            true,
	}
	return s, nil
}

// Picks is the memory of past picks, by request id.
func (s *Server) Picks() *Picks { return s.core.picks }

// Core is the part that admits, picks and accounts.
func (s *Server) Core() *Core { return s.core }

// Run serves until ctx ends; then it says that it is not ready, stops accepting,
// lets requests under way end for as long as Limits.Drain, gives up the rest, and
// returns. It leaves no goroutine behind and closes the listeners. It may be
// called once.
func (s *Server) Run(ctx context.Context) error {
	w, err := newWatcher()
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	s.watch = w
	defer w.close()
	// What connections need outlives ctx: they drain first.
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	failed := make(chan error, len(s.cfg.Listeners))
	var accepting, helpers sync.WaitGroup
	for _, ln := range s.cfg.Listeners {
		accepting.Go(func() { failed <- s.accept(inner, ln, &helpers) })
	}
	helpers.Go(func() { s.sweep(inner) })
	helpers.Go(func() { s.pumps(inner) })

	select {
	case <-ctx.Done():
		err = nil
	case err = <-failed:
	}
	s.draining.Store(true)
	close(s.stopping)
	for _, ln := range s.cfg.Listeners {
		_ = ln.Close()
	}
	accepting.Wait()
	s.drain()
	s.serving.Wait()
	stop()
	helpers.Wait()
	s.up.close()
	return err
}

// accept takes connections from one listener until it is closed.
func (s *Server) accept(ctx context.Context, ln net.Listener, helpers *sync.WaitGroup) error {
	pause := time.Duration(0)
	for {
		c, err := ln.Accept()
		if err == nil {
			pause = 0
			s.admit(ctx, c, helpers)
			continue
		}
		if s.draining.Load() || errors.Is(err, net.ErrClosed) {
			return nil
		}
		// Out of descriptors, mostly: others will be given back.
		pause = min(time.Second, max(5*time.Millisecond, 2*pause))
		s.log.Warn().Err(err).Msg("accept failed")
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// admit gives an accepted connection its goroutine, or refuses it.
func (s *Server) admit(ctx context.Context, c net.Conn, helpers *sync.WaitGroup) {
	now := time.Now()
	cc := &clientConn{Conn: c, limits: &s.limits, budget: &s.budget, bodies: &s.bodies, accepted: now, tls: socket(c) != c}
	s.mu.Lock()
	full := len(s.conns) >= s.limits.Conns
	if !full {
		s.conns[cc] = struct{}{}
	}
	s.mu.Unlock()
	if full {
		s.metrics.refusedConns.Inc()
		s.refuse(c)
		return
	}
	cc.notify, cc.hang.raw = unwrap(c)
	if raw := cc.hang.raw; raw != nil {
		_ = raw.Control(func(fd uintptr) { setUserTimeout(fd, s.limits.Unacked) })
		if b, ok := socket(c).(interface{ SetWriteBuffer(int) error }); ok {
			_ = b.SetWriteBuffer(s.limits.ClientBuffer)
		}
		s.mu.Lock()
		if !s.polls {
			s.polls = true
			helpers.Go(func() {
				if err := s.watch.run(ctx); err != nil {
					s.log.Error().Err(err).Msg("disconnect watcher stopped")
				}
			})
		}
		s.mu.Unlock()
		if err := s.watch.add(&cc.hang); err == nil {
			cc.watch = s.watch
		}
	}
	_ = cc.SetReadDeadline(now.Add(s.limits.ReadStall))
	s.serving.Go(func() { s.serve(cc) })
}

// serve runs one connection to its end.
func (s *Server) serve(c *clientConn) {
	defer func() {
		if p := recover(); p != nil {
			s.panicked(p)
		}
		_ = c.Close()
		c.freeBody()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	deepen()
	_ = s.http.ServeConn(c)
}

// deepen makes the goroutine's stack as large as serving a request takes, 8 KB, while
// there is next to nothing on it: it would double twice else, and be copied each time.
//
//go:noinline
func deepen() {
	var room [5 << 10]byte
	touch(&room)
}

//go:noinline
func touch(*[5 << 10]byte) {}

// refuse answers a connection that is one too many. A fresh socket's buffer takes
// the few bytes without blocking; TLS would have to be agreed on first, which is not
// waited for.
func (s *Server) refuse(c net.Conn) {
	if under := socket(c); under != c {
		_ = under.Close()
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	e := &api.Error{Status: 503, Type: "server_error", Code: "too_many_connections", Message: "The router has too many connections. Try again later."}
	body := e.AppendOpenAI(nil)
	head := "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Type: application/json\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\n\r\n"
	_, _ = c.Write(append([]byte(head), body...))
	_ = c.Close()
}

// drain waits for requests under way, closing connections as they fall idle, and
// gives up those that are still running at the limit.
func (s *Server) drain() {
	end := time.Now().Add(s.limits.Drain)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for cut := false; ; {
		now := time.Now()
		if !cut && !now.Before(end) {
			cut = true
			s.cancelAll(errShutdown)
			end = now.Add(time.Second) // for the farewells to leave
		}
		s.mu.Lock()
		left := len(s.conns)
		for c := range s.conns {
			if cut && !now.Before(end) {
				_ = c.Close()
			} else {
				c.closeIdle(now)
			}
		}
		s.mu.Unlock()
		if left == 0 {
			return
		}
		<-tick.C
	}
}

// register makes a call known to shutdown; it fails once calls are given up.
func (s *Server) register(c *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead != nil {
		return s.dead
	}
	s.calls[c] = struct{}{}
	return nil
}

func (s *Server) unregister(c *call) {
	s.mu.Lock()
	delete(s.calls, c)
	s.mu.Unlock()
}

func (s *Server) cancelAll(cause error) {
	s.mu.Lock()
	s.dead = cause
	calls := make([]*call, 0, len(s.calls))
	for c := range s.calls {
		calls = append(calls, c)
	}
	s.mu.Unlock()
	for _, c := range calls {
		c.cancel(cause)
	}
}

// sweep closes upstream connections that have been idle too long, gives up memory that
// is not used, and drops the series of pools that are gone.
func (s *Server) sweep(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	known := make(map[string]bool)
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			v := s.core.store.View()
			s.up.sweep(v, now)
			s.bodies.age()
			for name := range known {
				known[name] = false
			}
			for _, p := range v.Pools {
				if _, old := known[p.Spec.Name]; !old {
					s.metrics.know(&p.Spec)
				}
				known[p.Spec.Name] = true
			}
			for name, listed := range known {
				if !listed {
					s.metrics.forget(name)
					s.core.queues.forget(name)
					delete(known, name)
				}
			}
		}
	}
}

// badHead answers a request whose head could not be read: whatever stands in it is
// not believed.
func (s *Server) badHead(ctx *fasthttp.RequestCtx, err error) {
	s.badRequest(ctx, requestID(nil), err)
}

// badRequest answers a request that could not be read. The connection is closed
// after it.
func (s *Server) badRequest(ctx *fasthttp.RequestCtx, id string, err error) {
	over := false
	if c, ok := ctx.Conn().(*clientConn); ok {
		c.answering()
		c.linger = true
		over = c.over || errors.Is(err, errBudget)
		c.freeBody() // nothing of it is kept
	}
	var small *fasthttp.ErrSmallBuffer
	var timeout net.Error
	var e *api.Error
	switch {
	case over:
		e = s.overBudget()
	case errors.As(err, &small):
		e = api.HeadersTooLarge()
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		e = api.BodyTooLarge(int64(s.limits.BodyBytes))
	case errors.As(err, &timeout) && timeout.Timeout():
		e = api.BodyTimeout()
	default:
		e = badFraming("The request is not valid HTTP.")
	}
	s.metrics.requests.WithLabelValues(unknownPool, strconv.Itoa(e.Status)).Inc()
	s.writeError(ctx, id, e)
	ctx.SetConnectionClose()
}

func badFraming(message string) *api.Error {
	e := api.BadRequest("", message)
	e.Code, e.Reason = "bad_http", "bad_http"
	return e
}

// panicked contains a panic: it is counted and logged without the request.
func (s *Server) panicked(p any) {
	s.metrics.panics.Inc()
	s.log.Error().Str("panic", fmt.Sprint(p)).Bytes("stack", stack()).Msg("panic contained")
}

// discardLogger drops the HTTP library's own messages: they may quote requests.
type discardLogger struct{}

func (discardLogger) Printf(string, ...any) {}
