package node

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"

	"github.com/hearsay-llm/hearsay/state"
)

// ports reports listen addresses that take each other's port. The mesh is on the
// port after the cluster's.
func (f *faults) ports(c *Config) {
	type taken struct{ key, host string }
	used := map[int]taken{}
	use := func(key, addr string, next int) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return
		}
		n, err := strconv.Atoi(port)
		if err != nil || n == 0 {
			return
		}
		other, ok := used[n+next]
		if ok && (host == other.host || unspecified(host) || unspecified(other.host)) {
			f.between(key, other.key, "port %d is %s's too", n+next, other.key)
		}
		used[n+next] = taken{key, host}
	}
	use("listen.api", c.Listen.API, 0)
	use("listen.admin", c.Listen.Admin, 0)
	use("listen.cluster", c.Listen.Cluster, 0)
	use("listen.cluster (the mesh, on the next port)", c.Listen.Cluster, 1)
}

func unspecified(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

func (f *faults) addr(key, s string) {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		hint := ""
		if n, err := strconv.Atoi(s); err == nil {
			if n >= 0 && n <= 65535 {
				if hint = ": write :" + s; key != "listen.api" {
					hint = ": write 127.0.0.1:" + s // beyond loopback they need a secret
				}
			}
		} else if ip, err := netip.ParseAddr(s); err == nil || hostName.MatchString(s) {
			if err == nil {
				s = ip.String()
			}
			hint = ": write " + net.JoinHostPort(s, usualPort(key))
		}
		f.add(key, "%q is not host:port%s", s, hint)
		return
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		f.add(key, "%q has no port from 0 to 65535", s)
	}
}

// hostName is what a host may be called, where the port was left out.
var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)

// usualPort is an address's port where nothing else was chosen.
func usualPort(key string) string {
	switch key {
	case "listen.api":
		return "8080"
	case "listen.admin":
		return "8081"
	}
	return "7946"
}

// beyond reports whether an address is reached from elsewhere; one that is none is
// told of otherwise.
func beyond(addr string) bool {
	_, _, err := net.SplitHostPort(addr)
	return err == nil && !loopback(addr)
}

// loopback reports whether an address to listen on is only reachable from this
// host.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// NormalURL checks a replica's URL and gives the one form it is known by.
func NormalURL(s string) (string, error) { return state.NormalURL(s) }
