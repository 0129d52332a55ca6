package discovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Resolver asks for names; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

// DNSConfig says which name stands for a pool's replicas.
type DNSConfig struct {
	Name   string
	SRV    bool   // ask for SRV records, which have ports, and not for addresses
	Port   int    // of replicas that are found by their addresses
	Scheme string // default http
	Role   state.Role
	Every  time.Duration // between two looks; default DefaultDNSEvery
	// Confirm is how many answers in a row must lack a replica until it is one no more.
	// Default DefaultDNSConfirm.
	Confirm  int
	Resolver Resolver
}

// Defaults of a DNSConfig.
const (
	DefaultDNSEvery   = 10 * time.Second
	DefaultDNSConfirm = 3
)

// dnsWait bounds one look.
const dnsWait = 5 * time.Second

// DNS is a name's addresses (A, AAAA), or the targets of its SRV records.
type DNS struct {
	cfg  DNSConfig
	asks []ask
	had  []map[string]int // by ask: host:port -> answers in a row that lacked it
	ever bool             // there was an answer
}

// ask is one question, and what its answer lists.
type ask func(ctx context.Context) (hostPorts []string, err error)

// NewDNS makes a source of a name, which need not resolve yet.
func NewDNS(cfg DNSConfig) *DNS {
	if cfg.Every == 0 {
		cfg.Every = DefaultDNSEvery
	}
	if cfg.Confirm == 0 {
		cfg.Confirm = DefaultDNSConfirm
	}
	if cfg.Scheme == "" {
		cfg.Scheme = "http"
	}
	d := &DNS{cfg: cfg}
	if cfg.SRV {
		d.asks = []ask{d.srv}
	} else { // one by one: a family that fails must not look like one without addresses
		d.asks = []ask{d.addresses("ip4"), d.addresses("ip6")}
	}
	for range d.asks {
		d.had = append(d.had, map[string]int{})
	}
	return d
}

// Kind is KindDNS.
func (d *DNS) Kind() string { return KindDNS }

// Where is the name.
func (d *DNS) Where() string { return d.cfg.Name }

// Doubtful is true: a server that has just started may know no names yet.
func (d *DNS) Doubtful() bool { return true }

// Run asks until ctx ends.
func (d *DNS) Run(ctx context.Context, report func(Snapshot)) error {
	for {
		x := d.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		report(x)
		wait(ctx, jitter(d.cfg.Every))
	}
}

// jitter spreads what many routers do in the same rhythm.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-.5)*.2*float64(d))
}

// look asks once.
func (d *DNS) look(ctx context.Context) Snapshot {
	ctx, cancel := context.WithTimeout(ctx, dnsWait)
	defer cancel()
	type answer struct {
		list []string
		err  error
	}
	answers := make([]answer, len(d.asks))
	done := make(chan struct{}, len(d.asks))
	for i, ask := range d.asks {
		go func() {
			answers[i].list, answers[i].err = ask(ctx)
			done <- struct{}{}
		}()
	}
	for range d.asks {
		<-done
	}
	var failed error
	good, missing := 0, 0
	for i, a := range answers {
		switch {
		case a.err == nil || notFound(a.err):
			good++
			if len(a.list) == 0 {
				missing++
			}
			d.note(i, a.list)
		default:
			failed = dnsFault(a.err)
		}
	}
	x := Snapshot{Replicas: d.list()}
	switch {
	case good == 0:
		return Snapshot{Err: failed}
	case failed != nil: // the half that answers is believed, the other one is as it was
		x.Err, x.Partial = failed, true
	case missing == good && !d.ever:
		return Snapshot{Err: errors.New("does not resolve yet")}
	case missing == good: // what it lists yet waits for more such answers
		x.Err, x.Partial = errors.New("does not resolve any more"), true
	}
	d.ever = d.ever || missing < good
	return x
}

// note takes one answer in: what it lists is there, what it lacks misses once more.
func (d *DNS) note(i int, list []string) {
	had := d.had[i]
	for a := range had {
		if !slices.Contains(list, a) {
			if had[a]++; had[a] >= d.cfg.Confirm {
				delete(had, a)
			}
		}
	}
	for _, a := range list {
		had[a] = 0
	}
}

func (d *DNS) list() (found []Found) {
	for _, had := range d.had {
		for _, a := range slices.Sorted(maps.Keys(had)) {
			found = append(found, Found{URL: d.cfg.Scheme + "://" + a, Role: d.cfg.Role})
		}
	}
	return found
}

func (d *DNS) addresses(network string) ask {
	return func(ctx context.Context) (list []string, err error) {
		ips, err := d.cfg.Resolver.LookupNetIP(ctx, network, d.cfg.Name)
		for _, ip := range ips {
			list = append(list, net.JoinHostPort(ip.Unmap().String(), strconv.Itoa(d.cfg.Port)))
		}
		return list, err
	}
}

// srv lists the targets of the best priority: the others are for when those are gone.
func (d *DNS) srv(ctx context.Context) (list []string, err error) {
	_, records, err := d.cfg.Resolver.LookupSRV(ctx, "", "", d.cfg.Name)
	if len(records) > 0 {
		err = nil // Go tells that it has left out names that are none
	}
	for _, r := range records {
		host := strings.TrimSuffix(r.Target, ".")
		if host == "" || r.Priority > records[0].Priority { // sorted by priority
			continue
		}
		list = append(list, net.JoinHostPort(strings.ToLower(host), strconv.Itoa(int(r.Port))))
	}
	return list, err
}

// notFound reports whether the answer is that there is no such name, or nothing of
// the kind asked for. Go does not tell the two apart.
func notFound(err error) bool {
	var d *net.DNSError
	return errors.As(err, &d) && d.IsNotFound
}

// dnsFault puts a failure in words that are the same each time: Go's name ports.
func dnsFault(err error) error {
	var d *net.DNSError
	switch {
	case errors.As(err, &d) && d.IsTimeout, errors.Is(err, context.DeadlineExceeded):
		return errors.New("the DNS server does not answer in time")
	case errors.As(err, &d) && (d.IsTemporary || strings.Contains(d.Err, "misbehaving")):
		return errors.New("the DNS server fails (SERVFAIL or REFUSED)")
	case errors.As(err, &d) && strings.Contains(d.Err, "refused"):
		return errors.New("nobody answers at the DNS server's address")
	case errors.As(err, &d):
		return fmt.Errorf("can't be resolved: %s", clip(d.Err))
	}
	return fmt.Errorf("can't be resolved: %s", clip(err.Error()))
}
