package main

import (
	"bytes"
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
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// admin is a client of one router's admin API.
type admin struct {
	server, token string
	named         func() string // what gave the server: its flag or variable
	output        outputFlag
}

// defaultServer is where a router's admin API is unless it was told otherwise.
const defaultServer = "http://127.0.0.1:8081"

// addFlags gives a command the flags that every admin command has.
func (a *admin) addFlags(cmd *cobra.Command) {
	server := os.Getenv("HEARSAY_SERVER")
	if server == "" {
		server = defaultServer
	}
	a.named = func() string {
		if cmd.Flags().Changed("server") {
			return "--server"
		}
		return "HEARSAY_SERVER"
	}
	cmd.Flags().StringVar(&a.server, "server", server, "admin URL, or host:port, of the router to ask, or to write through (env HEARSAY_SERVER)")
	cmd.Flags().StringVar(&a.token, "token", os.Getenv("HEARSAY_TOKEN"), "admin token (env HEARSAY_TOKEN)")
	cmd.Flags().Lookup("token").DefValue = ""
}

// addOutput gives a reading command its -o flag.
func (a *admin) addOutput(cmd *cobra.Command) {
	a.addFlags(cmd)
	a.output = outputTable
	cmd.Flags().VarP(&a.output, "output", "o", "table, json, or wide: more columns where there are more")
}

// outputFlag is -o table|wide|json.
type outputFlag string

const (
	outputTable outputFlag = "table"
	outputWide  outputFlag = "wide"
	outputJSON  outputFlag = "json"
)

func (o *outputFlag) String() string { return string(*o) }
func (o *outputFlag) Type() string   { return "format" }
func (o *outputFlag) Set(s string) error {
	switch f := outputFlag(s); f {
	case outputTable, outputWide, outputJSON:
		*o = f
		return nil
	}
	return errors.New("use table, wide or json")
}

// askTimeout bounds one call.
const askTimeout = 15 * time.Second

// call sends one request and decodes the answer into out, if it is not nil. It
// returns the raw answer too.
func (a *admin) call(ctx context.Context, method, path string, body, out any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case rawBody:
		r = bytes.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(text)
	}
	u, err := a.base()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(u.String(), "/")+"/admin/v1/"+path, r)
	if err != nil {
		return nil, usageError{err}
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, a.unanswered(u, err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("the answer of %s ended before it was complete (%w): ask again, or another router with --server", a.server, err)
	}
	if resp.StatusCode >= 300 {
		return nil, a.refused(resp.StatusCode, raw)
	}
	if out != nil {
		if err := json.Unmarshal(raw, out); err != nil {
			return nil, fmt.Errorf("%s did not answer as a hearsay admin API (%w): %s", a.server, err, wantAdmin)
		}
	}
	return raw, nil
}

// refused is what a router's answer says that is no success, and what to do.
func (a *admin) refused(status int, raw []byte) error {
	var e struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(raw, &e) == nil && e.Error.Message != "" {
		switch e.Error.Code {
		case "unknown_url":
			return fmt.Errorf("%s is a client port: %s", a.server, wantAdmin)
		case "not_found":
			return fmt.Errorf("%s has no such path: %s, without a path", a.server, wantAdmin)
		}
		return errors.New(strings.Replace(e.Error.Message, "GET /v1/models lists", "'hearsay models' lists", 1))
	}
	return fmt.Errorf("%s answered status %d: is it a hearsay admin address?", a.server, status)
}

// base is the server as a URL: host:port, as status prints it, will do.
func (a *admin) base() (*url.URL, error) {
	server := a.server
	switch {
	case strings.HasPrefix(server, ":"): // a port of this machine
		server = "http://127.0.0.1" + server
	case !strings.Contains(server, "://"):
		server = "http://" + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" || strings.HasSuffix(u.Host, ":") || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usageError{fmt.Errorf("%s: %q is not a URL such as %s", a.named(), a.server, defaultServer)}
	}
	return u, nil
}

// wantAdmin says what --server takes.
const wantAdmin = "give the router's admin address with --server, usually port 8081"

// unanswered says why no answer came, and what to do. A router's cluster and mesh
// ports hang up on what is not their own; other servers answer in their own words.
func (a *admin) unanswered(u *url.URL, err error) error {
	var op *net.OpError
	var header tls.RecordHeaderError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &op) && op.Op == "proxyconnect":
		return fmt.Errorf("the proxy that HTTP_PROXY or HTTPS_PROXY names does not answer (%v): mend it, or set NO_PROXY=%s", op.Err, u.Hostname())
	case errors.As(err, &cert):
		return fmt.Errorf("the certificate of %s is not trusted here (%v): name the host as its certificate does, or set SSL_CERT_FILE to its authority's", a.server, cert.Err)
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("no router answers at %s (%v): start one with 'hearsay serve', or name another's admin address with --server", a.server, op.Err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%s speaks plain HTTP: give it as --server http://%s", a.server, u.Host)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("what listens at %s hung up on the request, as the cluster port and the one after it do: %s", a.server, wantAdmin)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer from %s within %v: if it is no admin address %s", a.server, askTimeout, wantAdmin)
	case errors.As(err, &header), strings.Contains(err.Error(), "malformed HTTP"), strings.Contains(err.Error(), "readLoopPeekFail"):
		// Those of net/http have no type; the last is of a server that spoke first.
		return fmt.Errorf("what listens at %s does not speak HTTP: %s", a.server, wantAdmin)
	}
	return fmt.Errorf("ask %s: %w: %s", a.server, err, wantAdmin)
}
