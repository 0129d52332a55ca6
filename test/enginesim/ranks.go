package enginesim

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/tidwall/gjson"
)

// A process with several data-parallel ranks is one HTTP server before engines that
// schedule, cache and record each for itself. The first of them is the server's
// Engine itself. Faults and restarts are the process's and meet all.

// Rank is one data-parallel rank, from 0, which is e itself. Its load, cache, totals
// and record are its own.
func (e *Engine) Rank(i int) *Engine {
	if i == 0 {
		return e
	}
	return e.ranks[i]
}

func (e *Engine) addRanks() {
	if e.cfg.DPRanks == 1 {
		return
	}
	e.ranks = append(e.ranks, e)
	for i := 1; i < e.cfg.DPRanks; i++ {
		cfg := e.cfg
		cfg.DPRanks, cfg.EngineLabel = 1, strconv.Itoa(i)
		s := New(cfg)
		s.kept = e.kept
		e.ranks = append(e.ranks, s)
	}
}

// siblings are the ranks behind e's server, without e.
func (e *Engine) siblings() []*Engine {
	if len(e.ranks) == 0 {
		return nil
	}
	return e.ranks[1:]
}

// all are the ranks behind e's server.
func (e *Engine) all() []*Engine {
	if len(e.ranks) == 0 {
		return []*Engine{e}
	}
	return e.ranks
}

// runSiblings runs them beside e; the result waits for their end.
func (e *Engine) runSiblings(ctx context.Context) (wait func()) {
	var wg sync.WaitGroup
	for _, s := range e.siblings() {
		wg.Go(func() { _ = s.Run(ctx) })
	}
	return wg.Wait
}

// ranked sends a request to the rank it asks for, else to the least loaded one.
func (e *Engine) ranked(of func(*Engine) http.HandlerFunc) http.HandlerFunc {
	if len(e.ranks) == 0 {
		return of(e)
	}
	var handlers []http.HandlerFunc
	for _, s := range e.ranks {
		handlers = append(handlers, of(s))
	}
	return func(w http.ResponseWriter, r *http.Request) {
		want := r.Header.Get("X-Data-Parallel-Rank")
		if e.cfg.Kind == SGLang {
			body, err := e.readBody(w, r)
			if err != nil {
				e.writeError(w, r, err)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			if want = bodyRank(body); want == "" { // older releases know no header
				want = r.Header.Get("X-Data-Parallel-Rank")
			}
		}
		if want == "" {
			handlers[e.lightest()](w, r)
			return
		}
		rank, err := strconv.Atoi(want)
		if err != nil || rank < 0 || rank >= len(handlers) {
			e.writeError(w, r, badRequest("data_parallel_rank %s is out of range [0, %d).", want, len(handlers)))
			return
		}
		handlers[rank](w, r)
	}
}

// bodyRank is SGLang's data_parallel_rank, the last one as in Python, or "".
func bodyRank(body []byte) (rank string) {
	gjson.ParseBytes(body).ForEach(func(k, v gjson.Result) bool {
		if k.Str == "data_parallel_rank" && v.Type != gjson.Null {
			rank = v.Raw
		}
		return true
	})
	return rank
}

func (e *Engine) lightest() (best int) {
	least := -1
	for i, s := range e.ranks {
		if l := s.Load(); least < 0 || l.Running+l.Waiting < least {
			best, least = i, l.Running+l.Waiting
		}
	}
	return best
}

// rankState is what one rank has to tell.
type rankState struct {
	label    string
	load     Load
	totals   Totals
	stats    stats
	running  []string // adapters
	waiting  []string
	capacity int // KV tokens
}

// states reads all ranks. It locks each.
func (e *Engine) states() []rankState {
	var out []rankState
	for _, s := range e.all() {
		s.mu.Lock()
		s.advance()
		r := rankState{
			label: s.cfg.EngineLabel, load: s.core.Load(), totals: s.core.Totals(), stats: s.stats.clone(), capacity: s.cfg.KVTokens,
		}
		r.running, r.waiting = s.core.Adapters()
		s.mu.Unlock()
		out = append(out, r)
	}
	return out
}
