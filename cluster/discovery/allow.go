package discovery

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Allow says where replicas may be that somebody else than the configuration names.
// The zero value allows every host but those that no replica has: addresses that are
// link-local (where clouds keep their secrets), multicast or unspecified.
type Allow struct {
	nets  []netip.Prefix
	hosts []string // in lower case; one that begins with a dot stands for all names below
}

// ParseAllow reads a list of networks (10.0.0.0/8), addresses, host names (vllm-0) and
// suffixes of host names (.svc.cluster.local, or *.svc.cluster.local).
func ParseAllow(list []string) (a Allow, err error) {
	for _, s := range list {
		if p, err := netip.ParsePrefix(s); err == nil {
			if p.Addr().Is4In6() {
				return a, fmt.Errorf("%q: write an IPv4 network as such", s)
			}
			a.nets = append(a.nets, p.Masked())
			continue
		}
		if ip, err := netip.ParseAddr(s); err == nil {
			ip = ip.Unmap()
			a.nets = append(a.nets, netip.PrefixFrom(ip, ip.BitLen()))
			continue
		}
		host := strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(s, "*"), "."))
		if !isHost(strings.TrimPrefix(host, ".")) || strings.HasPrefix(s, "*") && !strings.HasPrefix(host, ".") {
			return a, fmt.Errorf("%q is no network such as 10.0.0.0/8, host name, or suffix such as .svc.cluster.local", s)
		}
		a.hosts = append(a.hosts, host)
	}
	return a, nil
}

func isHost(s string) bool {
	return s != "" && !strings.HasPrefix(s, ".") && !strings.Contains(s, "..") && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	})
}

// metadata are names under which clouds answer with secrets.
var metadata = []string{"metadata.google.internal", "metadata"}

// Check says why a replica must not be at a normal URL, or nil.
func (a Allow) Check(normal string) error {
	u, err := url.Parse(normal)
	if err != nil {
		return err
	}
	host := u.Hostname()
	ip, err := netip.ParseAddr(host)
	isIP := err == nil
	switch {
	case isIP && slices.ContainsFunc(a.nets, func(p netip.Prefix) bool { return p.Contains(ip.WithZone("")) }):
		return nil
	case !isIP && slices.ContainsFunc(a.hosts, func(h string) bool {
		return host == h || strings.HasPrefix(h, ".") && strings.HasSuffix(host, h)
	}):
		return nil
	case len(a.nets)+len(a.hosts) > 0 && isIP:
		return fmt.Errorf("no network of the allow list has its address")
	case len(a.nets)+len(a.hosts) > 0:
		return fmt.Errorf("the allow list does not have its host name")
	case isIP && (ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255})),
		ip == netip.MustParseAddr("fd00:ec2::254"), slices.Contains(metadata, host):
		return fmt.Errorf("no replica has such an address, unless the allow list says so")
	}
	return nil
}
