package node

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/cluster/consensus"
	"github.com/hearsay-llm/hearsay/proxy"
)

// Deps are what a node takes from outside, so that tests can run it over a network
// in memory. The zero value is a node on the real network and disk.
type Deps struct {
	Log zerolog.Logger

	Listen       func(network, addr string) (net.Listener, error)
	ListenPacket func(network, addr string) (net.PacketConn, error)
	Dial         func(ctx context.Context, network, addr string) (net.Conn, error)
	Getenv       func(string) string
	// Resolve turns a host name of cluster.join into addresses; nil: the system's.
	Resolve func(ctx context.Context, host string) ([]string, error)

	// Load reads the configuration again, for a reload; nil: it can't be. Hangup tells
	// when to; nil: only the admin API does.
	Load   func() (Config, error)
	Hangup <-chan struct{}

	// Memory keeps the Raft log in memory instead of on disk.
	Memory *consensus.Memory
	// NoDate leaves the Date header out of answers: in a bubble the HTTP library's
	// date clock would never end.
	NoDate bool
	// ReadEvery is the time between two readings of an engine; 0: the default.
	ReadEvery time.Duration
}

func (d *Deps) fill() {
	if d.Listen == nil {
		d.Listen = net.Listen
	}
	if d.ListenPacket == nil {
		d.ListenPacket = net.ListenPacket
	}
	if d.Dial == nil {
		d.Dial = proxy.Dialer().DialContext
	}
	if d.Getenv == nil {
		d.Getenv = os.Getenv
	}
}
