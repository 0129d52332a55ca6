package requests

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

// pair makes a certificate and its key, in PEM.
func pair(t testing.TB, serial int64) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{"r"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	must(t, err)
	pk, err := x509.MarshalPKCS8PrivateKey(k)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pk})
}

func put(t testing.TB, path string, b []byte) {
	t.Helper()
	must(t, os.WriteFile(path, b, 0o600))
}

// secured gives the API a certificate in these files.
func secured(dir string) option {
	return func(c *node.Config) {
		c.API.TLS = node.TLSConfig{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	}
}

// overTLS is a new connection and the serial number of the certificate it got.
func (g *router) overTLS() (*client, int64) {
	g.t.Helper()
	plain := g.dial()
	c := tls.Client(plain.Conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
	must(g.t, c.Handshake())
	st := c.ConnectionState()
	if st.NegotiatedProtocol != "http/1.1" || st.Version < tls.VersionTLS12 {
		g.t.Errorf("agreed on %q, %x", st.NegotiatedProtocol, st.Version)
	}
	return &client{c, g.t, bufio.NewReader(c)}, st.PeerCertificates[0].SerialNumber.Int64()
}

func TestCertificateIsReplacedUnderAStream(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		dir := t.TempDir()
		cert, key := pair(t, 1)
		put(t, filepath.Join(dir, "cert.pem"), cert)
		put(t, filepath.Join(dir, "key.pem"), key)
		release := make(chan struct{})
		g := startOn(t, w, []func(*call) bool{func(c *call) bool {
			if !strings.Contains(string(c.body), `"stream":true`) {
				return serves(c)
			}
			if !c.write(streamHead + chunk(role)) {
				return false
			}
			<-release
			return c.write(chunk(word+finish) + chunk(done) + lastChunk)
		}}, secured(dir), pool(func(p *node.PoolConfig) { p.Timeouts.Idle = time.Hour }))
		c, serial := g.overTLS()
		c.send(post(chatPath, askStream))
		first, err := c.br.Peek(1)
		if err != nil || serial != 1 {
			t.Fatalf("%q, %v, certificate %d", first, err, serial)
		}
		// Certificate first, then its key: in between the two do not fit.
		cert, key = pair(t, 2)
		put(t, filepath.Join(dir, "cert.pem"), cert)
		time.Sleep(5 * time.Second)
		if _, n := g.overTLS(); n != 1 {
			t.Errorf("half a pair: certificate %d", n)
		}
		if !strings.Contains(g.log.String(), "the certificate of the API stays as it was") {
			t.Error("half a pair is not warned of")
		}
		put(t, filepath.Join(dir, "key.pem"), key)
		time.Sleep(3 * time.Second)
		next, n := g.overTLS()
		if n != 2 {
			t.Errorf("replaced: certificate %d", n)
		}
		if r := next.do(post(chatPath, ask)); r.StatusCode != 200 || r.body != good {
			t.Errorf("over the new one: %d %q", r.StatusCode, r.body)
		}
		must(t, os.Remove(filepath.Join(dir, "cert.pem")))
		time.Sleep(3 * time.Second)
		if _, n := g.overTLS(); n != 2 {
			t.Errorf("removed: certificate %d", n)
		}
		close(release)
		if r := c.reply(); r.body != role+word+finish+done || r.err != nil {
			t.Errorf("the stream: %q, %v", r.body, r.err)
		}
		if r := c.do(post(chatPath, ask)); r.StatusCode != 200 {
			t.Errorf("behind the stream: %d", r.StatusCode)
		}
		g.stop()
	})
}

// What holds of connections holds of those in TLS.
func TestConnectionsInTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := pair(t, 1)
	put(t, filepath.Join(dir, "cert.pem"), cert)
	put(t, filepath.Join(dir, "key.pem"), key)
	gone := make(chan struct{})
	g := start(t, []func(*call) bool{func(c *call) bool {
		switch b := string(c.body); {
		case strings.Contains(b, "endless"):
			if c.write(streamHead + chunk(role)) {
				_, _ = io.Copy(io.Discard, c.conn)
			}
			close(gone)
			return false
		case strings.Contains(b, "broken"):
			c.write(streamHead + chunk(role+word))
			return false
		}
		return serves(c)
	}}, secured(dir), limit(1<<20), pool(func(p *node.PoolConfig) { p.Retry.Attempts = 1 }))
	c, _ := g.overTLS()
	for range 2 {
		if r := c.do(post(chatPath, askStream)); r.StatusCode != 200 || r.err != nil || !strings.HasSuffix(r.body, done) {
			t.Errorf("%d %q %v", r.StatusCode, r.body, r.err)
		}
	}
	c.do(post(chatPath, padded(3<<20))).refused(t, "too large", 413, "request_too_large")
	c.closed("too large")

	c, _ = g.overTLS()
	c.send(strings.Replace(post(chatPath, strings.Replace(askStream, "Hello", "broken", 1)), "HTTP/1.1", "HTTP/1.0", 1))
	if b, err := io.ReadAll(c.br); err == nil || strings.Contains(string(b), done) {
		t.Errorf("a broken stream to HTTP/1.0 ends like a whole one: %q, %v", b, err)
	}

	c, _ = g.overTLS()
	c.send(post(chatPath, strings.Replace(askStream, "Hello", "endless", 1)))
	if _, err := c.br.Peek(1); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	select {
	case <-gone:
	case <-time.After(patience):
		t.Error("a client that left in TLS is not noticed")
	}
	until(t, "nothing in flight", func() bool { return g.metric("hearsay_replica_inflight") == 0 })
	// Who speaks plain HTTP here is not answered, and disturbs nobody.
	plain := g.dial().send(post(chatPath, ask))
	if got := plain.rest(); strings.Contains(got, "200") {
		t.Errorf("plain: %q", got)
	}
	if c, _ := g.overTLS(); c.do(post(chatPath, ask)).StatusCode != 200 {
		t.Error("afterwards")
	}
}
