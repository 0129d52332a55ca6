package mesh

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state/wire"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// streams returns two ends of one connection of the network.
func streams(t *testing.T, n *simnet.Net) (a, b net.Conn) {
	t.Helper()
	l, err := n.Host("b").Listen("tcp", ":1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = n.Host("a").Dial("tcp", "b:1"); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	return a, b
}

func TestSealedStreamRefusesWhatWasTamperedWith(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	record := func(t *testing.T, n *simnet.Net, texts ...string) []byte {
		a, b := streams(t, n)
		s, err := newSealed(a, key, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			if _, err := s.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		_ = a.(*simnet.Conn).CloseWrite()
		raw, err := io.ReadAll(b)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	f := func(name, want string, ok bool, change func(raw []byte) []byte) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := simnet.New(1)
				raw := change(record(t, n, "first", "second"))
				a, b := streams(t, n)
				s, err := newSealed(b, key, key)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := a.Write(raw); err != nil {
					t.Fatal(err)
				}
				_ = a.Close()
				got, err := io.ReadAll(s)
				if string(got) != want || ok != (err == nil) {
					t.Errorf("read %q, %v", got, err)
				}
			})
		})
	}
	const one = 2 + len("first") + tagSize
	f("untouched", "firstsecond", true, func(raw []byte) []byte { return raw })
	f("a bit turned", "", false, func(raw []byte) []byte { raw[5] ^= 1; return raw })
	f("length changed", "", false, func(raw []byte) []byte { raw[1]++; return raw })
	f("record repeated", "first", false, func(raw []byte) []byte { return append(raw[:one:one], raw[:one]...) })
	f("record lost", "", false, func(raw []byte) []byte { return raw[one:] })
	f("records swapped", "", false, func(raw []byte) []byte { return append(raw[one:len(raw):len(raw)], raw[:one]...) })
	f("cut within a record", "first", false, func(raw []byte) []byte { return raw[:len(raw)-1] })
	f("empty record", "", false, func(raw []byte) []byte { return append([]byte{0, tagSize}, raw...) })
}

// A read deadline that passes within a record loses nothing.
func TestSealedReadGoesOnAfterADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		key := bytes.Repeat([]byte{7}, 32)
		a, b := streams(t, n)
		tapped := &bytes.Buffer{}
		w, _ := newSealed(writerConn{a, tapped}, key, key)
		_, _ = w.Write([]byte("hello"))
		raw := tapped.Bytes()
		r, _ := newSealed(b, key, key)
		_, _ = a.Write(raw[:7])
		_ = r.SetReadDeadline(time.Now().Add(time.Second))
		var ne net.Error
		if _, err := r.Read(make([]byte, 9)); !errors.As(err, &ne) || !ne.Timeout() {
			t.Fatalf("read: %v", err)
		}
		_ = r.SetReadDeadline(time.Time{})
		_, _ = a.Write(raw[7:])
		got := make([]byte, 5)
		if _, err := io.ReadFull(r, got); err != nil || string(got) != "hello" {
			t.Errorf("%q %v", got, err)
		}
	})
}

type writerConn struct {
	net.Conn
	w io.Writer
}

func (c writerConn) Write(b []byte) (int, error) { return c.w.Write(b) }

// certificate makes a certificate authority and a certificate for every router.
func certificate(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "routers"}, DNSNames: []string{"r1", "r2"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: pool, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}
}

func TestTLS(t *testing.T) {
	f := func(name string, up bool, tweak func(c *Config, own, foreign *tls.Config)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *simnet.Net) {
				own, foreign := certificate(t), certificate(t)
				a, b := pairOf(t, n, func(c *Config) {
					c.TLS = own
					tweak(c, own, foreign)
				})
				time.Sleep(5 * time.Second)
				if got := a.Up("r2") && b.Up("r1"); got != up {
					t.Fatalf("up %v, %+v, %+v", got, a.Status(), a.Refusals())
				}
				if up {
					a.Send("r2", wire.KindRows, []byte("x"))
					within(t, time.Second, "frame", func() bool { return len(b.received()) == 1 })
				}
			})
		})
	}
	f("with the secret", true, func(*Config, *tls.Config, *tls.Config) {})
	f("without a secret", true, func(c *Config, _, _ *tls.Config) { c.Secret = nil })
	f("with another secret", false, func(c *Config, _, _ *tls.Config) {
		if c.Self == "r1" {
			c.Secret = [][]byte{bytes.Repeat([]byte("w"), 32)}
		}
	})
	f("with another authority", false, func(c *Config, _, foreign *tls.Config) {
		if c.Self == "r1" {
			c.TLS = foreign
		}
	})
	f("on one side only", false, func(c *Config, _, _ *tls.Config) {
		if c.Self == "r1" {
			c.TLS = nil
		}
	})
}

// A recorded handshake is worth nothing later.
func TestReplayedHandshakeIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		var said bytes.Buffer
		a := start(t, options{n: n, host: "r1", tweak: func(c *Config) {
			dial := c.Dial
			c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				conn, err := dial(ctx, addr)
				if err != nil {
					return nil, err
				}
				return writerConn{conn, io.MultiWriter(conn, &said)}, nil
			}
		}})
		b := start(t, options{n: n, host: "r2"})
		a.peers("r2")
		within(t, time.Second, "stream up", both(a, b))
		a.Send("r2", wire.KindRows, []byte("once"))
		within(t, time.Second, "frame", func() bool { return len(b.received()) == 1 })
		a.stop()
		within(t, time.Second, "stream down", func() bool { return !b.Up("r1") })
		conn, err := n.Host("thief").Dial("tcp", "r2:7947")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = conn.Write(said.Bytes())
		time.Sleep(5 * time.Second)
		if b.Up("r1") || len(b.received()) != 1 {
			t.Error("a replay was taken for the router")
		}
		if got := b.Refusals(); len(got) != 1 || got[0].Reason != ReasonSecret {
			t.Errorf("refusals %+v", got)
		}
	})
}

// FuzzAccept gives the accepting side of the handshake arbitrary bytes: it must
// end, and never take them for a member.
func FuzzAccept(f *testing.F) {
	hello := wire.Hello{
		Router: "r2", Boot: 7, Cluster: "default", MinVersion: 1, Version: 1, Scheme: "1", Proto: protoMesh,
		Nonce: make([]byte, 32), Public: make([]byte, 32), Keys: [][]byte{tag(secret, make([]byte, 32))},
	}
	f.Add(wire.AppendFrame([]byte{protoMesh}, wire.KindHello, wire.AppendHello(nil, &hello)))
	hello.Public = bytes.Repeat([]byte{9}, 32)
	first := wire.AppendFrame([]byte{protoMesh}, wire.KindHello, wire.AppendHello(nil, &hello))
	f.Add(wire.AppendFrame(first, wire.KindProof, make([]byte, 32)))
	f.Add(wire.AppendFrame([]byte{protoMesh}, wire.KindRefuse, wire.AppendRefuse(nil, "scheme")))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := New(Config{
			Self: "r1", Boot: 1, Cluster: "default", Scheme: "1", Secret: [][]byte{secret}, Listener: noListener{},
			Dial: func(context.Context, string) (net.Conn, error) { return nil, io.EOF }, Log: zerolog.Nop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, dialled := range []bool{false, true} {
			if _, err := m.shake(t.Context(), &scripted{r: bytes.NewReader(in)}, dialled, protoMesh, "", ""); err == nil {
				t.Fatal("taken for a member")
			}
		}
	})
}

type noListener struct{ net.Listener }

// scripted is a peer that says what it has to say whatever it hears.
type scripted struct {
	net.Conn
	r io.Reader
}

func (c *scripted) Read(b []byte) (int, error)      { return c.r.Read(b) }
func (c *scripted) Write(b []byte) (int, error)     { return len(b), nil }
func (c *scripted) SetDeadline(time.Time) error     { return nil }
func (c *scripted) RemoteAddr() net.Addr            { return &net.TCPAddr{} }
func (c *scripted) Close() error                    { return nil }
func (c *scripted) SetReadDeadline(time.Time) error { return nil }
