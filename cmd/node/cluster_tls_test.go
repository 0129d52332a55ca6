package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// signer is an authority of routers' certificates.
type signer struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	s := &signer{t: t}
	s.key, s.cert = s.sign(nil, func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	})
	return s
}

// sign makes a key and a certificate of it; without an authority it signs itself.
func (s *signer) sign(by *signer, change func(c *x509.Certificate)) (*ecdsa.PrivateKey, *x509.Certificate) {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	x := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "router"}, DNSNames: []string{"r1"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	if change != nil {
		change(x)
	}
	parent, with := x, key
	if by != nil {
		parent, with = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, x, parent, &key.PublicKey, with)
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		s.t.Fatal(err)
	}
	return key, c
}

// issue writes a router's files, which may be there already.
func (s *signer) issue(dir string, change func(c *x509.Certificate)) ClusterTLSConfig {
	s.t.Helper()
	key, cert := s.sign(s, change)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	put := func(name, kind string, b []byte) string {
		s.t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			s.t.Fatal(err)
		}
		return path
	}
	return ClusterTLSConfig{
		Cert: put("cert.pem", "CERTIFICATE", cert.Raw), Key: put("key.pem", "PRIVATE KEY", der), CA: put("ca.pem", "CERTIFICATE", s.cert.Raw),
	}
}

// router is one with the files of a new directory.
func (s *signer) router(change func(c *x509.Certificate)) (*routerTLS, string) {
	s.t.Helper()
	dir := s.t.TempDir()
	r, err := newRouterTLS(s.issue(dir, change))
	if err != nil {
		s.t.Fatal(err)
	}
	return r, dir
}

// meet has one dial the other, and says how the acceptor and the dialler fared.
func meet(t *testing.T, dialler, acceptor *tls.Config) (there, here error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	limit := time.Now().Add(20 * time.Second)
	served := make(chan error, 1)
	go func() {
		z, err := ln.Accept()
		if err == nil {
			_ = z.SetDeadline(limit)
			err = tls.Server(z, acceptor).Handshake()
			_ = z.Close()
		}
		served <- err
	}()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = a.SetDeadline(limit)
	here = tls.Client(a, dialler).Handshake() // in TLS 1.3 the acceptor judges after that
	_ = a.(*net.TCPConn).CloseWrite()
	there = <-served
	_ = a.Close()
	return there, here
}

func TestRoutersShowCertificatesThatAreGoodNow(t *testing.T) {
	s, foreign := newSigner(t), newSigner(t)
	good, _ := s.router(nil)
	f := func(name, want string, r *routerTLS) {
		t.Helper()
		there, here := meet(t, r.config(), good.config())
		if (there == nil) != (want == "") || want != "" && !strings.Contains(there.Error(), want) {
			t.Errorf("%s dials: %v, %v, want %q", name, there, here, want)
		}
		there, here = meet(t, good.config(), r.config())
		if (here == nil) != (want == "") || want != "" && !strings.Contains(here.Error(), want) {
			t.Errorf("%s is dialled: %v, %v, want %q", name, there, here, want)
		}
		// It knows itself whether the others refuse it.
		if got := r.warning(time.Now()); (got == "") != (want == "") && r.ca.Equal(good.ca) {
			t.Errorf("%s: warns %q", name, got)
		}
	}
	of := func(s *signer, change func(c *x509.Certificate)) *routerTLS {
		r, _ := s.router(change)
		return r
	}
	f("a good one", "", of(s, nil))
	f("one for other names", "", of(s, func(c *x509.Certificate) { c.DNSNames = []string{"elsewhere"} })) // names are not compared
	f("one that has ended", "expired", of(s, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour)
	}))
	f("one of the future", "not yet valid", of(s, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(24*time.Hour)
	}))
	trusts := of(foreign, nil)
	trusts.files.CA = good.files.CA // it accepts ours, and is signed by another
	if err := trusts.load(); err != nil {
		t.Fatal(err)
	}
	f("one of another authority", "unknown authority", trusts)
}

func TestRoutersSpeakNoOlderTLS(t *testing.T) {
	s := newSigner(t)
	good, _ := s.router(nil)
	old := good.config()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if there, here := meet(t, old, good.config()); there == nil || here == nil {
		t.Errorf("TLS 1.2 is accepted: %v, %v", there, here)
	}
	if there, here := meet(t, good.config(), old); there == nil || here == nil {
		t.Errorf("TLS 1.2 is spoken: %v, %v", there, here)
	}
	none := good.config()
	none.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
	if there, _ := meet(t, none, good.config()); there == nil {
		t.Error("a dialler without a certificate is accepted")
	}
}

// Certificates are replaced, with their authority, under routers that run. One of them
// only dials: nobody reaches it.
func TestAnotherAuthorityIsTakenByWhoOnlyDials(t *testing.T) {
	was, next := newSigner(t), newSigner(t)
	a, adir := was.router(nil)
	z, zdir := was.router(nil)
	dialler, acceptor := a.config(), z.config()
	must := func(what string) {
		t.Helper()
		if there, here := meet(t, dialler, acceptor); there != nil || here != nil {
			t.Errorf("%s: %v, %v", what, there, here)
		}
	}
	must("at first")
	next.issue(adir, nil)
	next.issue(zdir, nil)
	must("with another authority")
	if err := os.WriteFile(filepath.Join(adir, "cert.pem"), []byte("half a certif"), 0o600); err != nil {
		t.Fatal(err)
	}
	must("with a file that is half written")
	if got := a.warning(time.Now()); !strings.Contains(got, "stays as it was: cluster.tls.cert") {
		t.Errorf("warns %q", got)
	}
}

func TestRoutersCertificateIsWarnedOf(t *testing.T) {
	s := newSigner(t)
	r, dir := s.router(nil) // 25 hours in all
	for left, want := range map[time.Duration]string{12 * time.Hour: "", 3 * time.Hour: "", 2 * time.Hour: "ends on "} {
		if got := r.warning(time.Now().Add(24*time.Hour - left)); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%v before its end: %q", left, got)
		}
	}
	s.issue(dir, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	if got := r.warning(time.Now()); !strings.Contains(got, "other routers refuse "+r.files.Cert) || !strings.Contains(got, "expired") {
		t.Errorf("after its end: %q", got)
	}
	if _, err := Check(writeConfig(t, dir, "cluster: {tls: {cert: "+r.files.Cert+", key: "+r.files.Key+", ca: "+r.files.CA+"}}\n"+minimal), nil); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("config check: %v", err)
	}
	if (*routerTLS)(nil).warning(time.Now()) != "" || (*routerTLS)(nil).config() != nil {
		t.Error("without certificates there is something")
	}
}

func writeConfig(t *testing.T, dir, text string) string {
	t.Helper()
	path := filepath.Join(dir, "hearsay.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
