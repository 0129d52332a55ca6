package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/autoscale/actuator"
	"github.com/hearsay-llm/hearsay/state"
)

// WebhookConfig says whom the actuator webhook calls.
type WebhookConfig struct {
	URL        string           `yaml:"url"`
	SecretFile string           `yaml:"secret_file"`
	Timeout    time.Duration    `yaml:"timeout"`
	TLS        WebhookTLSConfig `yaml:"tls"`
}

// WebhookTLSConfig names the authority of the receiver's certificate, and a certificate
// with its key to show it; PEM files.
type WebhookTLSConfig struct {
	CA   string `yaml:"ca"`
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// defaultWebhookTimeout is that of one call.
const defaultWebhookTimeout = 5 * time.Second

// validate judges the keys of a pool that the webhook scales.
func (w *WebhookConfig) validate(v *faults, at string) {
	u, err := url.Parse(w.URL)
	switch {
	case w.URL == "":
		v.add(at+".url", "is missing: the webhook actuator needs the URL that is told how many replicas there should be")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		v.add(at+".url", "is no URL such as https://scaler.example/hearsay")
	case u.User != nil:
		v.add(at+".url", "holds credentials: leave them out, calls are signed with the secret of secret_file")
	case u.Scheme == "http" && w.TLS != (WebhookTLSConfig{}):
		v.between(at+".tls", at+".url", "is set, and the URL is http: use https")
	}
	if w.SecretFile == "" {
		v.add(at+".secret_file", "is missing: the webhook actuator signs its calls: (umask 077; openssl rand -hex 32 > FILE)")
	}
	if (w.TLS.Cert == "") != (w.TLS.Key == "") {
		v.add(at+".tls", "has one of cert and key: one needs the other")
	}
}

// here reports files that this machine lacks or that can't be used.
func (w *WebhookConfig) here(v *faults, at string) {
	if _, err := w.secrets(); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			v.add(at+".secret_file", "%s does not exist: make it on all routers: (umask 077; openssl rand -hex 32 > %s)", w.SecretFile, w.SecretFile)
		} else {
			v.add(at+".secret_file", "%v", err)
		}
	}
	if _, err := w.TLS.config(); err != nil {
		v.add(at+".tls", "can't be used: %v", err)
	}
}

// secrets are the keys that calls are signed with. The file is read at each call, so
// that another secret needs no restart.
func (w *WebhookConfig) secrets() (keys [][]byte, err error) {
	lines, err := readSecrets(w.SecretFile, maxSecrets)
	if err != nil {
		return nil, err
	}
	for i, l := range lines {
		k, err := actuator.WebhookKey(l)
		if err != nil {
			return nil, fmt.Errorf("line %d of %s: %w", i+1, w.SecretFile, err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// config is what the receiver is asked with; nil: as the system does. The certificate
// that is shown is read at each connection.
func (f *WebhookTLSConfig) config() (*tls.Config, error) {
	if *f == (WebhookTLSConfig{}) {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := state.ReadFile(f.CA, maxNamed)
		if err != nil {
			return nil, missing(err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", f.CA)
		}
	}
	if f.Cert == "" {
		return c, nil
	}
	load := func() (*tls.Certificate, error) {
		cert, err := state.ReadFile(f.Cert, maxNamed)
		if err != nil {
			return nil, missing(err)
		}
		key, err := state.ReadFile(f.Key, maxNamed)
		if err != nil {
			return nil, missing(err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		return &pair, err
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return c, nil
}

// newWebhook makes the actuator of one pool.
func (n *Node) newWebhook(p *PoolConfig) (*actuator.Webhook, error) {
	w := p.Scale.Webhook
	conf, err := w.TLS.config()
	if err != nil {
		return nil, fmt.Errorf("webhook.tls: %w", err)
	}
	return actuator.NewWebhook(actuator.WebhookConfig{
		Pool: p.Name, URL: w.URL, Secrets: w.secrets, Timeout: w.Timeout, TLS: conf, Dial: n.deps.Dial,
		Engine:  state.EngineKind(p.Engine),
		Replica: func(raw string) (string, error) { return n.webhookReplica(p.Name, raw) },
	})
}

// webhookReplica makes the URL of a receiver's instance what routers use, or says why it
// may not be used. Replicas that are other pools', or that the pool's own configuration
// lists, are left as they are: a committed one would take the place of one that a file
// lists, and go with its instance.
func (n *Node) webhookReplica(pool, raw string) (string, error) {
	u, err := NormalURL(raw)
	if err == nil {
		err = n.allowed(pool, u)
	}
	if err != nil {
		return u, err
	}
	if n.static(pool, u) {
		return u, fmt.Errorf("%s is a replica that the configuration of pool %s lists: start the instance at another address, or take it out of replicas", u, pool)
	}
	if other := n.ofOthers(pool)[state.Authority(u)]; other != "" {
		return u, fmt.Errorf("%s is a replica of pool %s already: start the instance at another address, or take it out of that pool", u, other)
	}
	return u, nil
}

// static reports whether the configuration lists a replica of a pool at a URL's address.
func (n *Node) static(pool, u string) bool {
	p := n.now().pool(pool)
	return p != nil && slices.ContainsFunc(p.Replicas, func(r ReplicaConfig) bool {
		at, err := NormalURL(r.URL)
		return err == nil && state.Authority(at) == state.Authority(u)
	})
}
