package discovery

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// ServiceAccount is where a Pod finds its service account's files.
const ServiceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// kubeAccess is how to talk to an API server. Files are read again for every request,
// since tokens and certificates are replaced while we run.
type kubeAccess struct {
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
	b, err := state.ReadFile(s.file, maxKubeFile)
	if err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b), nil
}

// inCluster is the access of a Pod, by the environment and its service account.
func inCluster(getenv func(string) string, dir string) (*kubeAccess, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("this router is in no Kubernetes cluster (KUBERNETES_SERVICE_HOST is not set): name a kubeconfig")
	}
	ns, _ := state.ReadFile(filepath.Join(dir, "namespace"), maxKubeFile)
	return &kubeAccess{
		server: "https://" + net.JoinHostPort(host, port), namespace: strings.TrimSpace(string(ns)),
		token: secret{file: filepath.Join(dir, "token")}, ca: secret{file: filepath.Join(dir, "ca.crt")},
	}, nil
}

// kubeError is an answer of the API server that is none that was asked for.
type kubeError struct {
	code int
	text string // the server's, for people
}

func (e *kubeError) Error() string {
	switch e.code {
	case http.StatusUnauthorized:
		return "the API server does not take this router's credentials (401)"
	case http.StatusForbidden:
		return "the API server forbids it (403), the account needs get, list and watch: " + e.text
	}
	return fmt.Sprintf("the API server answers %d: %s", e.code, e.text)
}

// gone reports that a resource version is too old: only a new list helps.
func gone(err error) bool {
	var k *kubeError
	return errors.As(err, &k) && k.code == http.StatusGone
}

// get asks for a path and returns the body of an answer 200, to be closed.
func (a *kubeAccess) get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	transport, err := a.current()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(a.server, "/")+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
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
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(b, &status) != nil || status.Message == "" {
		status.Message = http.StatusText(resp.StatusCode)
	}
	return nil, &kubeError{resp.StatusCode, clip(status.Message)}
}

// unreachable puts a failed connection in words that are the same each time.
func unreachable(ctx context.Context, err error) error {
	var cert *tls.CertificateVerificationError
	var op *net.OpError
	switch {
	case ctx.Err() != nil || os.IsTimeout(err):
		return errors.New("the API server does not answer in time")
	case errors.As(err, &cert):
		return fmt.Errorf("the API server's certificate is not trusted: %s", clip(cert.Err.Error()))
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("the API server can't be reached: %s", clip(op.Err.Error()))
	}
	return errors.New("the connection to the API server ended")
}

// current is the transport for the certificates that the files hold now.
func (a *kubeAccess) current() (*http.Transport, error) {
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

// close ends connections that nobody uses.
func (a *kubeAccess) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.transport != nil {
		a.transport.CloseIdleConnections()
	}
}
