package replay

import (
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/test/traces"
)

// sample is what is kept of one request: some 200 bytes each, so a million requests take 200 MB. Times are wall-clock.
type sample struct {
	at      time.Duration // due, in trace time
	target  int
	kind    Kind
	begun   bool          // it was sent; a turn cancelled before that has no times
	sent    time.Duration // since the run's start
	end     time.Duration // since the run's start
	late    time.Duration // from ready to sent
	held    time.Duration // from due until the answer it replies to was there
	ttft    time.Duration // 0 without a piece of an answer
	tpot    time.Duration // 0 with fewer than two tokens
	usage   usage
	output  int // tokens by usage, else events
	replica string

	predictedKnown bool
	predicted      int
}

// book keeps the samples and the running sums. Its methods may be called from any goroutine.
type book struct {
	cfg   *Config
	start time.Time

	mu        sync.Mutex // guards all below
	samples   []sample
	sent      int
	blocked   int // sends that found no free slot
	sending   bool
	errors    int
	cancelled int
	prompt    int64
	cached    int64
	cacheNum  int // requests whose cached tokens are known
	ttft      histogram
	examples  map[Kind]string
}

func newBook(cfg *Config, start time.Time) *book {
	return &book{cfg: cfg, start: start, sending: true, examples: make(map[Kind]string)}
}

func (b *book) begin() {
	b.mu.Lock()
	b.sent++
	b.mu.Unlock()
}

func (b *book) full() {
	b.mu.Lock()
	b.blocked++
	b.mu.Unlock()
}

func (b *book) allSent() {
	b.mu.Lock()
	b.sending = false
	b.mu.Unlock()
}

// end books an outcome. Ready is when the request could go: its due time, or when the answer it replies to came after that.
func (b *book) end(req *traces.Request, target int, due, ready time.Time, o outcome) {
	s := sample{
		at: req.At, target: target, kind: o.kind, held: ready.Sub(due), usage: o.usage, output: o.usage.output,
		replica: o.replica, predictedKnown: o.predictedKnown, predicted: o.predicted,
	}
	if !o.sent.IsZero() {
		s.begun = true
		s.sent, s.end, s.late = o.sent.Sub(b.start), o.end.Sub(b.start), max(o.sent.Sub(ready), 0)
	}
	if !o.usage.known {
		s.output = o.pieces
	}
	if o.pieces > 0 {
		s.ttft = o.first.Sub(o.sent)
		if s.output > 1 {
			s.tpot = o.last.Sub(o.first) / time.Duration(s.output-1)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.samples = append(b.samples, s)
	switch o.kind {
	case OK:
		b.ttft.add(s.ttft.Seconds())
	case Cancelled:
		b.cancelled++
	default:
		b.errors++
		if b.examples[o.kind] == "" {
			b.examples[o.kind] = o.message
		}
	}
	if s.usage.known {
		b.prompt += int64(s.usage.prompt)
		if s.usage.cachedKnown {
			b.cached += int64(s.usage.cached)
			b.cacheNum++
		}
	}
}

// Snapshot is how far a replay is.
type Snapshot struct {
	Elapsed time.Duration // wall-clock
	Sent    int           // requests begun
	Done    int           // requests ended, in whatever way
	Errors  int           // of those, neither ok nor cancelled
	// Unfinished is how many of those were cancelled when the replay was stopped.
	Unfinished int
	InFlight   int
	Sending    bool     // there is more to send
	TTFT       float64  // running median in the engine's seconds, within 5 %
	HitRate    *float64 // cached over prompt tokens so far; nil while no engine reported cached tokens
	// ETA is the estimated wall-clock time until the last request is sent; 0 when unknown or past.
	ETA time.Duration
}

func (b *book) snapshot(now time.Time) Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Snapshot{
		Elapsed: now.Sub(b.start), Sent: b.sent, Done: len(b.samples), Errors: b.errors, Unfinished: b.cancelled,
		InFlight: b.sent - len(b.samples), Sending: b.sending, TTFT: b.ttft.median() * b.cfg.Speed,
	}
	if b.cacheNum > 0 {
		s.HitRate = ratio(b.cached, b.prompt)
	}
	if !b.sending {
		return s
	}
	switch e := b.cfg.Expect; {
	case e.Duration > 0:
		s.ETA = time.Duration(float64(e.Duration)/b.cfg.Speed) - s.Elapsed
	case e.Requests > 0 && b.sent > 0:
		s.ETA = time.Duration(float64(s.Elapsed) * float64(e.Requests-b.sent) / float64(b.sent))
	}
	s.ETA = max(s.ETA, 0)
	return s
}

func ratio(part, whole int64) *float64 {
	if whole <= 0 {
		return nil
	}
	r := float64(part) / float64(whole)
	return &r
}
