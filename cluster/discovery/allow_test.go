package discovery_test

import (
	"testing"

	"github.com/hearsay-llm/hearsay/cluster/discovery"
)

func TestAllow(t *testing.T) {
	f := func(url string, ok bool, list ...string) {
		t.Helper()
		a, err := discovery.ParseAllow(list)
		if err != nil {
			t.Errorf("%q: %v", list, err)
		} else if err := a.Check(url); (err == nil) != ok {
			t.Errorf("%s with %q: %v", url, list, err)
		}
	}
	f("http://10.0.0.1:80", true)
	f("http://r1:80", true)
	f("http://127.0.0.1:80", true)
	for _, bad := range []string{
		"169.254.169.254", "[fe80::1]", "0.0.0.0", "[::]", "224.0.0.1", "255.255.255.255", "[fd00:ec2::254]", "metadata.google.internal",
		"[64:ff9b::169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]", "[64:ff9b::]", "168.63.129.16", "[64:ff9b::100.100.100.200]", "instance-data", "metadata.goog",
	} {
		f("http://"+bad+":80", false)
	}
	f("http://169.254.1.1:80", true, "169.254.0.0/16")
	f("http://[64:ff9b::10.0.0.1]:80", true)
	f("http://[2001:db8::1]:80", true)
	f("http://10.0.0.1:80", true, "10.0.0.0/8")
	f("http://10.0.0.1:80", true, "192.168.0.0/16", "10.0.0.1")
	f("http://10.0.0.2:80", false, "192.168.0.0/16", "10.0.0.1")
	f("http://[fd00::1]:80", true, "fd00::/8")
	f("http://r1:80", false, "10.0.0.0/8")
	f("http://r1:80", true, "r1")
	f("http://xr1:80", false, "r1")
	f("http://a.r1:80", false, "r1")
	f("http://a.svc.cluster.local:80", true, ".svc.cluster.local")
	f("http://a.svc.cluster.local:80", true, "*.SVC.cluster.local.")
	f("http://svc.cluster.local:80", false, ".svc.cluster.local")
	f("http://xsvc.cluster.local:80", false, ".svc.cluster.local")
	f("http://a.svc.cluster.local.evil.com:80", false, ".svc.cluster.local")
	f("http://10.0.0.1:80", false, ".svc")
	for _, bad := range []string{"", "*", ".", "10.0.0.0/40", "http://r1", "a b", "*x", "::ffff:10.0.0.0/104"} {
		if _, err := discovery.ParseAllow([]string{bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
