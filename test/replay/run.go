package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/test/traces"
)

// Run replays the source and blocks until every answer has ended, or ctx has: then it sends nothing more, closes what is in
// flight and still reports what was measured, with Report.Interrupted set and no error. An error means that the configuration is
// bad (no report) or that the source broke (with a report of what was sent before). No goroutine is left behind.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	cfg.fill()
	client, err := newClient(&cfg)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	defer client.close()
	r := &runner{
		cfg:    &cfg,
		client: client,
		rng:    rand.New(rand.NewPCG(cfg.Seed, 0x7265706c6179)),
		slots:  make(chan struct{}, cfg.Concurrency),
		start:  time.Now(),
	}
	r.book = newBook(&cfg, r.start)

	stopProgress := make(chan struct{})
	var progress sync.WaitGroup
	if cfg.Progress != nil || cfg.Observe != nil {
		progress.Go(func() { showProgress(&cfg, r.book, stopProgress) })
	}
	err = r.send(ctx)
	r.book.allSent()
	r.inFlight.Wait()
	end := time.Now()
	close(stopProgress)
	progress.Wait()

	report := r.book.report(end)
	report.Interrupted = ctx.Err() != nil
	if err != nil {
		return report, fmt.Errorf("replay: read the trace after %d requests: %w", report.Sent, err)
	}
	return report, nil
}

type runner struct {
	cfg      *Config
	client   *client
	rng      *rand.Rand // the sender's
	slots    chan struct{}
	inFlight sync.WaitGroup
	start    time.Time
	book     *book
	turn     int // of round robin, the sender's
}

// send starts every request when it is due. It returns nil at the source's end or ctx's.
func (r *runner) send(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		req, err := r.cfg.Source.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		due := r.start.Add(time.Duration(float64(req.At) / r.cfg.Speed))
		if wait := time.Until(due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case r.slots <- struct{}{}:
		default:
			r.book.full()
			select {
			case r.slots <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		target := r.target()
		r.book.begin()
		r.inFlight.Go(func() {
			r.exchange(ctx, req, target, due)
			<-r.slots
		})
	}
}

// heldLeast tells a turn that waited for its session from one that found the answer there.
const heldLeast = 5 * time.Millisecond

func (r *runner) target() int {
	if !r.cfg.RoundRobin {
		return r.rng.IntN(len(r.cfg.Targets))
	}
	t := r.turn
	r.turn = (r.turn + 1) % len(r.cfg.Targets)
	return t
}

// exchange sends one request, after the answer it replies to where the session carries real answers, and books its outcome.
func (r *runner) exchange(ctx context.Context, req *traces.Request, target int, due time.Time) {
	ready := due
	if req.Conversation != nil && req.Turn > 0 {
		if err := req.Conversation.Wait(ctx, req.Turn); err != nil {
			r.book.end(req, target, due, due, outcome{kind: Cancelled})
			return
		}
		if now := time.Now(); now.Sub(due) > heldLeast {
			ready = now
		}
	}
	o := r.client.do(ctx, req, target)
	req.Conversation.Finish(req.Turn, o.answer)
	r.book.end(req, target, due, ready, o)
}
