package node

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync/atomic"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// certificateEvery is how often the files of api.tls are looked at.
const certificateEvery = 2 * time.Second

// certificate is what the client API shows in TLS. Connections take what is there
// when they are made and keep it: replacing it ends no stream.
type certificate struct {
	files TLSConfig
	now   atomic.Pointer[tls.Certificate]
	fault atomic.Pointer[string] // why the files can't be used, if so
	read  [sha256.Size]byte      // of the files as they were used last; only load touches it
}

// newCertificate reads the files; it returns nil when there are to be none.
func newCertificate(files TLSConfig) (*certificate, error) {
	if files.Cert == "" && files.Key == "" {
		return nil, nil
	}
	c := &certificate{files: files}
	if _, err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// load takes the files as they are now and reports whether they are others than
// before. Files that can't be used change nothing.
func (c *certificate) load() (changed bool, err error) {
	pair, sum, err := c.files.read()
	if err != nil || sum == c.read {
		return false, err
	}
	c.read = sum
	c.now.Store(&pair)
	return true, nil
}

// read reads a certificate with its chain, and its key.
func (f TLSConfig) read() (pair tls.Certificate, sum [sha256.Size]byte, err error) {
	cert, err := state.ReadFile(f.Cert, maxNamed)
	if err != nil {
		return pair, sum, fmt.Errorf("api.tls.cert: %w", missing(err))
	}
	key, err := state.ReadFile(f.Key, maxNamed)
	if err != nil {
		return pair, sum, fmt.Errorf("api.tls.key: %w", missing(err))
	}
	if pair, err = tls.X509KeyPair(cert, key); err != nil {
		return pair, sum, fmt.Errorf("api.tls: %s with %s: %w", f.Cert, f.Key, err)
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return pair, sum, fmt.Errorf("api.tls.cert: %s: %w", f.Cert, err)
		}
	}
	h := sha256.New()
	for _, b := range [][]byte{cert, {0}, key} {
		_, _ = h.Write(b)
	}
	h.Sum(sum[:0])
	return pair, sum, nil
}

func missing(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist", p.Path)
	}
	return err
}

// secure wraps the client API's listener in TLS where there is a certificate. What
// is spoken inside is HTTP/1.1.
func (c *certificate) secure(ln net.Listener) net.Listener {
	if c == nil {
		return ln
	}
	return tls.NewListener(ln, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.now.Load(), nil },
	})
}

// warning says what is wrong with it, empty if nothing.
func (c *certificate) warning(now time.Time) string {
	if c == nil {
		return ""
	}
	if why := c.fault.Load(); why != nil {
		return "the API's certificate stays as it was: " + *why
	}
	if end := c.now.Load().Leaf.NotAfter; now.After(end) {
		return fmt.Sprintf("api.tls.cert: %s ended on %s: put another there, it is taken without a restart", c.files.Cert, end.Format(time.DateOnly))
	}
	return ""
}

// watchCertificate takes another certificate when its files change.
func (n *Node) watchCertificate(ctx context.Context) error {
	c := n.cert
	if c == nil {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(certificateEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		changed, err := c.load()
		said := c.fault.Load()
		switch {
		case err != nil && (said == nil || *said != err.Error()):
			why := err.Error()
			c.fault.Store(&why)
			n.log.Warn().Err(err).Msg("the certificate of the API stays as it was")
		case err == nil && said != nil:
			c.fault.Store(nil)
		}
		if changed {
			n.log.Info().Str("file", c.files.Cert).Time("until", c.now.Load().Leaf.NotAfter).Msg("certificate of the API changed")
		}
	}
}
