package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/test/traces"
)

// Source yields the requests to send, in order of their due time; io.EOF ends it. The sources of test/traces are such.
type Source interface {
	Next() (*traces.Request, error)
}

// Endpoint is the API a request is sent to.
type Endpoint string

// The endpoints.
const (
	Chat        Endpoint = "chat"        // /v1/chat/completions
	Completions Endpoint = "completions" // /v1/completions
)

func (e Endpoint) path() string {
	if e == Completions {
		return "/v1/completions"
	}
	return "/v1/chat/completions"
}

// SLO is what a request must meet to count as good. 0 means no bound.
type SLO struct {
	TTFT time.Duration // in the engine's time
	TPOT time.Duration // in the engine's time
}

// Expect is what is known of the source beforehand; it serves the progress line's estimate only. Zero fields mean unknown.
type Expect struct {
	Requests int
	Duration time.Duration // due time of the last request
}

// Config says what to replay, where to and how. Targets, Model and Source are required.
type Config struct {
	Targets    []string // base URLs of routers, or host:port, with or without /v1; each request goes to one of them
	RoundRobin bool     // targets in turn; otherwise each is drawn at random from Seed
	Model      string
	Source     Source
	Endpoint   Endpoint // "" means Chat
	Seed       uint64   // draws targets

	// Speed divides the trace's times and multiplies the measured ones; see the package comment. 0 means 1.
	Speed float64
	// Concurrency bounds the requests in flight; a request due beyond it waits, and is late. 0 means 2,048.
	Concurrency int
	// Timeout bounds one request from send to end, in wall-clock time. 0 means 10 minutes.
	Timeout time.Duration
	// Warmup leaves requests due before it (trace time) out of every figure but Report.Sent.
	Warmup time.Duration
	SLO    SLO

	APIKey      string // sent as bearer token
	Debug       bool   // asks routers for pick headers, for figures per replica and of predicted hits
	SendSession bool   // sends x-session-id for requests of a session
	IgnoreEOS   bool   // asks for exactly the trace's output tokens, where the engine knows ignore_eos
	Name        string // of the trace, for the report
	Expect      Expect
	Progress    io.Writer // where a line of progress is written every 5 s; nil means nowhere
	// Observe is called from one goroutine with every line of progress, or four times a second without Progress, and at the
	// end. nil means not.
	Observe func(Snapshot)

	// DialContext replaces the dialer, for tests. nil means TCP.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	defaultConcurrency = 2048
	defaultTimeout     = 10 * time.Minute
)

func (c *Config) fill() {
	if c.Endpoint == "" {
		c.Endpoint = Chat
	}
	if c.Speed == 0 {
		c.Speed = 1
	}
	if c.Concurrency == 0 {
		c.Concurrency = defaultConcurrency
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
}

// Validate reports all faults at once. Zero values that have a default are valid.
func (c Config) Validate() error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	fault(len(c.Targets) == 0, "target: no URL")
	for _, t := range c.Targets {
		_, err := endpointURL(t, Chat)
		fault(err != nil, "%w", err)
	}
	fault(c.Model == "", "model: empty")
	fault(c.Source == nil, "no source")
	fault(c.Endpoint != "" && c.Endpoint != Chat && c.Endpoint != Completions, "endpoint %q is neither %s nor %s", c.Endpoint, Chat, Completions)
	fault(c.Speed != 0 && !(c.Speed >= 1e-3 && c.Speed <= 1e6), "speed: %v is not 0.001 to 1000000", c.Speed)
	fault(c.Concurrency < 0, "concurrency: %d is not 0 or more", c.Concurrency)
	fault(c.Timeout < 0, "timeout: %v is not 0 or more", c.Timeout)
	fault(c.Warmup < 0, "warmup: %v is not 0 or more", c.Warmup)
	fault(c.SLO.TTFT < 0, "slo_ttft: %v is not 0 or more", c.SLO.TTFT)
	fault(c.SLO.TPOT < 0, "slo_tpot: %v is not 0 or more", c.SLO.TPOT)
	return errors.Join(errs...)
}

// endpointURL is where requests for a target go. A target without a scheme is
// host:port, and speaks HTTP.
func endpointURL(target string, e Endpoint) (string, error) {
	given, bare := target, !strings.Contains(target, "://")
	switch {
	case strings.HasPrefix(target, ":"): // a port of this machine
		target = "http://127.0.0.1" + target
	case bare:
		target = "http://" + target
	}
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || bare && u.Port() == "" {
		return "", fmt.Errorf("target: %q is neither a URL such as http://127.0.0.1:8080 nor host:port", given)
	}
	base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimRight(target, "/"), "/v1"), "/")
	return base + e.path(), nil
}
