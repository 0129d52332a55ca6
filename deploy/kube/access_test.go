package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority is a certificate for 127.0.0.1 that signs itself, in PEM.
func authority(t *testing.T) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	x := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, x, x, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	priv, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: priv})
}

// secure is an API server over TLS that answers who asks.
func secure(t *testing.T, cert, key []byte) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := r.Header.Get("Authorization")
		if len(r.TLS.PeerCertificates) > 0 {
			who += " by certificate"
		}
		_, _ = io.WriteString(w, who)
	}))
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func write(t *testing.T, path string, b []byte) string {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// asks compares what the server answers, or the error.
func asks(t *testing.T, a *Access, want, fault string) {
	t.Helper()
	a.dial = (&net.Dialer{}).DialContext
	t.Cleanup(a.Close)
	body, err := a.Get(t.Context(), "/", nil)
	if err != nil {
		if fault == "" || !strings.Contains(err.Error(), fault) {
			t.Errorf("%v, want %q", err, fault)
		}
		return
	}
	defer func() { _ = body.Close() }()
	b, err := io.ReadAll(body)
	if err != nil || string(b) != want || fault != "" {
		t.Errorf("%q, %v; want %q %q", b, err, want, fault)
	}
}

// A service account's token and authority are replaced while the router runs.
func TestServiceAccount(t *testing.T) {
	cert, key := authority(t)
	s, dir := secure(t, cert, key), t.TempDir()
	host, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	env := func(k string) string {
		return map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}[k]
	}
	write(t, filepath.Join(dir, "namespace"), []byte("llm\n"))
	a, err := inCluster(env, dir)
	if err != nil || a.namespace != "llm" {
		t.Fatalf("%+v, %v", a, err)
	}
	asks(t, a, "", "ca.crt")
	write(t, filepath.Join(dir, "ca.crt"), cert)
	asks(t, a, "", "token")
	write(t, filepath.Join(dir, "token"), []byte("one\n"))
	asks(t, a, "Bearer one", "")
	write(t, filepath.Join(dir, "token"), []byte("two"))
	asks(t, a, "Bearer two", "")
	other, _ := authority(t)
	write(t, filepath.Join(dir, "ca.crt"), other)
	asks(t, a, "", "not trusted")
	write(t, filepath.Join(dir, "ca.crt"), []byte("nothing"))
	asks(t, a, "", "no certificate")
	write(t, filepath.Join(dir, "ca.crt"), cert)
	asks(t, a, "Bearer two", "")
	if _, err := inCluster(func(string) string { return "" }, dir); err == nil || !strings.Contains(err.Error(), "no Kubernetes cluster") {
		t.Error(err)
	}
}

func TestKubeconfig(t *testing.T) {
	cert, key := authority(t)
	s, dir := secure(t, cert, key), t.TempDir()
	b64 := base64.StdEncoding.EncodeToString
	config := func(cluster, user string) string {
		return write(t, filepath.Join(dir, "config"), []byte("apiVersion: v1\nkind: Config\npreferences: {}\ncurrent-context: here\n"+
			"contexts:\n- {name: here, context: {cluster: c, user: u, namespace: llm}}\n- {name: there, context: {cluster: x, user: u}}\n"+
			"clusters: [{name: c, cluster: {"+cluster+"}}]\nusers: [{name: u, user: {"+user+"}}]\n"))
	}
	good := func(cluster, user, want string) {
		t.Helper()
		a, err := fromKubeconfig(config(cluster, user), "")
		if err != nil || a.namespace != "llm" {
			t.Errorf("%+v, %v", a, err)
			return
		}
		asks(t, a, want, "")
	}
	write(t, filepath.Join(dir, "ca.pem"), cert)
	write(t, filepath.Join(dir, "key.pem"), key)
	write(t, filepath.Join(dir, "tok"), []byte("file"))
	at := "server: " + s.URL
	data := at + ", certificate-authority-data: " + b64(cert)
	good(data, "token: text", "Bearer text")
	good(at+", certificate-authority: ca.pem", "tokenFile: tok", "Bearer file")
	good(data, "client-certificate-data: "+b64(cert)+", client-key-data: "+b64(key), " by certificate")
	good(data, "client-certificate: ca.pem, client-key: key.pem", " by certificate")
	good(at+", insecure-skip-tls-verify: true", "token: t", "Bearer t")

	bad := func(cluster, user, context, want string) {
		t.Helper()
		if a, err := fromKubeconfig(config(cluster, user), context); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v; want %q", a, err, want)
		}
	}
	bad(data, "exec: {command: aws}", "", "exec")
	bad(data, "username: a, password: b", "", "passwords")
	bad(data, "", "nowhere", "no context")
	bad(data, "", "there", "no cluster")
	bad("server: x", "", "", "not a URL")
	bad(at+", certificate-authority-data: '%'", "", "", "base64")

	a, err := fromKubeconfig(config("server: \"http://127.0.0.1:1\"", "token: secret"), "")
	if err != nil {
		t.Fatal(err)
	}
	asks(t, a, "", "plain http")
	if _, err := fromKubeconfig(filepath.Join(dir, "none"), ""); err == nil {
		t.Error("read a file that is not there")
	}
	for text, want := range map[string]string{"contexts: 3": "line 1 has a value of another kind", "contexts: [": "not whole"} {
		if _, err := fromKubeconfig(write(t, filepath.Join(dir, "bad"), []byte(text)), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := fromKubeconfig(dir, ""); err == nil || !strings.Contains(err.Error(), "it is a directory") {
		t.Error(err)
	}
}

// Errors that are told again each time must be the same each time.
func TestFailuresAreSaidAlike(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	a := &Access{server: "http://" + addr, dial: (&net.Dialer{}).DialContext}
	said := map[string]bool{}
	for range 3 {
		_, err := a.Get(context.Background(), "/", nil)
		if err == nil {
			t.Skip("somebody else took the port")
		}
		said[err.Error()] = true
	}
	if len(said) != 1 {
		t.Errorf("%v", said)
	}
}
