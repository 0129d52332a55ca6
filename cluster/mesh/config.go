package mesh

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// Config is what a Mesh needs. The zero value of every duration and bound is its
// default.
type Config struct {
	Self    state.RouterID
	Boot    state.BootID
	Name    string        // for people
	Cluster string        // label; routers of another are refused
	Scheme  string        // of prefix hashing; routers of another are refused
	Version uint64        // wire version to offer; default wire.Version
	ID      func() string // committed cluster id, empty while there is none; nil: never

	Secret [][]byte    // shared keys, the one to use first; empty: none; see SetSecrets
	TLS    *tls.Config // for both sides; nil: none

	Listener net.Listener // closed by Run
	Dial     func(ctx context.Context, addr string) (net.Conn, error)

	Log        zerolog.Logger
	Registerer prometheus.Registerer // nil: no metrics

	QueueBytes   int           // per peer, not yet written; default 4 MiB
	Idle         time.Duration // a stream silent for so long is dead; default 2 s
	DialTimeout  time.Duration // for dialling and the handshake; default 2 s
	WriteTimeout time.Duration // a stream that takes nothing for so long is dead; default 5 s
	MaxBackoff   time.Duration // between dials; default 2 s
	Grace        time.Duration // before the higher id dials; default 3 s
}

// Validate joins all faults.
func (c *Config) Validate() error {
	var errs []error
	for _, f := range []struct {
		bad  bool
		what string
	}{
		{c.Self == "", "router id is empty"},
		{c.Boot == 0, "boot id is zero"},
		{c.Listener == nil, "listener is missing"},
		{c.Dial == nil, "dial function is missing"},
		{c.QueueBytes < 0, "queue bytes are negative"},
	} {
		if f.bad {
			errs = append(errs, errors.New(f.what))
		}
	}
	return errors.Join(append(errs, checkSecrets(c.Secret))...)
}

func (c *Config) setDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.Idle, 2*time.Second)
	def(&c.DialTimeout, 2*time.Second)
	def(&c.WriteTimeout, 5*time.Second)
	def(&c.MaxBackoff, 2*time.Second)
	def(&c.Grace, 3*time.Second)
	if c.QueueBytes == 0 {
		c.QueueBytes = 4 << 20
	}
	if c.Version == 0 {
		c.Version = wire.Version
	}
	if c.ID == nil {
		c.ID = func() string { return "" }
	}
}

// callBytes is what calls and replies may queue beyond QueueBytes, so that data
// never starves them and one of the largest always fits.
const callBytes = 2 * wire.MaxFrame
