package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"

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
func newRouterTLS(files ClusterTLSConfig) (*tls.Config, error) {
	if files == (ClusterTLSConfig{}) {
		return nil, nil
	}
	r := &routerTLS{files: files}
	if err := r.load(); err != nil {
		return nil, err
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
	}, nil
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

// verify accepts a peer whose certificate the authority has signed.
func (r *routerTLS) verify(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the peer shows no certificate")
	}
	r.mu.Lock()
	opts := x509.VerifyOptions{Roots: r.ca, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	r.mu.Unlock()
	for _, c := range s.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(opts)
	return err
}
