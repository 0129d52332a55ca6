package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// Causes of failure, as the table has them.
const (
	causeRefused  = "refused"   // nobody listens there
	causeDial     = "no dial"   // no connection within dialWithin
	causeHungUp   = "hung up"   // closed or reset before an answer's head
	causeBroken   = "broken"    // the stream ended with an error event or without its end
	causeTooLong  = "too long"  // not over within requestWithin
	causeNoRouter = "no router" // all were tried and refused
)

const (
	dialWithin    = 2 * time.Second
	requestWithin = time.Minute
	pause         = 50 * time.Millisecond // of a client between its requests
)

// outcome is what became of a request.
type outcome struct {
	at      time.Time // when it was sent
	end     time.Time
	router  string // that it was sent to, the last one tried
	replica string // that answered; empty: not known
	cause   string // of its failure; empty: a whole answer
}

// clients send requests one after another, each to the routers in turn, over connections that are kept. They hold
// no request back for a router that failed the last one, and send none again, but for balanced clients: those stand
// for clients behind a balancer that works on connections. They send only to routers whose /readyz, asked twice a
// second at the client port, last said 200, and where a connection is refused the request goes to the next router; a
// request that was written to a connection is never sent again.
type clients struct {
	routers []*harness.Proc
	http    *http.Client

	balanced atomic.Bool
	mu       sync.Mutex
	ready    map[string]bool // guarded by mu
	list     []outcome       // guarded by mu
}

func newClients(routers []*harness.Proc, place *harness.Place) *clients {
	return &clients{routers: routers, ready: map[string]bool{}, http: &http.Client{Transport: &http.Transport{
		DialContext:         (&bounded{place}).dial,
		MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute,
	}}}
}

// run sends until ctx ends, and waits for the answers that are under way.
func (c *clients) run(ctx context.Context, n int) {
	var wg sync.WaitGroup
	wg.Go(func() { c.probe(ctx) })
	for i := range n {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(7, uint64(i)))
			for k := 0; ctx.Err() == nil; k++ {
				c.one(i+k, rng)
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	wg.Wait()
	c.http.CloseIdleConnections()
}

// probe is the balancer's look at the routers.
func (c *clients) probe(ctx context.Context) {
	for ctx.Err() == nil {
		for _, r := range c.routers {
			ok := c.isReady(ctx, r)
			c.mu.Lock()
			c.ready[r.Name] = ok
			c.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (c *clients) isReady(ctx context.Context, r *harness.Proc) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.API+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode == http.StatusOK
}

// one is one request and what becomes of it.
func (c *clients) one(turn int, rng *rand.Rand) {
	body := chatBody(fmt.Sprint("subject ", rng.IntN(12)), 500, fmt.Sprint("Question ", rng.IntN(1_000_000)), 20+rng.IntN(40))
	o := outcome{at: time.Now()}
	for try := range c.routers {
		r := c.routers[(turn+try)%len(c.routers)]
		if c.balanced.Load() {
			c.mu.Lock()
			ok := c.ready[r.Name]
			c.mu.Unlock()
			if !ok {
				o.router, o.cause = r.Name, causeNoRouter
				continue
			}
		}
		o.router = r.Name
		o.replica, o.cause = c.ask(r, body)
		if !c.balanced.Load() || o.cause != causeRefused {
			break
		}
	}
	o.end = time.Now()
	c.mu.Lock()
	c.list = append(c.list, o)
	c.mu.Unlock()
}

// ask sends a chat to a router and reads the answer to its end.
func (c *clients) ask(r *harness.Proc, body string) (replica, cause string) {
	ctx, cancel := context.WithTimeout(context.Background(), requestWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.API+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return "", err.Error()
	}
	req.GetBody = nil // never sent again
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Hearsay-Debug", "1")
	resp, err := c.http.Do(req)
	if err != nil {
		return "", causeOf(err)
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.Header.Get("X-Hearsay-Replica"), verdict(resp.StatusCode, resp.Body)
}

// causeOf says why there was no answer.
func causeOf(err error) string {
	var dial *dialError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return causeRefused
	case errors.As(err, &dial):
		return causeDial
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return causeTooLong
	}
	return causeHungUp
}

// verdict reads an answer, and says what was wrong with it: nothing where a stream came to its end.
func verdict(status int, body io.Reader) string {
	if status != http.StatusOK {
		_, _ = io.Copy(io.Discard, body)
		return fmt.Sprint("status ", status)
	}
	in := bufio.NewReader(body)
	for done := false; ; {
		line, err := in.ReadString('\n')
		switch {
		case strings.HasPrefix(line, "data: [DONE]"):
			done = true
		case strings.HasPrefix(line, `data: {"error"`), strings.HasPrefix(line, "event: error"):
			return causeBroken
		}
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return causeTooLong
		case err != nil && (!errors.Is(err, io.EOF) || !done):
			return causeBroken
		case err != nil:
			return ""
		}
	}
}

// between are the requests that were under way in a span of time.
func (c *clients) between(from, to time.Time) (out []outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.list {
		if o.end.After(from) && o.at.Before(to) {
			out = append(out, o)
		}
	}
	return out
}

// chatBody is a streamed chat behind a long system prompt that depends on seed alone.
func chatBody(seed string, repeat int, question string, tokens int) string {
	system := strings.Repeat("All of "+seed+" is told here. ", repeat/8+1)
	return fmt.Sprintf(`{"model":%q,"stream":true,"max_tokens":%d,"messages":[{"role":"system","content":%q},{"role":"user","content":%q}]}`,
		model, tokens, system, question)
}
