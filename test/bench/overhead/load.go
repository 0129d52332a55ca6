package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/table"
)

// figures are what one load came to. Times are microseconds.
type figures struct {
	Requests int     `json:"requests"`
	Rate     float64 `json:"requests_per_s"`
	CPU      float64 `json:"cpu_us_per_request"`
	P50      float64 `json:"p50_us"` // of an answer that is no stream to its end, of a stream to its first chunk
	P99      float64 `json:"p99_us"`
	ChunkP50 float64 `json:"chunk_p50_us,omitempty"` // from the engine's sending to the client's receiving
	ChunkP99 float64 `json:"chunk_p99_us,omitempty"`
	Segments float64 `json:"segments_per_request"` // of data that the client received
	Writes   float64 `json:"writes_per_request"`   // of the proxy, to both sides; send is not counted
}

// load is what clients have noted together.
type load struct {
	mu       sync.Mutex
	took     []float64 // guarded by mu; us
	delays   []float64 // guarded by mu; us
	segments int64     // guarded by mu
	err      error     // guarded by mu; the first
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

// serial numbers all prompts of a run.
var serial atomic.Int64

// work sends requests over one connection, one for each time that comes. A request's
// latency counts from that time; from its sending where it is zero.
func (l *load) work(addr string, c *cell, due <-chan time.Time) {
	k, err := dial(addr, c)
	if err != nil {
		l.fail(err)
		return
	}
	defer func() { _ = k.Close() }()
	var took, delays []float64
	var r reply
	for from := range due {
		if err := k.do(serial.Add(1), &r); err != nil {
			l.fail(err)
			return
		}
		if from.IsZero() {
			from = r.begin
		}
		if c.Stream {
			took = append(took, us(r.first.Sub(from)))
		} else {
			took = append(took, us(r.end.Sub(from)))
		}
		for _, d := range r.delays {
			delays = append(delays, us(d))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, took...)
	l.delays = append(l.delays, delays...)
	l.segments += segments(k.TCPConn)
}

// run feeds times to clients until feed returns, and waits for their answers.
func (l *load) run(addr string, c *cell, conns int, feed func(due chan<- time.Time)) (figures, error) {
	due := make(chan time.Time, 1024)
	var all sync.WaitGroup
	begin := time.Now()
	for range conns {
		all.Go(func() { l.work(addr, c, due) })
	}
	feed(due)
	close(due)
	all.Wait()
	if l.err != nil {
		return figures{}, l.err
	}
	slices.Sort(l.took)
	slices.Sort(l.delays)
	n := float64(len(l.took))
	return figures{
		Requests: len(l.took), Rate: n / time.Since(begin).Seconds(),
		P50: table.Quantile(l.took, 0.5), P99: table.Quantile(l.took, 0.99),
		ChunkP50: table.Quantile(l.delays, 0.5), ChunkP99: table.Quantile(l.delays, 0.99),
		Segments: float64(l.segments) / n,
	}, nil
}

// closed sends n requests, each connection its next one when the last is answered.
func closed(ctx context.Context, c *cell, addr string, conns, n int) (figures, error) {
	l := &load{}
	return l.run(addr, c, conns, func(due chan<- time.Time) {
		for range n {
			select {
			case due <- time.Time{}:
			case <-ctx.Done():
				l.fail(ctx.Err())
				return
			}
			if l.failed() {
				return
			}
		}
	})
}

// open sends n requests at a rate, whether or not earlier ones have been answered.
// The times between two vary by half, alike for all.
func open(ctx context.Context, c *cell, addr string, conns, n int) (figures, error) {
	l := &load{}
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	return l.run(addr, c, conns, func(due chan<- time.Time) {
		at := time.Now().Add(10 * time.Millisecond) // for the connections
		for range n {
			at = at.Add(time.Duration((0.5 + rng.Float64()) / c.Rate * float64(time.Second)))
			sleepUntil(at)
			select {
			case due <- at:
			case <-ctx.Done():
				l.fail(ctx.Err())
				return
			}
			if l.failed() {
				return
			}
		}
	})
}

func (l *load) failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err != nil
}

// measure is one turn: both loads, after enough requests to warm what they use.
func measure(ctx context.Context, c *cell, s *subject) (shut, free figures, err error) {
	if _, err = closed(ctx, c, s.addr, c.Conns, max(c.Conns, c.Closed/10)); err != nil {
		return shut, free, err
	}
	count := func(send func() (figures, error)) (f figures, err error) {
		before, err := s.used()
		if err != nil {
			return f, err
		}
		if f, err = send(); err != nil {
			return f, err
		}
		after, err := s.used()
		n := float64(f.Requests)
		f.CPU, f.Writes = us(after.cpu-before.cpu)/n, float64(after.writes-before.writes)/n
		return f, err
	}
	if shut, err = count(func() (figures, error) { return closed(ctx, c, s.addr, c.Conns, c.Closed) }); err != nil {
		return shut, free, err
	}
	free, err = count(func() (figures, error) { return open(ctx, c, s.addr, c.Most, c.Open) })
	return shut, free, err
}
