package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// admin is a client of one router's admin API.
type admin struct {
	server, token string
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
	cmd.Flags().StringVar(&a.server, "server", server, "admin URL of the router to ask, or to write through (env HEARSAY_SERVER)")
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

// call sends one request and decodes the answer into out, if it is not nil. It
// returns the raw answer too.
func (a *admin) call(ctx context.Context, method, path string, body, out any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(b)
	}
	server := a.server
	if !strings.Contains(server, "://") {
		server = "http://" + server // host:port, as status prints it
	}
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return nil, usageError{fmt.Errorf("--server %q is not a URL such as http://127.0.0.1:8081", a.server)}
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(server, "/")+"/admin/v1/"+path, r)
	if err != nil {
		return nil, usageError{err}
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return nil, fmt.Errorf("no router answers at %s (%v): start one with 'hearsay serve', or name another's admin address with --server", a.server, op.Err)
		}
		if errors.Is(err, http.ErrSchemeMismatch) {
			return nil, fmt.Errorf("%s speaks plain HTTP: give it as --server http://%s", a.server, u.Host)
		}
		return nil, fmt.Errorf("ask %s: %w", a.server, err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", a.server, err)
	}
	if resp.StatusCode >= 300 {
		var e struct {
			Error struct{ Code, Message string }
		}
		if json.Unmarshal(raw, &e) == nil && e.Error.Message != "" {
			if e.Error.Code == "unknown_url" {
				return nil, fmt.Errorf("%s is a client port: give the router's admin address with --server, usually port 8081", a.server)
			}
			return nil, errors.New(e.Error.Message)
		}
		return nil, fmt.Errorf("%s answered status %d: is it a hearsay admin address?", a.server, resp.StatusCode)
	}
	if out != nil {
		if err := json.Unmarshal(raw, out); err != nil {
			return nil, fmt.Errorf("%s did not answer as a hearsay admin API: %w", a.server, err)
		}
	}
	return raw, nil
}
