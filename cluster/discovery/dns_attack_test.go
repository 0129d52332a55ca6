package discovery

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/miekg/dns"
)

// searching is a resolver whose answer is err, but that ip is found where there is none.
type searching struct{ err error }

func (s searching) LookupNetIP(_ context.Context, network, _ string) ([]netip.Addr, error) {
	if s.err != nil || network == "ip6" {
		return nil, s.err
	}
	return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
}

func (s searching) LookupSRV(context.Context, string, string, string) (string, []*net.SRV, error) {
	if s.err != nil {
		return "", nil, s.err
	}
	return "", []*net.SRV{{Target: "r1.", Port: 8000}}, nil
}

// A short name is asked for with each domain of the search list, and without one. Where
// the server fails for the right one and says that the others do not exist, that is a
// failure: replicas stay.
func TestFailureBehindASearchListIsNoAnswer(t *testing.T) {
	fails := &net.DNSError{Err: "server misbehaving", IsTemporary: true}
	none := &net.DNSError{Err: "no such host", IsNotFound: true}
	for _, srv := range []bool{false, true} {
		r := &resolver{usual: searching{}, strict: searching{fails}}
		d := NewDNS(DNSConfig{Name: "vllm", Port: 8000, SRV: srv, Resolver: r})
		want := "http://10.0.0.1:8000"
		if srv {
			want = "http://r1:8000"
		}
		check(t, d, "", want)
		r.usual = searching{none}
		for range 2 * DefaultDNSConfirm {
			if x := d.look(t.Context()); x.Err == nil || x.Partial || len(x.Replicas) != 0 {
				t.Fatalf("a failure is taken for an answer: %+v", x) // a Pool keeps what was said before
			}
		}
		r.strict = searching{none}
		check(t, d, "any more", want)
	}
	r := NewResolver("", nil).(*resolver)
	if r.usual.(*net.Resolver).StrictErrors || !r.strict.(*net.Resolver).StrictErrors {
		t.Error("which one is strict?")
	}
}

// Answers may be odd: chains of aliases, no time to live, no weight, targets that are no
// hosts, ports that are none, one address in both families.
func TestOddAnswers(t *testing.T) {
	z := newZone(t)
	d := z.source(DNSConfig{})
	z.set(
		"vllm.test. 0 IN CNAME a.test.", "a.test. 0 IN CNAME b.test.", "b.test. 0 IN CNAME c.test.",
		"c.test. 0 IN A 10.0.0.1", "c.test. 0 IN A 10.0.0.1", "c.test. 0 IN A 10.0.0.2",
	)
	check(t, d, "", one, two)
	z.set("vllm.test. 0 IN CNAME vllm.test.") // no address: as if there were none
	check(t, d, "any more", one, two)

	d = z.source(DNSConfig{SRV: true})
	z.set(
		"vllm.test. 0 IN SRV 0 0 8000 r1.test.", "vllm.test. 0 IN SRV 0 0 8000 r2.test.", "vllm.test. 0 IN SRV 0 65535 8000 R1.test.",
		"vllm.test. 0 IN SRV 0 0 8000 .",
	)
	check(t, d, "", "http://r1.test:8000", "http://r2.test:8000")

	// What changes from question to question is what came lately: here one of two each time.
	d = z.source(DNSConfig{})
	z.set(a1, a2)
	check(t, d, "", one, two)
	for i := range 10 {
		z.set([]string{a1, a2}[i%2])
		check(t, d, "", one, two)
	}
	z.fail(dns.TypeA, dns.RcodeNameError) // and one lie among them
	check(t, d, "any more", one, two)
}
