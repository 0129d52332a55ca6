package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/proxy/gateway"
)

// Limits bound what clients and replicas can make the router hold. The zero value
// of a field means its default.
type Limits struct {
	HeaderBytes int // of a request's head; 16 KiB
	BodyBytes   int // of a request's body, after decoding too; 64 MiB
	BodyBudget  int // of all requests being read or not yet answered together; 1 GiB
	Conns       int // client connections at a time; 20,000

	ReadStall    time.Duration // between two pieces of a request; 30 s
	ReadTotal    time.Duration // for a whole request, head and body; 10 min
	Idle         time.Duration // of a client connection between requests; 2 min
	ConnAge      time.Duration // after which a client connection is closed behind an answer; 10 min
	WriteStall   time.Duration // for a client to take 64 KiB of an answer; 30 s
	Unacked      time.Duration // data on the wire that nobody acknowledges; 20 s, at least 5 s more than WriteStall
	Drain        time.Duration // for requests under way at shutdown; 30 s
	ClientBuffer int           // kernel send buffer per client connection, bytes; 256 KiB

	ReplicaConns   int // connections to one replica at a time; 4,096
	UpstreamBuffer int // kernel receive buffer per upstream connection, bytes; 256 KiB
	UsageBytes     int // of an answer that is kept to read its usage; 1 MiB
	ErrorBytes     int // of a replica's error answer; 1 MiB
	Picks          int // past picks remembered for explain; 1,024
}

func (l *Limits) fill() {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	dur := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	def(&l.HeaderBytes, 16<<10)
	def(&l.BodyBytes, 64<<20)
	def(&l.BodyBudget, 1<<30)
	def(&l.Conns, 20_000)
	dur(&l.ReadStall, 30*time.Second)
	dur(&l.ReadTotal, 10*time.Minute)
	dur(&l.Idle, 2*time.Minute)
	dur(&l.ConnAge, 10*time.Minute)
	dur(&l.WriteStall, 30*time.Second)
	dur(&l.Unacked, 20*time.Second)
	// Systems count a closed window as well: a client that has not read for a while
	// is for WriteStall to judge.
	l.Unacked = max(l.Unacked, l.WriteStall+5*time.Second)
	dur(&l.Drain, 30*time.Second)
	def(&l.ClientBuffer, 256<<10)
	def(&l.ReplicaConns, 4096)
	def(&l.UpstreamBuffer, 256<<10)
	def(&l.UsageBytes, 1<<20)
	def(&l.ErrorBytes, 1<<20)
	def(&l.Picks, 1024)
}

// Readiness is a router's word on whether it should get traffic.
type Readiness struct {
	Ready   bool              `json:"ready"`
	Reasons map[string]string `json:"reasons,omitempty"` // what is missing, by part
}

// Config is what a Server needs. It is only read.
type Config struct {
	Core CoreConfig

	// Listeners accept clients; TLS, if any, is theirs. The server closes them.
	Listeners []net.Listener
	// Dial opens a connection to a replica; addr is host:port. nil: Dialer.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// UpstreamTLS is used for replicas with an https URL; nil: the system's roots.
	UpstreamTLS *tls.Config
	// Gate tells whose requests are; nil: nobody's keys are known, and none are needed.
	Gate *gateway.Gate
	// Ready says whether the router is ready, apart from its shutting down; nil:
	// always.
	Ready func() Readiness
	// Getenv reads the credentials that pools name; nil: none are sent.
	Getenv func(string) string

	// Debug lets clients ask with x-hearsay-debug: 1 which replica was picked and
	// why; the answer's headers then name replicas.
	Debug bool

	Limits   Limits
	Logger   zerolog.Logger
	Registry prometheus.Registerer // nil: metrics are kept and not registered

	// NoDate leaves the Date header out. The HTTP library's clock for it is a
	// goroutine that never ends, so tests in bubbles set this.
	NoDate bool
}

// Validate reports everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var errs []error
	if len(c.Listeners) == 0 {
		errs = append(errs, errors.New("no listener"))
	}
	if err := c.Core.Validate(); err != nil {
		errs = append(errs, err)
	}
	for name, v := range map[string]int{
		"header bytes": c.Limits.HeaderBytes, "body bytes": c.Limits.BodyBytes, "body budget": c.Limits.BodyBudget, "connections": c.Limits.Conns,
		"replica connections": c.Limits.ReplicaConns, "usage bytes": c.Limits.UsageBytes,
		"error bytes": c.Limits.ErrorBytes, "picks": c.Limits.Picks,
	} {
		if v < 0 {
			errs = append(errs, fmt.Errorf("limit of %s is negative", name))
		}
	}
	return errors.Join(errs...)
}
