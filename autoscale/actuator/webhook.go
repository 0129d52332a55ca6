package actuator

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	webhookTimeout = 5 * time.Second // of one call
	maxAnswer      = 1 << 20         // bytes of an answer
	firstRest      = time.Second     // after a call that failed, no other is made for so long
	maxRest        = 30 * time.Second
	maxRetryAfter  = time.Minute // whatever a receiver asks for
)

// Headers of a call, beside the signature's.
const (
	HeaderEpoch    = "X-Hearsay-Epoch"
	HeaderDecision = "X-Hearsay-Decision"
)

// WebhookConfig is what a Webhook needs.
type WebhookConfig struct {
	// Pool begins the ids of its replicas: webhook:POOL:. Required.
	Pool string
	// URL is posted to what is wanted, and asked for what there is. Required, http or
	// https, without credentials.
	URL string
	// Secrets sign each call, and are asked for at each; several at a time while one
	// follows another. Required.
	Secrets func() ([][]byte, error)
	// Timeout bounds one call. Default 5 s.
	Timeout time.Duration
	TLS     *tls.Config // nil: the system's authorities
	// Dial connects; nil: over the network.
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	Engine state.EngineKind // of its replicas
	// Replica makes a replica's URL what routers use, or says why it may not be used.
	// Default state.NormalURL.
	Replica func(url string) (string, error)
}

// Webhook tells a receiver over HTTP how many replicas there should be, and asks it
// which there are. It signs what it says (Standard Webhooks 1.0, symmetric keys) and
// follows no redirect. After a failure it lets the receiver rest; until then its methods
// return the failure. It keeps nothing that another leader's would need: the receiver
// holds the fence. Safe for concurrent use.
type Webhook struct {
	cfg   WebhookConfig
	shown string // the URL without its query, for people
	http  *http.Client

	mu    sync.Mutex
	until time.Time // guarded by mu; no call before
	fails int       // guarded by mu; in a row
	last  error     // guarded by mu; the last of them
}

// NewWebhook checks the configuration and calls nobody.
func NewWebhook(cfg WebhookConfig) (*Webhook, error) {
	u, err := url.Parse(cfg.URL)
	switch {
	case cfg.Pool == "" || cfg.Secrets == nil:
		return nil, errors.New("webhook actuator: pool or secrets are missing")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("webhook actuator: the URL is not one such as https://scaler.example/hearsay")
	case u.User != nil:
		return nil, errors.New("webhook actuator: the URL must not hold credentials: calls are signed")
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, webhookTimeout)
	if cfg.Replica == nil {
		cfg.Replica = state.NormalURL
	}
	u.RawQuery, u.Fragment = "", ""
	return &Webhook{
		cfg: cfg, shown: u.String(),
		http: &http.Client{
			Transport: &http.Transport{
				DialContext: cfg.Dial, TLSClientConfig: cfg.TLS, DisableKeepAlives: true,
				MaxResponseHeaderBytes: 64 << 10,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func (h *Webhook) prefix() string { return "webhook:" + h.cfg.Pool + ":" }

// List asks the receiver what it runs for a target.
func (h *Webhook) List(ctx context.Context, k state.TargetKey) (state.Actual, error) {
	u, err := url.Parse(h.cfg.URL)
	if err != nil {
		return state.Actual{}, err
	}
	q := u.Query()
	q.Set("pool", k.Pool)
	q.Set("role", string(k.Role))
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return state.Actual{}, err
	}
	a, err := h.call(req, "list-"+rand.Text(), nil)
	switch {
	case err != nil:
		return state.Actual{}, err
	case a.Instances == nil:
		return state.Actual{}, h.failed(fmt.Errorf("webhook %s: the answer to GET has no instances: an empty list says that there are none", h.shown), 0)
	}
	return h.actual(a, k), nil
}

// Ensure tells the receiver what is wanted. Each call for a decision has the decision's
// id, whoever leads.
func (h *Webhook) Ensure(ctx context.Context, d state.Desired) (state.Actual, error) {
	body, err := json.Marshal(h.wish(&d))
	if err != nil {
		return state.Actual{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return state.Actual{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(HeaderEpoch, strconv.FormatUint(d.Epoch, 10))
	req.Header.Set(HeaderDecision, strconv.FormatUint(d.Decision, 10))
	a, err := h.call(req, d.ID, body)
	var c *conflict
	switch {
	case errors.As(err, &c) && (c.Epoch > d.Epoch || c.Decision > d.Decision):
		return state.Actual{}, fmt.Errorf("webhook %s: epoch %d, decision %d, and the receiver has seen epoch %d, decision %d: %w",
			h.shown, d.Epoch, d.Decision, c.Epoch, c.Decision, state.ErrFenced)
	case c != nil:
		return state.Actual{}, h.failed(fmt.Errorf("webhook %s: answered 409 without an epoch or a decision later than this one's (epoch %d, decision %d)",
			h.shown, d.Epoch, d.Decision), 0)
	case err != nil:
		return state.Actual{}, err
	case a.Epoch > d.Epoch: // a receiver that tells of its fence and does not mind it
		return state.Actual{}, fmt.Errorf("webhook %s: epoch %d, and the receiver has seen %d: %w", h.shown, d.Epoch, a.Epoch, state.ErrFenced)
	case a.Instances == nil:
		return h.List(ctx, d.Target)
	}
	return h.actual(a, d.Target), nil
}

// conflict is an answer 409: whoever sent it has seen something later.
type conflict struct{ Epoch, Decision uint64 }

func (*conflict) Error() string { return "fenced" }

// call makes one signed call and judges its answer. A receiver that failed is not called
// before it has rested.
func (h *Webhook) call(req *http.Request, id string, body []byte) (*answer, error) {
	if err := h.resting(); err != nil {
		return nil, err
	}
	secrets, err := h.cfg.Secrets()
	if err != nil {
		return nil, fmt.Errorf("webhook %s: %w", h.shown, err)
	}
	signed(req, id, time.Now(), body, secrets)
	ctx, cancel := context.WithTimeout(req.Context(), h.cfg.Timeout)
	defer cancel()
	res, err := h.http.Do(req.WithContext(ctx))
	if err != nil {
		return nil, h.unanswered(req.Context(), ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return nil, h.unanswered(req.Context(), ctx, err)
	}
	return h.judge(res, text)
}

// judge tells apart what may be repeated, what has to be mended, and what was refused
// because it is of the past.
func (h *Webhook) judge(res *http.Response, text []byte) (*answer, error) {
	code := res.StatusCode
	switch {
	case len(text) > maxAnswer:
		return nil, h.failed(fmt.Errorf("webhook %s: the answer is longer than %d bytes", h.shown, maxAnswer), 0)
	case code >= 200 && code < 300:
		a, err := parseAnswer(text)
		if err != nil {
			return nil, h.failed(fmt.Errorf("webhook %s: the answer can't be used: %w", h.shown, err), 0)
		}
		h.succeeded()
		return a, nil
	case code == http.StatusConflict && res.Request.Method == http.MethodPost:
		var c conflict
		_ = json.Unmarshal(text, &c) // without numbers it says nothing
		return nil, &c
	case code >= 300 && code < 400:
		return nil, h.failed(fmt.Errorf("webhook %s: answered %d, a redirect, which is not followed: give the address that answers", h.shown, code), 0)
	case code == http.StatusTooManyRequests || code >= 500:
		return nil, h.failed(fmt.Errorf("webhook %s: answered %d, tried again later%s", h.shown, code, said(text)), retryAfter(res.Header))
	}
	return nil, h.failed(fmt.Errorf("webhook %s: refused with %d%s", h.shown, code, said(text)), 0)
}

// unanswered says why no answer came. A call that was given up with its term says
// nothing of the receiver.
func (h *Webhook) unanswered(outer, ctx context.Context, err error) error {
	if outer.Err() != nil {
		return outer.Err()
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer within %v", h.cfg.Timeout)
	}
	return h.failed(fmt.Errorf("webhook %s: %w", h.shown, err), 0)
}

// resting is the last failure while the receiver is let alone after it.
func (h *Webhook) resting() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Now().Before(h.until) {
		return h.last
	}
	return nil
}

// failed notes a failure, after which the receiver rests for so long, or for longer
// the more there were in a row.
func (h *Webhook) failed(err error, rest time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if rest == 0 {
		rest = min(maxRest, firstRest<<min(h.fails, 10))
	}
	h.until, h.last = time.Now().Add(rest), err
	h.fails++
	return err
}

func (h *Webhook) succeeded() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fails, h.last = 0, nil
}

// retryAfter is the wait that an answer asks for, bounded; 0: none.
func retryAfter(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if s, err := strconv.Atoi(v); err == nil && s > 0 {
		return min(time.Duration(min(s, 3600))*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, min(time.Until(at), maxRetryAfter))
	}
	return 0
}
