package scenario

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// authority signs certificates of routers.
type authority struct {
	t    *testing.T
	file string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// valid is from before a bubble's time to after it.
func valid(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
}

func newAuthority(t *testing.T, file string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: file}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	valid(c)
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, file: file, key: key}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	writePEM(t, file, "CERTIFICATE", der)
	return a
}

// issue writes a router's certificate and key, and says where.
func (a *authority) issue(name string) node.ClusterTLSConfig {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "router"}}
	valid(c)
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	writePEM(a.t, name+".pem", "CERTIFICATE", der)
	writePEM(a.t, name+".key", "PRIVATE KEY", secret)
	return node.ClusterTLSConfig{Cert: name + ".pem", Key: name + ".key", CA: a.file}
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Routers with certificates of one authority are one cluster, votes and knowledge
// included; one that brings a certificate of its own gets no stream, though it has the
// secret. When its file is replaced it is let in, without a restart.
func TestRoutersShowCertificates(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := newAuthority(t, filepath.Join(dir, "ca.pem")), newAuthority(t, filepath.Join(dir, "other-ca.pem"))
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("the-secret-of-this-year\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	name := func(i int) string { return filepath.Join(dir, fmt.Sprint("r", i)) }
	var files [4]node.ClusterTLSConfig
	for i := range files {
		files[i] = ours.issue(name(i))
	}
	theirs.issue(name(3)) // in its place, though it trusts ours
	cfg := harness.BubbleConfig{Routers: 3, Engines: 1, Delay: time.Millisecond, RouterFile: func(i int, c *node.Config) {
		c.Cluster.SecretFile, c.Cluster.Insecure, c.Cluster.TLS = secret, false, files[i]
	}}
	harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
		b.Within(15*time.Second, "three voters", voting(b, 3))
		b.Within(5*time.Second, "one group", oneGroup(b, 1))
		stranger := b.AddRouter()
		b.Settle(20 * time.Second)
		streams := func() (up int) {
			for _, m := range stranger.Node().Members() {
				if m.Mesh == "up" {
					up++
				}
			}
			return up
		}
		if n := streams(); n != 0 {
			t.Errorf("a stranger has %d streams", n)
		}
		warned(t, b.Router(0), "TLS fails between them: compare cluster.tls of both")
		ours.issue(name(3))
		b.Within(30*time.Second, "it is let in", func() error {
			if n := streams(); n != 3 {
				return fmt.Errorf("%d streams", n)
			}
			return nil
		})
		b.Within(10*time.Second, "one group", oneGroup(b, 1))
	})
}
