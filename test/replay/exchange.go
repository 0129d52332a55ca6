package replay

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/test/traces"
)

// The headers of hearsay's that the client sends and reads.
const (
	headerDebug   = "X-Hearsay-Debug"
	headerReplica = "X-Hearsay-Replica"
	headerMatched = "X-Hearsay-Matched-Tokens"
	headerSession = "X-Session-Id"
)

// client sends single requests. Its methods may be called from any goroutine.
type client struct {
	cfg     *Config
	urls    []string // by target
	header  http.Header
	http    *http.Transport
	readers sync.Pool // of *bufio.Reader
}

const (
	eventBufferBytes = 8 << 10
	errorBodyBytes   = 4 << 10
	messageBytes     = 200 // of an error, kept as an example
	// idleTimeout stays below the 5 s after which common servers close idle connections.
	idleTimeout = 4 * time.Second
)

func newClient(cfg *Config) (*client, error) {
	c := &client{cfg: cfg, header: http.Header{
		"Content-Type": {"application/json"},
		"Accept":       {"text/event-stream"},
		"User-Agent":   {"hearsay-replay"},
	}}
	for _, t := range cfg.Targets {
		u, err := endpointURL(t, cfg.Endpoint)
		if err != nil {
			return nil, err
		}
		c.urls = append(c.urls, u)
	}
	if cfg.APIKey != "" {
		c.header.Set("Authorization", "Bearer "+cfg.APIKey)
	}
	if cfg.Debug {
		c.header.Set(headerDebug, "1")
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // a connection for each request in flight, whatever the target offers
	c.http = &http.Transport{
		Protocols:           protocols,
		DialContext:         cfg.DialContext,
		DisableCompression:  true,
		MaxIdleConnsPerHost: cfg.Concurrency,
		IdleConnTimeout:     idleTimeout,
		TLSHandshakeTimeout: 10 * time.Second,
		WriteBufferSize:     32 << 10,
		ReadBufferSize:      4 << 10,
	}
	c.readers.New = func() any { return bufio.NewReaderSize(nil, eventBufferBytes) }
	return c, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// outcome is what became of one request. Times are wall-clock, zero where there was no such event.
type outcome struct {
	kind                   Kind
	message                string // of the error, shortened
	sent, first, last, end time.Time
	pieces                 int
	usage                  usage
	replica                string // as the router named it
	predictedKnown         bool
	predicted              int // tokens the router expected to be cached
	answer                 string
}

// do sends one request to a target and reads its answer to the end.
func (c *client) do(ctx context.Context, r *traces.Request, target int) (o outcome) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, errTimeout)
	defer cancel()
	body := &payload{data: appendBody(make([]byte, 0, r.SizeBytes()+512), r, c.cfg)}
	o.sent = time.Now()
	defer func() { o.end = time.Now() }()
	req, err := c.request(ctx, r, target, body)
	if err != nil {
		o.fail(Connect, err.Error())
		return o
	}
	resp, err := c.http.RoundTrip(req)
	body.release()
	if err != nil {
		o.fail(transportKind(ctx, err, false), err.Error())
		return o
	}
	defer resp.Body.Close()
	o.readHeader(resp.Header)
	if resp.StatusCode != http.StatusOK {
		o.fail(statusKind(resp.StatusCode), readError(resp.Body))
		return o
	}
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != "text/event-stream" {
		o.fail(NotStream, fmt.Sprintf("content type is %q", resp.Header.Get("Content-Type")))
		return o
	}
	c.readStream(ctx, resp.Body, &o, r.Conversation != nil)
	return o
}

func (c *client) request(ctx context.Context, r *traces.Request, target int, body *payload) (*http.Request, error) {
	reader, err := body.open()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.urls[target], reader)
	if err != nil {
		return nil, err
	}
	req.ContentLength = int64(len(body.data))
	req.GetBody = body.open
	req.Header = c.header
	if c.cfg.SendSession && r.Session != 0 {
		req.Header = c.header.Clone()
		req.Header.Set(headerSession, "replay-"+strconv.FormatUint(r.Session, 10))
	}
	return req, nil
}

func (c *client) readStream(ctx context.Context, body io.Reader, o *outcome, wantText bool) {
	in := c.readers.Get().(*bufio.Reader)
	in.Reset(body)
	var s stream
	err := s.read(in, wantText)
	in.Reset(nil)
	c.readers.Put(in)
	o.first, o.last, o.pieces, o.usage, o.answer = s.first, s.last, s.pieces, s.usage, string(s.text)
	switch {
	case s.failed:
		o.fail(StreamError, s.failure)
	case err != nil && !s.done:
		o.fail(transportKind(ctx, err, true), err.Error())
	case !s.done:
		o.fail(Truncated, "the stream ended without [DONE]")
	case s.pieces == 0:
		o.fail(Empty, "the stream held no piece of an answer")
	default:
		o.kind = OK
	}
}

func (o *outcome) fail(kind Kind, message string) {
	o.kind = kind
	o.message = message[:min(len(message), messageBytes)]
}

func (o *outcome) readHeader(h http.Header) {
	o.replica = h.Get(headerReplica)
	if n, err := strconv.Atoi(h.Get(headerMatched)); err == nil && n >= 0 {
		o.predictedKnown, o.predicted = true, n
	}
}

// readError takes an error body's message and leaves the connection fit for the next request if the body is short.
func readError(body io.Reader) string {
	data, _ := io.ReadAll(io.LimitReader(body, errorBodyBytes)) // the status is known; a broken body adds nothing
	if message := errorMessage(data); message != "" {
		return message
	}
	return string(bytes.TrimSpace(data))
}
