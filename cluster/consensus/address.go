package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/hearsay-llm/hearsay/state"
)

// Raft's server addresses are "id@addr". Addresses are reused: an append meant for
// one router that reached another would be counted as the first one's vote for the
// entry. So a connection begins with the id it is meant for, and the other side
// refuses one that is not its own.

const (
	greeting  = 1 // version of what a connection begins with
	greeting2 = 2 // the same, with the sender's Facts.Recovered; sent where that is not 0
	maxIDSize = 1 << 10
)

var (
	errMisdirected = errors.New("the connection is meant for another router")
	errOlderLine   = errors.New("the connection is of a router whose log was superseded by a recovery")
)

func serverAddress(id state.RouterID, addr string) raft.ServerAddress {
	return raft.ServerAddress(string(id) + "@" + addr)
}

func splitAddress(a raft.ServerAddress) (state.RouterID, string) {
	i := strings.LastIndexByte(string(a), '@')
	if i < 0 {
		return "", string(a)
	}
	return state.RouterID(a[:i]), string(a[i+1:])
}

// greet says for whom a connection is, and of which line the sender's log is.
func greet(w io.Writer, id state.RouterID, line uint64) error {
	if len(id) > maxIDSize {
		return errors.New("router id too long")
	}
	version := byte(greeting)
	if line > 0 {
		version = greeting2
	}
	b := append([]byte{version}, binary.BigEndian.AppendUint16(nil, uint16(len(id)))...)
	b = append(b, id...)
	if line > 0 {
		b = binary.BigEndian.AppendUint64(b, line)
	}
	_, err := w.Write(b)
	return err
}

// heed reads a greeting and reports an error unless it is for self, and of a line that
// is not older than this router's.
func heed(r io.Reader, self state.RouterID, line uint64) error {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint16(head[1:]))
	if head[0] != greeting && head[0] != greeting2 || n > maxIDSize {
		return fmt.Errorf("greeting version %d is not known here", head[0])
	}
	rest := make([]byte, n, n+8)
	if head[0] == greeting2 {
		rest = rest[:n+8]
	}
	if _, err := io.ReadFull(r, rest); err != nil {
		return err
	}
	theirs := uint64(0)
	if head[0] == greeting2 {
		theirs = binary.BigEndian.Uint64(rest[n:])
	}
	switch {
	case state.RouterID(rest[:n]) != self:
		return errMisdirected
	case theirs < line:
		return errOlderLine
	}
	return nil
}

// greeted is an accepted connection whose greeting is read by the first Read, so
// that a peer which says nothing holds up nobody else. Raft reads from one
// goroutine.
type greeted struct {
	net.Conn
	self state.RouterID
	line func() uint64 // connections of an older one are refused
	ok   bool
}

// Read implements net.Conn.
func (g *greeted) Read(b []byte) (int, error) {
	if !g.ok {
		if err := heed(g.Conn, g.self, g.line()); err != nil {
			return 0, errors.Join(err, g.Close())
		}
		g.ok = true
	}
	return g.Conn.Read(b)
}

// addresses tells Raft where a server is now: where gossip last saw it, whatever
// the Raft configuration says of it. So a router that moved, or all of them at
// once, are reached without a leader's doing.
type addresses struct {
	peers func() []Peer

	mu   sync.Mutex
	seen map[state.RouterID]string // guarded by mu
}

var errUnseen = errors.New("gossip never saw the router")

// ServerAddr implements raft.ServerAddressProvider. With an error Raft takes the
// address in its configuration.
func (a *addresses) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.peers() {
		if p.ID == state.RouterID(id) && p.Addr != "" {
			// Only servers of the configuration are asked for, so this is bounded.
			a.seen[p.ID] = p.Addr
			break
		}
	}
	if addr, ok := a.seen[state.RouterID(id)]; ok {
		return serverAddress(state.RouterID(id), addr), nil
	}
	return "", errUnseen
}
