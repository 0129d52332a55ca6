package discovery

import (
	"context"
	"net"
	"net/netip"
)

// NewResolver asks one DNS server, host:port, or the system's where that is empty.
// Files such as /etc/hosts and search lists count as usual. That there is no such name
// is said only if no server failed on the way there: of a short name whose search list
// has the right domain, Go tells what became of the name without a domain.
func NewResolver(server string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) Resolver {
	one := func(strict bool) *net.Resolver {
		r := &net.Resolver{PreferGo: true, StrictErrors: strict}
		if server != "" {
			r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network, server) }
		}
		return r
	}
	return &resolver{usual: one(false), strict: one(true)}
}

// resolver asks as usual and, where nothing is found, once more, strictly: there a
// server that fails for one of the names that are tried fails the question.
type resolver struct{ usual, strict Resolver }

// LookupNetIP implements Resolver.
func (r *resolver) LookupNetIP(ctx context.Context, network, host string) (ips []netip.Addr, err error) {
	if ips, err = r.usual.LookupNetIP(ctx, network, host); notFound(err) {
		ips, err = r.strict.LookupNetIP(ctx, network, host)
	}
	return ips, err
}

// LookupSRV implements Resolver.
func (r *resolver) LookupSRV(ctx context.Context, service, proto, name string) (cname string, list []*net.SRV, err error) {
	if cname, list, err = r.usual.LookupSRV(ctx, service, proto, name); notFound(err) {
		cname, list, err = r.strict.LookupSRV(ctx, service, proto, name)
	}
	return cname, list, err
}
