package kube

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// ServiceAccount is where a Pod finds its service account's files.
const ServiceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// Config says how to reach an API server.
type Config struct {
	Kubeconfig string // file; empty: the service account of the Pod that this process is in
	Context    string // of the kubeconfig; empty: its current one

	Getenv  func(string) string
	Account string // directory of the service account; empty: ServiceAccount
	// Dial connects; nil: as package net does.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Access talks to one API server. Files are read again for every request, since
// tokens and certificates are replaced while we run. Safe for concurrent use.
type Access struct {
	server    string // scheme://host:port, and a path behind proxies
	namespace string // where none is configured
	token     secret
	ca        secret // PEM; neither: the system's
	cert, key secret // PEM, of a client certificate
	name      string // expected in the server's certificate; empty: the server's host
	insecure  bool   // the server's certificate is not checked
	dial      func(ctx context.Context, network, addr string) (net.Conn, error)

	mu        sync.Mutex
	transport *http.Transport // guarded by mu; made for what material says
	material  string          // guarded by mu
}

// secret is a text, or the file that holds it.
type secret struct {
	text []byte
	file string
}

func (s secret) read() ([]byte, error) {
	if s.file == "" {
		return s.text, nil
	}
	b, err := state.ReadFile(s.file, maxFile)
	if err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b), nil
}

// New reads what cfg names. The server need not answer yet.
func New(cfg Config) (a *Access, err error) {
	if cfg.Kubeconfig != "" {
		a, err = fromKubeconfig(cfg.Kubeconfig, cfg.Context)
	} else {
		a, err = inCluster(cfg.Getenv, cmp.Or(cfg.Account, ServiceAccount))
	}
	if err != nil {
		return nil, err
	}
	a.dial = cfg.Dial
	return a, nil
}

// Namespace is the one that the access names, where a caller has none; it may be empty.
func (a *Access) Namespace() string { return a.namespace }

// Check reads the files of certificates and tokens, and says what is wrong with one. It
// calls nobody.
func (a *Access) Check() error {
	_, terr := a.token.read()
	_, cerr := a.current()
	return errors.Join(terr, cerr)
}

// inCluster is the access of a Pod, by the environment and its service account.
func inCluster(getenv func(string) string, dir string) (*Access, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("this router is in no Kubernetes cluster (KUBERNETES_SERVICE_HOST is not set): name a kubeconfig")
	}
	ns, _ := state.ReadFile(filepath.Join(dir, "namespace"), maxFile)
	return &Access{
		server: "https://" + net.JoinHostPort(host, port), namespace: strings.TrimSpace(string(ns)),
		token: secret{file: filepath.Join(dir, "token")}, ca: secret{file: filepath.Join(dir, "ca.crt")},
	}, nil
}

// Request is one call of the API.
type Request struct {
	Method string // GET, PATCH or PUT
	Path   string
	Query  url.Values
	Type   string // content type of Body
	Body   []byte
}

// Get asks for a path and returns the body of an answer 200, to be closed.
func (a *Access) Get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	return a.Do(ctx, Request{Method: http.MethodGet, Path: path, Query: query})
}

// Do makes a call and returns the body of an answer 200, to be closed. Other answers
// are an *Error. Any other error of a call that writes leaves open whether it was done.
func (a *Access) Do(ctx context.Context, r Request) (io.ReadCloser, error) {
	transport, err := a.current()
	if err != nil {
		return nil, err
	}
	where := strings.TrimRight(a.server, "/") + r.Path + "?" + r.Query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.Method, where, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if r.Type != "" {
		req.Header.Set("Content-Type", r.Type)
	}
	token, err := a.token.read()
	if err != nil {
		return nil, err
	}
	if len(token) > 0 {
		if req.URL.Scheme != "https" {
			return nil, errors.New("the API server's URL is plain http: a token is not sent over it")
		}
		req.Header.Set("Authorization", "Bearer "+string(token))
	}
	resp, err := transport.RoundTrip(req) // follows no redirects
	if err != nil {
		return nil, unreachable(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, refused(&r, resp)
}

// current is the transport for the certificates that the files hold now.
func (a *Access) current() (*http.Transport, error) {
	var parts [3][]byte
	for i, s := range []secret{a.ca, a.cert, a.key} {
		var err error
		if parts[i], err = s.read(); err != nil {
			return nil, err
		}
	}
	material := string(bytes.Join(parts[:], []byte{0}))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.transport != nil && a.material == material {
		return a.transport, nil
	}
	cfg := &tls.Config{ServerName: a.name, InsecureSkipVerify: a.insecure, MinVersion: tls.VersionTLS12}
	if len(parts[0]) > 0 {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(parts[0]) {
			return nil, errors.New("the certificate authority's file holds no certificate")
		}
	}
	if len(parts[1]) > 0 {
		pair, err := tls.X509KeyPair(parts[1], parts[2])
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	if a.transport != nil {
		a.transport.CloseIdleConnections()
	}
	a.material = material
	a.transport = &http.Transport{
		DialContext: a.dial, TLSClientConfig: cfg, TLSHandshakeTimeout: 10 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second, IdleConnTimeout: 30 * time.Second,
	}
	return a.transport, nil
}

// Close ends connections that nobody uses.
func (a *Access) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.transport != nil {
		a.transport.CloseIdleConnections()
	}
}
