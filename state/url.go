package state

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// NormalURL checks a replica's URL and gives the one form that it is known by: scheme
// and host in lower case, addresses as they are usually written, the port written
// out, no path. Two URLs are one replica's when their normal forms are equal: a name
// and its address are two. Hosts that look like others are refused: letters beyond
// ASCII, their encoded form (xn--), numbers that are read as addresses.
func NormalURL(s string) (string, error) {
	if i := strings.LastIndexByte(s, '@'); i >= 0 { // what stands before it may be secret
		return "", fmt.Errorf("the URL of %q has a user, or an @: give only scheme, host and port", s[i+1:])
	}
	u, err := url.Parse(strings.TrimSpace(s))
	if err != nil || u.Hostname() == "" {
		return "", fmt.Errorf("%q is not a URL such as http://10.0.0.1:8000", s)
	}
	scheme := strings.ToLower(u.Scheme)
	port := map[string]string{"http": "80", "https": "443"}[scheme]
	if port == "" {
		return "", fmt.Errorf("%q: the scheme must be http or https", s)
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return "", fmt.Errorf("%q: give only scheme, host and port", s)
	}
	if p := u.Port(); p != "" {
		n, err := strconv.Atoi(p)
		if err != nil || n < 1 || n > 65535 {
			return "", fmt.Errorf("%q: a port is 1 to 65535", s)
		}
		port = strconv.Itoa(n)
	}
	host, err := normalHost(u.Hostname())
	if err != nil {
		return "", fmt.Errorf("%q: %w", s, err)
	}
	return scheme + "://" + net.JoinHostPort(host, port), nil
}

// Authority is the part of a normal URL that names a replica: host:port.
func Authority(normal string) string {
	_, a, _ := strings.Cut(normal, "://")
	return a
}

// normalHost is the usual form of a host name or address.
func normalHost(s string) (string, error) {
	if ip, err := netip.ParseAddr(s); err == nil {
		return ip.Unmap().String(), nil
	}
	s = strings.ToLower(strings.TrimSuffix(s, "."))
	labels := strings.Split(s, ".")
	for _, l := range labels {
		switch {
		case l == "" || len(l) > 63:
			return "", fmt.Errorf("the host name has a part that is empty, or longer than 63 characters")
		case strings.HasPrefix(l, "xn--") || strings.ContainsFunc(l, func(r rune) bool { return r > '~' }):
			return "", fmt.Errorf("the host name has letters beyond ASCII, which may look like others: give its address, or a plain name")
		case strings.ContainsFunc(l, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
		}):
			return "", fmt.Errorf("the host name has a character that is no letter, digit, hyphen or underscore")
		}
	}
	if last := labels[len(labels)-1]; len(s) > 253 {
		return "", fmt.Errorf("the host name is longer than 253 characters")
	} else if _, err := strconv.ParseUint(last, 0, 64); err == nil || strings.Trim(last, "0123456789") == "" {
		return "", fmt.Errorf("the host ends in a number and is no address such as 10.0.0.1")
	}
	return s, nil
}
