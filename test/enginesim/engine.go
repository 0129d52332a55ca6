package enginesim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Engine runs a Core against package time and serves HTTP on top of it. Its
// methods may be called from any goroutine. Requests make progress only while
// Run (or Serve) runs.
type Engine struct {
	cfg    Config
	timing Timing
	epoch  time.Time // zero of the core's time
	kick   chan struct{}
	ranks  []*Engine // data-parallel ranks, itself first; nil where there is one

	handlers sync.WaitGroup // Add only under mu while not stopped
	answers  atomic.Int64   // numbers Anthropic's request ids
	kept     *responses     // of the whole process
	number   uint64         // of the engines made in this program

	mu      sync.Mutex // guards everything below
	core    *Core
	born    time.Time // start of the simulated process
	calls   map[*call]struct{}
	nextID  uint64
	stopped bool
	asleep  bool
	rec     recorder
	faults  faults
	stats   stats

	adapters []loraAdapter // served now
}

// New returns an engine with an empty cache that does nothing yet. It panics if
// cfg is not valid.
func New(cfg Config) *Engine {
	if err := cfg.Validate(); err != nil {
		panic(fmt.Sprintf("enginesim: %v", err))
	}
	timing, err := cfg.timing()
	if err != nil {
		panic(fmt.Sprintf("enginesim: %v", err))
	}
	now := time.Now()
	e := &Engine{
		cfg: cfg, timing: timing, epoch: now, born: now,
		kick: make(chan struct{}, 1), core: NewCore(cfg.core(timing)),
		calls: map[*call]struct{}{}, rec: recorder{limit: cfg.RecordLimit},
		faults: newFaults(), stats: newStats(), kept: &responses{}, number: made.Add(1), adapters: startAdapters(cfg.Adapters),
	}
	e.addRanks()
	return e
}

// made counts engines.
var made atomic.Uint64

// Config returns the configuration it was made with.
func (e *Engine) Config() Config { return e.cfg }

// Run drives the scheduler until ctx ends, then cuts what is still running.
func (e *Engine) Run(ctx context.Context) error {
	defer e.runSiblings(ctx)()
	defer e.stop()
	e.mu.Lock()
	e.stopped = false
	e.mu.Unlock()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		e.mu.Lock()
		now := e.advance()
		next, due := e.core.Next()
		e.mu.Unlock()
		var fire <-chan time.Time
		if due {
			timer.Reset(next - now)
			fire = timer.C
		}
		select {
		case <-fire:
		case <-e.kick:
		case <-ctx.Done():
			return nil
		}
	}
}

// Serve runs the engine and an HTTP server on ln until ctx ends, closes all
// connections and returns when every goroutine it started has ended. It closes
// ln, which may be of any kind, in memory for instance. An engine served again
// goes on with its cache; call Restart to make it a new process.
func (e *Engine) Serve(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	e.mu.Lock()
	e.stopped = false
	e.mu.Unlock()
	srv := &http.Server{
		Handler:     e.Handler(),
		IdleTimeout: e.cfg.KeepAlive,
		ErrorLog:    log.New(io.Discard, "", 0), // broken connections are what it is for
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = e.Run(ctx) })
	wg.Go(func() {
		<-ctx.Done()
		e.stop()
		_ = srv.Close()
	})
	err := srv.Serve(ln)
	cancel()
	wg.Wait()
	e.handlers.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve engine: %w", err)
}

// stop ends every call.
func (e *Engine) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = true
	e.killAll()
	e.faults.wake()
}

// advance brings the core up to the present and hands out its events. Locked.
func (e *Engine) advance() time.Duration {
	now := time.Now()
	factor := 1.0
	if f := e.faults.get(now, FaultSlow); f != nil {
		factor = f.Factor
	}
	e.core.SetFactor(factor)
	at := now.Sub(e.epoch)
	for _, ev := range e.core.Step(at) {
		e.deliver(ev)
	}
	return at
}

// wake makes Run look at the core again.
func (e *Engine) wake() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

func (e *Engine) at(d time.Duration) time.Time { return e.epoch.Add(d) }

// Load returns what the engine is busy with now.
func (e *Engine) Load() Load {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.advance()
	return e.core.Load()
}

// Totals returns the scheduler's counters since the last (simulated) restart.
func (e *Engine) Totals() Totals {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.advance()
	return e.core.Totals()
}

// Prompt is what one prompt of a request body comes to.
type Prompt struct {
	Tokens []uint32
	Hashes []uint64 // of its whole blocks, adapter and cache salt included
}

// Prompts renders the prompts of a request body as a POST to the path would have
// them, with the model's adapter and the body's cache_salt: what an all-knowing
// router or a test needs to ask CachedPrefix. It neither locks nor records.
func (e *Engine) Prompts(path string, body []byte) ([]Prompt, error) {
	of, ok := map[string]func() endpoint{chatPath: e.chat, textPath: e.completion, embeddingPath: e.embedding, messagesPath: e.messages, responsesPath: e.response}[path]
	if !ok {
		return nil, fmt.Errorf("no inference path %q", path)
	}
	ep := of()
	req, apiErr := ep.parse(body)
	if apiErr != nil {
		return nil, apiErr
	}
	ids, apiErr := ep.prompts(req)
	if apiErr != nil {
		return nil, apiErr
	}
	out := make([]Prompt, len(ids))
	for i, p := range ids {
		out[i] = Prompt{p, HashChain(nil, p, e.cfg.BlockTokens, chainSeed(req.adapter, req.salt))}
	}
	return out, nil
}

// CachedPrefix returns how many leading tokens of the prompt would be found in
// the cache now, without using them.
func (e *Engine) CachedPrefix(p Prompt) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.advance()
	return e.core.CachedPrefix(p.Hashes, len(p.Tokens))
}

// Record returns a copy of the record.
func (e *Engine) Record() Record {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.advance()
	for c := range e.calls {
		c.note()
	}
	return e.rec.snapshot()
}

// ResetRecord empties the record; requests in flight are no longer in it.
func (e *Engine) ResetRecord() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rec.reset()
}

// SetFault starts a fault at all ranks, or ends all with FaultNone.
func (e *Engine) SetFault(f Fault) error {
	if err := f.validate(); err != nil {
		return err
	}
	for _, s := range e.siblings() {
		if err := s.SetFault(f); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.wake()
	e.advance()
	now := time.Now()
	switch f.Kind {
	case FaultNone:
		e.faults.clear()
		e.advance()
	case FaultWipe:
		e.core.ClearCache()
	case FaultRestart:
		e.restart(now)
		if f.Duration > 0 {
			e.faults.set(now, Fault{Kind: FaultLoading, Duration: f.Duration})
		}
	default:
		e.faults.set(now, f)
	}
	return nil
}

// Faults returns the active faults.
func (e *Engine) Faults() []Fault {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.faults.list(time.Now())
}

// Restart is SetFault with FaultRestart: a new process at the same address.
func (e *Engine) Restart() { _ = e.SetFault(Fault{Kind: FaultRestart}) }

// AbortRequests ends the requests whose rid begins with the prefix, as SGLang's
// /abort_request does, and returns how many. Their connections are closed.
func (e *Engine) AbortRequests(ridPrefix string) int {
	n := 0
	for _, s := range e.siblings() {
		n += s.AbortRequests(ridPrefix)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.advance()
	for c := range e.calls {
		if c.rec.RID != "" && strings.HasPrefix(c.rec.RID, ridPrefix) {
			c.end(OutcomeAborted)
			c.signal()
			n++
		}
	}
	return n
}

// ResetPrefixCache clears the cache unless blocks are in use, as vLLM does. It
// reports whether it did.
func (e *Engine) ResetPrefixCache() bool {
	done := true
	for _, s := range e.siblings() {
		done = s.ResetPrefixCache() && done
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.advance()
	if e.core.Load().UsedBlocks > 0 {
		return false
	}
	e.core.ClearCache()
	return done
}

// SetAsleep pauses the scheduler and clears the cache, or resumes it. Requests
// that come meanwhile wait.
func (e *Engine) SetAsleep(asleep bool) {
	for _, s := range e.siblings() {
		s.SetAsleep(asleep)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.wake()
	now := e.advance()
	e.asleep = asleep
	e.core.SetPaused(now, asleep)
	if asleep {
		e.core.ClearCache()
	}
}

// Asleep reports whether it sleeps.
func (e *Engine) Asleep() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asleep
}

// restart makes the engine a new process. Locked.
func (e *Engine) restart(now time.Time) {
	e.killAll()
	e.kept.clear()
	e.core = NewCore(e.cfg.core(e.timing))
	e.born, e.asleep, e.stats = now, false, newStats()
	e.adapters = startAdapters(e.cfg.Adapters)
}

// killAll ends every call; their handlers cut the connections. Locked.
func (e *Engine) killAll() {
	for c := range e.calls {
		c.end(OutcomeKilled)
		c.signal()
	}
}
