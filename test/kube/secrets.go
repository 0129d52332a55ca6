package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// secrets are the files that a control plane is started with.
type secrets struct {
	dir   string
	admin string // token of a user who may do everything
	ca    []byte // PEM
}

func (s *secrets) path(name string) string { return filepath.Join(s.dir, name) }

// newSecrets makes an authority, the API server's certificate by it, the key that
// service accounts' tokens are signed with, and an administrator.
func newSecrets(dir string) (*secrets, error) {
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	s := &secrets{dir: dir, admin: hex.EncodeToString(random)}
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "e2e authority"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	caKey, err := s.certificate("ca", ca, ca, nil)
	if err != nil {
		return nil, err
	}
	if _, err := s.certificate("server", server, ca, caKey); err != nil {
		return nil, err
	}
	if _, err := s.key("accounts.key"); err != nil {
		return nil, err
	}
	if s.ca, err = os.ReadFile(s.path("ca.crt")); err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.path("users.csv"), fmt.Appendf(nil, "%s,admin,admin,\"system:masters\"\n", s.admin), 0o600); err != nil {
		return nil, err
	}
	return s, nil
}

// certificate writes one, and its key, as PEM; without a signer it signs itself.
func (s *secrets) certificate(name string, x, by *x509.Certificate, signer *ecdsa.PrivateKey) (*ecdsa.PrivateKey, error) {
	key, err := s.key(name + ".key")
	if err != nil {
		return nil, err
	}
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, x, by, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	return key, s.pem(name+".crt", "CERTIFICATE", der)
}

// key makes a private key and writes it.
func (s *secrets) key(file string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, s.pem(file, "EC PRIVATE KEY", der)
}

func (s *secrets) pem(file, kind string, der []byte) error {
	return os.WriteFile(s.path(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// kubeconfig writes one for a server and the token in a file, which may be replaced.
func (s *secrets) kubeconfig(name, server, tokenFile string) (path string, err error) {
	path = s.path(name)
	return path, os.WriteFile(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: e2e
contexts: [{name: e2e, context: {cluster: e2e, user: e2e, namespace: %s}}]
clusters: [{name: e2e, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: e2e, user: {tokenFile: %q}}]
`, namespace, server, s.path("ca.crt"), tokenFile), 0o600)
}
