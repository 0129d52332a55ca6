package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// ClusterTLSConfig names this router's certificate, with its chain, its key, and the
// authority of all routers' certificates; all three in PEM, or none.
type ClusterTLSConfig struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	CA   string `yaml:"ca"`
}

func (f *ClusterTLSConfig) validate(v *faults) {
	if f.Cert == "" && f.Key == "" && f.CA == "" {
		return
	}
	for key, path := range map[string]string{"cert": f.Cert, "key": f.Key, "ca": f.CA} {
		if path == "" {
			v.add("cluster.tls."+key, "is missing: cluster.tls takes cert, key and ca, or none of them")
		}
	}
}

// routerTLS is what streams between routers are secured with. Its files are read again
// at every handshake, of which there are few, so that new ones need no restart; files
// that can't be used leave the last good ones in place.
type routerTLS struct {
	files ClusterTLSConfig

	mu   sync.Mutex
	pair *tls.Certificate // guarded by mu
	ca   *x509.CertPool   // guarded by mu
}

// newRouterTLS reads the files; nil when there are to be none.
func newRouterTLS(files ClusterTLSConfig) (*routerTLS, error) {
	if files == (ClusterTLSConfig{}) {
		return nil, nil
	}
	r := &routerTLS{files: files}
	if err := r.load(); err != nil {
		return nil, err
	}
	return r, nil
}

// config is what both sides of a stream are secured with; nil without certificates.
func (r *routerTLS) config() *tls.Config {
	if r == nil {
		return nil
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return r.own(), nil },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return r.own(), nil },
		ClientAuth:           tls.RequireAnyClientCert,
		// Routers are dialled at whatever address membership has, so names are not
		// compared: who has a certificate of the authority is a router. verify checks that
		// on both sides.
		InsecureSkipVerify: true,
		VerifyConnection:   r.verify,
		// A resumed session would skip a certificate that has ended since.
		SessionTicketsDisabled: true,
	}
}

// load reads the files.
func (r *routerTLS) load() error {
	var parts [3][]byte
	for i, f := range []struct{ key, path string }{{"cert", r.files.Cert}, {"key", r.files.Key}, {"ca", r.files.CA}} {
		var err error
		if parts[i], err = state.ReadFile(f.path, maxNamed); err != nil {
			return fmt.Errorf("cluster.tls.%s: %w", f.key, missing(err))
		}
	}
	pair, err := tls.X509KeyPair(parts[0], parts[1])
	if err != nil {
		return fmt.Errorf("cluster.tls.cert with cluster.tls.key: %w", err)
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return fmt.Errorf("cluster.tls.cert: %w", err)
		}
	}
	ca := x509.NewCertPool()
	if !ca.AppendCertsFromPEM(parts[2]) {
		return fmt.Errorf("cluster.tls.ca: %s holds no certificate", r.files.CA)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pair, r.ca = &pair, ca
	return nil
}

// own is this router's certificate, as its files have it now.
func (r *routerTLS) own() *tls.Certificate {
	_ = r.load() // else what was good last
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pair
}

// verify accepts a peer whose certificate the authority has signed. A dialler judges
// before it shows its own: it reads the files here, too.
func (r *routerTLS) verify(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the peer shows no certificate")
	}
	_ = r.load() // else what was good last
	return r.signed(s.PeerCertificates)
}

// signed reports whether the authority has signed a chain, and it is valid now.
func (r *routerTLS) signed(chain []*x509.Certificate) error {
	r.mu.Lock()
	opts := x509.VerifyOptions{Roots: r.ca, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	r.mu.Unlock()
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(opts)
	return err
}

// soonEnds is the part of a certificate's time that is left when its end is warned of:
// what renews certificates does it earlier.
const soonEnds = 10

// warning says what is wrong with the files, and with the certificate that is shown:
// the others refuse one that has ended. Empty: nothing.
func (r *routerTLS) warning(now time.Time) string {
	if r == nil {
		return ""
	}
	if err := r.load(); err != nil {
		return "the routers' certificate stays as it was: " + err.Error()
	}
	if err := r.refusable(); err != nil {
		return fmt.Sprintf("cluster.tls.cert: other routers refuse %s: %v: put another there, it is taken without a restart", r.files.Cert, err)
	}
	r.mu.Lock()
	leaf := r.pair.Leaf
	r.mu.Unlock()
	if left := leaf.NotAfter.Sub(now); left < leaf.NotAfter.Sub(leaf.NotBefore)/soonEnds {
		return fmt.Sprintf("cluster.tls.cert: %s ends on %s, and other routers refuse it then: put another there, it is taken without a restart",
			r.files.Cert, leaf.NotAfter.UTC().Format("2006-01-02 15:04 UTC"))
	}
	return ""
}

// refusable says why routers with the same authority refuse this one's certificate, or
// nil.
func (r *routerTLS) refusable() error {
	r.mu.Lock()
	pair := r.pair
	r.mu.Unlock()
	var chain []*x509.Certificate
	for _, der := range pair.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		chain = append(chain, c)
	}
	return r.signed(chain)
}
