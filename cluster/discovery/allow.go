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

// Names and addresses under which clouds answer with secrets, beyond those that are
// link-local: of Google, Amazon, Azure, Alibaba and Oracle.
var (
	metadata   = []string{"metadata.google.internal", "metadata.goog", "metadata", "instance-data", "instance-data.ec2.internal"}
	metadataIP = []netip.Addr{
		netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd20:ce::254"),
		netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("192.0.0.192"),
	}
)

// inner is the IPv4 address that an IPv6 address leads to through a translator (RFC 6052)
// or a tunnel (RFC 3056), else the address itself.
func inner(ip netip.Addr) netip.Addr {
	b := ip.As16()
	switch {
	case !ip.Is6():
	case nat64.Contains(ip.WithZone("")):
		return netip.AddrFrom4([4]byte(b[12:]))
	case sixToFour.Contains(ip.WithZone("")):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return ip
}

var nat64, sixToFour = netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("2002::/16")

// noReplicas reports whether no replica has an address.
func noReplicas(ip netip.Addr) bool {
	return ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}) ||
		slices.Contains(metadataIP, ip)
}

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
	case isIP && noReplicas(inner(ip)), slices.Contains(metadata, host):
		return fmt.Errorf("no replica has such an address, unless the allow list says so")
	}
	return nil
}
