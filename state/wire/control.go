package wire

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Hello opens a connection in both directions.
type Hello struct {
	Router     state.RouterID
	Boot       state.BootID
	Name       string
	Cluster    string // label
	ClusterID  string // committed id; empty: none yet
	MinVersion uint64
	Version    uint64
	Scheme     string // of prefix hashing
	Proto      byte   // what the connection is for
	Nonce      []byte
	Public     []byte   // ephemeral X25519 key; empty without a secret
	Keys       [][]byte // tags of the shared keys held, preferred first; the answer names the one chosen

	// Want is whom the dialler looks for; empty: whoever answers (so with releases that
	// do not know the field). It comes last.
	Want state.RouterID
}

const (
	maxNonce = 64
	maxKeys  = 8
)

// AppendHello appends the message.
func AppendHello(dst []byte, m *Hello) []byte {
	e := encoder{b: dst}
	e.str(string(m.Router))
	e.fixed(uint64(m.Boot))
	e.str(m.Name)
	e.str(m.Cluster)
	e.str(m.ClusterID)
	e.uint(m.MinVersion)
	e.uint(m.Version)
	e.str(m.Scheme)
	e.byte(m.Proto)
	e.bytes(m.Nonce)
	e.bytes(m.Public)
	e.uint(uint64(len(m.Keys)))
	for _, k := range m.Keys {
		e.bytes(k)
	}
	if m.Want != "" {
		e.str(string(m.Want))
	}
	return e.b
}

// Hello reads the message.
func (d *Decoder) Hello(b []byte) (m Hello, err error) {
	r := reader{dec: d, b: b}
	m.Router = state.RouterID(r.str())
	m.Boot = state.BootID(r.fixed())
	m.Name = r.str()
	m.Cluster = r.str()
	m.ClusterID = r.str()
	m.MinVersion = r.uint()
	m.Version = r.uint()
	m.Scheme = r.str()
	m.Proto = r.byte()
	short := func() []byte {
		v := r.bytes()
		if len(v) > maxNonce {
			r.fail("value too long")
		}
		return append([]byte(nil), v...)
	}
	m.Nonce = short()
	m.Public = short()
	n := r.list()
	if n > maxKeys {
		r.fail("too many keys")
	}
	for range n {
		if r.err != nil {
			break
		}
		m.Keys = append(m.Keys, short())
	}
	if r.more() {
		m.Want = state.RouterID(r.str())
	}
	if r.err != nil {
		return Hello{}, r.err
	}
	return m, nil
}

// AppendRefuse appends why a connection is refused.
func AppendRefuse(dst []byte, reason string) []byte {
	e := encoder{b: dst}
	e.str(reason)
	return e.b
}

// Refuse reads what AppendRefuse wrote.
func (d *Decoder) Refuse(b []byte) (reason string, err error) {
	r := reader{dec: d, b: b}
	return r.str(), r.err
}

// AppendPing appends a ping or pong: the pinger's own time, which comes back.
func AppendPing(dst []byte, at time.Duration) []byte {
	e := encoder{b: dst}
	e.duration(at)
	return e.b
}

// Ping reads what AppendPing wrote.
func (d *Decoder) Ping(b []byte) (at time.Duration, err error) {
	r := reader{dec: d, b: b}
	return r.duration(), r.err
}

// Call asks a peer to do something; what Payload means is Method's business.
type Call struct {
	ID      uint64
	Method  string
	Payload []byte // refers to the input when decoded
}

// AppendCall appends the message.
func AppendCall(dst []byte, m *Call) []byte {
	e := encoder{b: dst}
	e.uint(m.ID)
	e.str(m.Method)
	e.bytes(m.Payload)
	return e.b
}

// Call reads the message.
func (d *Decoder) Call(b []byte) (m Call, err error) {
	r := reader{dec: d, b: b}
	m.ID, m.Method, m.Payload = r.uint(), r.str(), r.bytes()
	return m, r.err
}

// Reply answers a Call.
type Reply struct {
	ID      uint64
	Code    uint64 // 0: done; else the caller's mesh says what it means
	Err     string
	Payload []byte // refers to the input when decoded
}

// AppendReply appends the message.
func AppendReply(dst []byte, m *Reply) []byte {
	e := encoder{b: dst}
	e.uint(m.ID)
	e.uint(m.Code)
	e.str(m.Err)
	e.bytes(m.Payload)
	return e.b
}

// Reply reads the message.
func (d *Decoder) Reply(b []byte) (m Reply, err error) {
	r := reader{dec: d, b: b}
	m.ID, m.Code, m.Err, m.Payload = r.uint(), r.uint(), r.str(), r.bytes()
	return m, r.err
}

// Beacon is what a router says of itself once a second. Its reply measures delay.
type Beacon struct {
	Router   state.RouterID
	Boot     state.BootID
	Sent     time.Duration // since the boot began; comes back in the reply
	UDPQuiet bool          // no datagram of the receiver's arrived for a while
	Hears    []state.BootID
	Leaving  bool   // it goes on its own wish: its last word
	Addr     string // of its membership port, host:port

	// Since version 2; not written for an older one:
	Version uint64 // wire version of the sender, at least 1
	Same    bool   // Hears is what it was in the beacon before, and left out
}

// maxHears bounds the routers one beacon names.
const maxHears = 4096

// AppendBeacon appends the message. Hears are the boots whose news the router gets
// from themselves, so that nobody needs to relay them to it.
func AppendBeacon(dst []byte, m *Beacon) []byte {
	e := encoder{b: dst}
	e.str(string(m.Router))
	e.fixed(uint64(m.Boot))
	e.duration(m.Sent)
	e.bool(m.UDPQuiet)
	hears := m.Hears[:min(len(m.Hears), maxHears)]
	e.uint(uint64(len(hears)))
	for _, b := range hears {
		e.fixed(uint64(b))
	}
	e.bool(m.Leaving)
	e.str(m.Addr)
	if m.Version >= 2 {
		e.uint(m.Version)
		e.bool(m.Same)
	}
	return e.b
}

// Beacon reads the message.
func (d *Decoder) Beacon(b []byte) (m Beacon, err error) {
	r := reader{dec: d, b: b}
	m.Router = state.RouterID(r.str())
	m.Boot = state.BootID(r.fixed())
	m.Sent = r.duration()
	m.UDPQuiet = r.bool()
	n := r.list()
	if n > maxHears || n > len(r.b)/8 {
		r.fail("list length")
	}
	for range n {
		if r.err != nil {
			return Beacon{}, r.err
		}
		m.Hears = append(m.Hears, state.BootID(r.fixed()))
	}
	m.Leaving = r.bool()
	m.Addr = r.str()
	m.Version = 1
	if r.more() {
		m.Version = max(2, r.uint())
		m.Same = r.bool()
	}
	return m, r.err
}

// BeaconReply answers a Beacon once the receiver's apply loop got to it.
type BeaconReply struct {
	Boot state.BootID // of the replier
	Sent time.Duration
}

// AppendBeaconReply appends the message.
func AppendBeaconReply(dst []byte, m *BeaconReply) []byte {
	e := encoder{b: dst}
	e.fixed(uint64(m.Boot))
	e.duration(m.Sent)
	return e.b
}

// BeaconReply reads the message.
func (d *Decoder) BeaconReply(b []byte) (m BeaconReply, err error) {
	r := reader{dec: d, b: b}
	m.Boot = state.BootID(r.fixed())
	m.Sent = r.duration()
	return m, r.err
}

// Resume tells a peer how much of its journal is here. A cursor it no longer
// holds, or one of an earlier boot, makes it send a snapshot; Tail asks it to go on
// from about now without one.
type Resume struct {
	Boot   state.BootID // whose journal Cursor counts; 0: nothing is known
	Cursor uint64
	Tail   bool
}

// AppendResume appends the message.
func AppendResume(dst []byte, m *Resume) []byte {
	e := encoder{b: dst}
	e.fixed(uint64(m.Boot))
	e.uint(m.Cursor)
	e.bool(m.Tail)
	return e.b
}

// Resume reads the message.
func (d *Decoder) Resume(b []byte) (m Resume, err error) {
	r := reader{dec: d, b: b}
	m.Boot = state.BootID(r.fixed())
	m.Cursor = r.uint()
	m.Tail = r.bool()
	return m, r.err
}

// SnapshotEnd closes a snapshot: everything up to Cursor has been sent.
type SnapshotEnd struct {
	Cursor uint64
}

// AppendSnapshotEnd appends the message.
func AppendSnapshotEnd(dst []byte, m *SnapshotEnd) []byte {
	e := encoder{b: dst}
	e.uint(m.Cursor)
	return e.b
}

// SnapshotEnd reads the message.
func (d *Decoder) SnapshotEnd(b []byte) (m SnapshotEnd, err error) {
	r := reader{dec: d, b: b}
	m.Cursor = r.uint()
	return m, r.err
}

// Meta is what membership carries of a router: small, since it travels in every
// datagram about it.
type Meta struct {
	Boot       state.BootID
	MinVersion uint64
	Version    uint64
	Scheme     string
	MeshAddr   string // host:port; an empty or unspecified host is the member's own
	APIAddr    string // likewise
	Name       string // for people
	AdminAddr  string // like APIAddr; empty: not told, as by earlier releases
}

// MaxMeta bounds the encoded Meta in bytes.
const MaxMeta = 512

// maxAdminAddr has room for an IPv6 address and a port.
const maxAdminAddr = 48

// AppendMeta appends the message. Over-long names are cut, so that it never
// exceeds MaxMeta. An admin address that is too long is left out: half of one is none.
func AppendMeta(dst []byte, m *Meta) []byte {
	cut := func(s string, n int) string { return s[:min(len(s), n)] }
	e := encoder{b: dst}
	e.fixed(uint64(m.Boot))
	e.uint(m.MinVersion)
	e.uint(m.Version)
	e.str(cut(m.Scheme, 32))
	e.str(cut(m.MeshAddr, 128))
	e.str(cut(m.APIAddr, 128))
	e.str(cut(m.Name, 128))
	if n := len(m.AdminAddr); n > 0 && n <= maxAdminAddr {
		e.str(m.AdminAddr)
	}
	return e.b
}

// Meta reads the message.
func (d *Decoder) Meta(b []byte) (m Meta, err error) {
	r := reader{dec: d, b: b}
	m.Boot = state.BootID(r.fixed())
	m.MinVersion, m.Version = r.uint(), r.uint()
	m.Scheme, m.MeshAddr, m.APIAddr, m.Name = r.str(), r.str(), r.str(), r.str()
	if r.more() {
		m.AdminAddr = r.str()
	}
	return m, r.err
}
