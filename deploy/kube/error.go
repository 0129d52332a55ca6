package kube

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Error is an answer of the API server that is none that was asked for.
type Error struct {
	Code       int
	Text       string        // the server's, for people
	RetryAfter time.Duration // that the server asks for; 0: it does not
	needs      string        // the right that the call takes, for people
}

func (e *Error) Error() string {
	switch e.Code {
	case http.StatusUnauthorized:
		return "the API server does not take this router's credentials (401)"
	case http.StatusForbidden:
		return "the API server forbids it (403), the account needs " + e.needs + ": " + e.Text
	}
	return fmt.Sprintf("the API server answers %d: %s", e.Code, e.Text)
}

// Is reports whether err is an answer of that status.
func Is(err error, code int) bool {
	var k *Error
	return errors.As(err, &k) && k.Code == code
}

// maxRetryAfter bounds what a server may ask for.
const maxRetryAfter = 5 * time.Minute

// refused reads an answer that is not 200.
func refused(r *Request, resp *http.Response) *Error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(b, &status) != nil || status.Message == "" {
		status.Message = http.StatusText(resp.StatusCode)
	}
	e := &Error{Code: resp.StatusCode, Text: Clip(status.Message), needs: right(r.Method, r.Path, r.Query)}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		e.RetryAfter = min(time.Duration(min(n, 1<<20))*time.Second, maxRetryAfter)
	}
	return e
}

// right says which right a call takes, as rules of a Role have it. Who lists an object
// kind follows it, too, so list and watch are named together.
func right(method, path string, query url.Values) string {
	p := strings.Split(strings.Trim(path, "/"), "/")
	group, where := "", ""
	switch {
	case len(p) > 2 && p[0] == "api":
		p = p[2:]
	case len(p) > 3 && p[0] == "apis":
		group, p = p[1], p[3:]
	default:
		return "access to " + path
	}
	if len(p) > 2 && p[0] == "namespaces" {
		where, p = " in namespace "+p[1], p[2:]
	}
	verb := "get"
	switch {
	case method == http.MethodPatch:
		verb = "patch"
	case method == http.MethodPut:
		verb = "update"
	case len(p) == 1 && query.Get("watch") == "true":
		verb = "watch"
	case len(p) == 1:
		verb = "list"
	}
	what := p[0]
	if len(p) > 2 {
		what += "/" + p[2]
	}
	if group != "" {
		what += " of " + group
	}
	return verb + " on " + what + where
}

// Unreachable is a call that got no answer, or not all of it.
type Unreachable struct{ Text string }

func (e *Unreachable) Error() string { return e.Text }

// unreachable puts a failed connection in words that are the same each time.
func unreachable(ctx context.Context, err error) *Unreachable {
	var cert *tls.CertificateVerificationError
	var op *net.OpError
	switch {
	case ctx.Err() != nil || os.IsTimeout(err):
		return &Unreachable{"the API server does not answer in time"}
	case errors.As(err, &cert):
		return &Unreachable{"the API server's certificate is not trusted: " + Clip(cert.Err.Error())}
	case errors.As(err, &op) && op.Op == "dial":
		return &Unreachable{"the API server can't be reached: " + Clip(op.Err.Error())}
	}
	return &Unreachable{"the connection to the API server ended"}
}

// Decode reads a JSON body of at most so many bytes into v, and closes it.
func Decode(ctx context.Context, body io.ReadCloser, most int64, v any) error {
	defer func() { _ = body.Close() }()
	if err := json.NewDecoder(io.LimitReader(body, most)).Decode(v); err != nil {
		if ctx.Err() != nil {
			return unreachable(ctx, err)
		}
		return &Unreachable{"what the API server answers is cut off, or no JSON"}
	}
	return nil
}

// maxText bounds what is shown of foreign texts, bytes.
const maxText = 200

// Clip makes a foreign text short enough to be shown.
func Clip(s string) string {
	if len(s) > maxText {
		return s[:maxText] + "..."
	}
	return s
}
