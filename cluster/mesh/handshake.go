package mesh

import (
	"context"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// protoMesh is the first byte of a mesh connection; layers use others.
const protoMesh byte = 'm'

// maxHandshakeFrame bounds what an unauthenticated peer can make us read.
const maxHandshakeFrame = 8 << 10

// Reasons for refusing a connection, as logs, metrics and Refusals show them.
const (
	ReasonSecret    = "secret"     // no shared key in common, or only one side has any
	ReasonCluster   = "cluster"    // another cluster's label
	ReasonClusterID = "cluster_id" // the same label, but another committed id
	ReasonScheme    = "scheme"     // another prefix hash scheme: marks must not be mixed
	ReasonVersion   = "version"    // no wire version in common
	ReasonSelf      = "self"       // a router with our own id
	ReasonProto     = "proto"      // a layer that is not served here
	ReasonDuplicate = "duplicate"  // a better stream to that peer exists
	ReasonMalformed = "malformed"  // not a handshake
	ReasonTLS       = "tls"
	ReasonOther     = "other_router" // another router than the one that is looked for
	ReasonTwice     = "twice"        // a stream whose place another router with the same id took
)

var reasons = []string{
	ReasonSecret, ReasonCluster, ReasonClusterID, ReasonScheme, ReasonVersion,
	ReasonSelf, ReasonProto, ReasonDuplicate, ReasonMalformed, ReasonTLS, ReasonOther, ReasonTwice,
}

// Reasons lists all reasons for refusing a connection.
func Reasons() []string { return slices.Clone(reasons) }

// RefusedError says that a handshake was refused and by whom.
type RefusedError struct {
	Reason string
	Remote bool // the peer refused us

	peer state.RouterID // as it called itself, proved or not, or who was dialled; empty: not known
	name string         // likewise
}

// Error implements error.
func (e *RefusedError) Error() string {
	if e.Remote {
		return "refused by peer: " + e.Reason
	}
	return "refused: " + e.Reason
}

func refused(reason string) error { return &RefusedError{Reason: reason} }

// authed is a connection whose handshake is over.
type authed struct {
	conn net.Conn
	peer wire.Hello
	key  string // id of the shared key; empty: none
}

// shake performs one side's handshake on conn, whatever comes of it within the
// dial time-out. The dialler names the protocol and whom it looks for; for the
// acceptor proto is nil and serves says which are known here. It does not close conn.
func (m *Mesh) shake(ctx context.Context, conn net.Conn, dialled bool, proto byte, want state.RouterID, serverName string) (*authed, error) {
	if err := conn.SetDeadline(time.Now().Add(m.cfg.DialTimeout)); err != nil {
		return nil, err
	}
	var binding []byte
	if m.cfg.TLS != nil {
		t, err := m.shakeTLS(ctx, conn, dialled, serverName)
		if err != nil {
			return nil, err
		}
		state := t.ConnectionState()
		if binding, err = state.ExportKeyingMaterial("EXPERIMENTAL hearsay mesh", nil, 32); err != nil {
			return nil, fmt.Errorf("bind to tls: %w", err)
		}
		conn = t
	}
	h := &handshake{m: m, conn: conn, frames: wire.NewFrameReader(conn, maxHandshakeFrame), binding: binding, secrets: m.secrets(), want: want}
	var err error
	if dialled {
		err = h.dial(proto)
	} else {
		err = h.accept()
	}
	if err != nil {
		var r *RefusedError
		if errors.As(err, &r) {
			r.peer, r.name = h.peer.Router, h.peer.Name
		}
		return nil, err
	}
	out := conn
	if h.key != nil && m.cfg.TLS == nil {
		read, write := h.derive("dialler to acceptor"), h.derive("acceptor to dialler")
		if dialled {
			read, write = write, read
		}
		if out, err = newSealed(conn, read, write); err != nil {
			return nil, err
		}
	}
	return &authed{conn: out, peer: h.peer, key: KeyID(h.key)}, conn.SetDeadline(time.Time{})
}

func (m *Mesh) shakeTLS(ctx context.Context, conn net.Conn, dialled bool, serverName string) (*tls.Conn, error) {
	var t *tls.Conn
	if dialled {
		cfg := m.cfg.TLS
		if cfg.ServerName == "" {
			cfg = cfg.Clone()
			cfg.ServerName = serverName
		}
		t = tls.Client(conn, cfg)
	} else {
		t = tls.Server(conn, m.cfg.TLS)
	}
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(refused(ReasonTLS), err)
	}
	return t, nil
}

type handshake struct {
	m       *Mesh
	conn    net.Conn
	frames  *wire.FrameReader
	dec     wire.Decoder
	binding []byte // of the TLS connection beneath

	secrets [][]byte // shared keys when it began
	private *ecdh.PrivateKey
	key     []byte         // the shared key chosen; nil: none
	shared  []byte         // of the ephemeral keys
	want    state.RouterID // whom the dialler looks for; empty: whoever answers
	peer    wire.Hello
	sum     []byte // over both hellos as sent
}

func (h *handshake) hello(proto byte) (wire.Hello, error) {
	c := &h.m.cfg
	hello := wire.Hello{
		Router: c.Self, Boot: c.Boot, Name: c.Name, Cluster: c.Cluster, ClusterID: c.ID(),
		MinVersion: wire.MinVersion, Version: c.Version, Scheme: c.Scheme, Proto: proto,
		Nonce: make([]byte, 32), Want: h.want,
	}
	if _, err := rand.Read(hello.Nonce); err != nil {
		return hello, err
	}
	if len(h.secrets) == 0 {
		return hello, nil
	}
	var err error
	if h.private, err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
		return hello, err
	}
	hello.Public = h.private.PublicKey().Bytes()
	return hello, nil
}

// dial sends the protocol's byte and a hello, reads the answer and its proof, and
// proves itself.
func (h *handshake) dial(proto byte) error {
	hello, err := h.hello(proto)
	if err != nil {
		return err
	}
	for _, k := range h.secrets {
		hello.Keys = append(hello.Keys, tag(k, hello.Nonce))
	}
	own := wire.AppendHello(nil, &hello)
	if _, err := h.conn.Write(wire.AppendFrame([]byte{proto}, wire.KindHello, own)); err != nil {
		return fmt.Errorf("send hello: %w", err)
	}
	theirs, err := h.readHello()
	if err != nil {
		return err
	}
	if err := h.check(); err != nil {
		return err
	}
	if len(h.secrets) > 0 != (len(h.peer.Keys) == 1) {
		return refused(ReasonSecret)
	}
	if len(h.peer.Keys) == 1 {
		if h.key = match(h.secrets, h.peer.Nonce, h.peer.Keys[0]); h.key == nil {
			return refused(ReasonSecret)
		}
	}
	h.transcript(proto, own, theirs)
	if h.key == nil {
		return nil
	}
	if err := h.agree(); err != nil {
		return err
	}
	if err := h.verify("acceptor"); err != nil {
		return err
	}
	return h.prove("dialler")
}

// accept is the other side of dial. It tells the peer why it refuses.
func (h *handshake) accept() error {
	proto := make([]byte, 1)
	if _, err := h.conn.Read(proto); err != nil {
		return fmt.Errorf("read protocol: %w", err)
	}
	theirs, err := h.readHello()
	if err != nil {
		return err
	}
	err = h.check()
	if err == nil && (h.peer.Proto != proto[0] || !h.m.serves(proto[0])) {
		err = refused(ReasonProto)
	}
	if err == nil && len(h.secrets) > 0 != (len(h.peer.Keys) > 0) {
		err = refused(ReasonSecret)
	}
	for _, t := range h.peer.Keys {
		if h.key = match(h.secrets, h.peer.Nonce, t); h.key != nil {
			break
		}
	}
	if err == nil && len(h.secrets) > 0 && h.key == nil {
		err = refused(ReasonSecret)
	}
	if err != nil {
		h.refuse(err)
		return err
	}
	hello, err := h.hello(proto[0])
	if err != nil {
		return err
	}
	if h.key != nil {
		hello.Keys = [][]byte{tag(h.key, hello.Nonce)}
	}
	own := wire.AppendHello(nil, &hello)
	out := wire.AppendFrame(nil, wire.KindHello, own)
	h.transcript(proto[0], theirs, own)
	if h.key == nil {
		_, err = h.conn.Write(out)
		return err
	}
	if err := h.agree(); err != nil {
		h.refuse(refused(ReasonMalformed))
		return err
	}
	out = wire.AppendFrame(out, wire.KindProof, h.derive("proof of acceptor"))
	if _, err := h.conn.Write(out); err != nil {
		return fmt.Errorf("send hello: %w", err)
	}
	return h.verify("dialler")
}

// check compares what must agree before any trust exists.
func (h *handshake) check() error {
	c, p := &h.m.cfg, &h.peer
	id := c.ID()
	switch {
	case p.Version < wire.MinVersion || p.MinVersion > c.Version:
		return refused(ReasonVersion)
	case p.Cluster != c.Cluster:
		return refused(ReasonCluster)
	case id != "" && p.ClusterID != "" && p.ClusterID != id:
		return refused(ReasonClusterID)
	case p.Scheme != c.Scheme:
		return refused(ReasonScheme)
	case p.Router == c.Self:
		return refused(ReasonSelf)
	case p.Router == "" || p.Boot == 0 || len(p.Nonce) != 32:
		return refused(ReasonMalformed)
	}
	return nil
}

func (h *handshake) readHello() ([]byte, error) {
	b, err := h.read(wire.KindHello)
	if err != nil {
		return nil, err
	}
	if h.peer, err = h.dec.Hello(b); err != nil {
		return nil, errors.Join(refused(ReasonMalformed), err)
	}
	return append([]byte(nil), b...), nil
}

func (h *handshake) read(want wire.Kind) ([]byte, error) {
	head, b, err := h.frames.Next()
	switch {
	case errors.Is(err, wire.ErrTooLarge):
		return nil, errors.Join(refused(ReasonMalformed), err)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", want, err)
	case head.Kind == wire.KindRefuse:
		reason, err := h.dec.Refuse(b)
		if err != nil || !known(reason) {
			reason = ReasonMalformed
		}
		return nil, &RefusedError{Reason: reason, Remote: true}
	case head.Kind != want:
		return nil, refused(ReasonMalformed)
	}
	return b, nil
}

func known(reason string) bool {
	for _, r := range reasons {
		if r == reason {
			return true
		}
	}
	return false
}

func (h *handshake) refuse(err error) {
	var r *RefusedError
	if errors.As(err, &r) {
		// The connection is given up whether or not the peer learns why.
		_, _ = h.conn.Write(wire.AppendFrame(nil, wire.KindRefuse, wire.AppendRefuse(nil, r.Reason)))
	}
}

// transcript binds everything later to what both sides said: the dialler's hello
// first.
func (h *handshake) transcript(proto byte, first, second []byte) {
	s := sha256.New()
	s.Write([]byte{proto})
	for _, b := range [][]byte{first, second, h.binding} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		s.Write(n[:])
		s.Write(b)
	}
	h.sum = s.Sum(nil)
}

// agree computes the secret of the ephemeral keys.
func (h *handshake) agree() error {
	pub, err := ecdh.X25519().NewPublicKey(h.peer.Public)
	if err == nil {
		h.shared, err = h.private.ECDH(pub)
	}
	if err != nil {
		return errors.Join(refused(ReasonMalformed), err)
	}
	return nil
}

// derive gives 32 bytes that only holders of the shared key who took part in this
// handshake know.
func (h *handshake) derive(what string) []byte {
	secret := append(append([]byte(nil), h.shared...), h.key...)
	return must(hkdf.Key(sha256.New, secret, h.sum, "hearsay mesh 1 "+what, 32))
}

// must is for derivations that fail only for lengths no caller asks for.
func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func (h *handshake) prove(who string) error {
	out := wire.AppendFrame(nil, wire.KindProof, h.derive("proof of "+who))
	if _, err := h.conn.Write(out); err != nil {
		return fmt.Errorf("send proof: %w", err)
	}
	return nil
}

func (h *handshake) verify(who string) error {
	b, err := h.read(wire.KindProof)
	if err != nil {
		return err
	}
	if !hmac.Equal(b, h.derive("proof of "+who)) {
		return refused(ReasonSecret)
	}
	return nil
}
