package discovery

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// zone is a DNS server on loopback that answers what a test sets.
type zone struct {
	mu      sync.Mutex
	records []string       // guarded by mu
	rcode   map[uint16]int // guarded by mu; by type
	silent  bool           // guarded by mu
	tcp     int            // guarded by mu; questions over TCP
	small   bool           // guarded by mu; answers over UDP are truncated
	conns   []net.Conn     // guarded by mu
	closed  bool           // guarded by mu
	addr    string
}

func newZone(t *testing.T) *zone {
	t.Helper()
	z := &zone{rcode: map[uint16]int{}}
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z.addr = pc.LocalAddr().String()
	t.Cleanup(z.close)
	ln, err := net.Listen("tcp", z.addr)
	if err != nil {
		t.Skipf("the port is taken for TCP: %v", err)
	}
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: z}, {Listener: ln, Handler: z}} {
		done, up := make(chan error, 1), make(chan struct{})
		s.NotifyStartedFunc = func() { close(up) }
		go func() { done <- s.ActivateAndServe() }()
		<-up
		t.Cleanup(func() {
			_ = s.Shutdown()
			<-done
		})
	}
	return z
}

func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.silent {
		return
	}
	m := new(dns.Msg)
	m.SetReply(q)
	m.RecursionAvailable = true
	_, tcp := w.RemoteAddr().(*net.TCPAddr)
	if tcp {
		z.tcp++
	}
	exists, name := false, q.Question[0].Name
	for _, s := range z.records {
		rr, err := dns.NewRR(s)
		if err != nil {
			panic(err)
		}
		if rr.Header().Name != name {
			continue
		}
		exists = true
		if alias, ok := rr.(*dns.CNAME); ok {
			m.Answer, name = append(m.Answer, rr), alias.Target
		}
		if rr.Header().Rrtype == q.Question[0].Qtype {
			m.Answer = append(m.Answer, rr)
		}
	}
	if !exists {
		m.Rcode = dns.RcodeNameError
	}
	if code, ok := z.rcode[q.Question[0].Qtype]; ok {
		m.Rcode, m.Answer = code, nil
	}
	if z.small && !tcp && len(m.Answer) > 1 {
		m.Truncated, m.Answer = true, m.Answer[:1]
	}
	_ = w.WriteMsg(m)
}

func (z *zone) set(records ...string) {
	z.mu.Lock()
	z.records = records
	z.mu.Unlock()
}

func (z *zone) fail(kind uint16, code int) {
	z.mu.Lock()
	z.rcode[kind] = code
	z.mu.Unlock()
}

func (z *zone) mend() {
	z.mu.Lock()
	clear(z.rcode)
	z.mu.Unlock()
}

// dial keeps connections, which end with the test: Go's resolver waits on behind the
// back of who has given up.
func (z *zone) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.closed {
		return nil, net.ErrClosed
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		z.conns = append(z.conns, c)
	}
	return c, err
}

func (z *zone) close() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.closed = true
	for _, c := range z.conns {
		_ = c.Close()
	}
}

func (z *zone) source(cfg DNSConfig) *DNS {
	cfg.Name = "vllm.test."
	if !cfg.SRV {
		cfg.Port = 8000
	}
	cfg.Resolver = NewResolver(z.addr, z.dial)
	return NewDNS(cfg)
}

// check looks once and compares what is listed, and the error.
func check(t *testing.T, d *DNS, fault string, want ...string) {
	t.Helper()
	x := d.look(t.Context())
	var have []string
	for _, f := range x.Replicas {
		have = append(have, f.URL)
	}
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("lists %q, want %q (%v)", have, want, x.Err)
	}
	if fault == "" && x.Err != nil || fault != "" && (x.Err == nil || !strings.Contains(x.Err.Error(), fault)) {
		t.Errorf("error %v, want %q", x.Err, fault)
	}
	if x.Err != nil && x.Partial != (len(want) > 0 || fault == "any more") {
		t.Errorf("partial %v with %q", x.Partial, have)
	}
}

const (
	one   = "http://10.0.0.1:8000"
	two   = "http://10.0.0.2:8000"
	six   = "http://[fd00::1]:8000"
	a1    = "vllm.test. 1 IN A 10.0.0.1"
	a2    = "vllm.test. 1 IN A 10.0.0.2"
	aaaa1 = "vllm.test. 1 IN AAAA fd00::1"
)

func TestAddressesComeAndGo(t *testing.T) {
	z := newZone(t)
	d := z.source(DNSConfig{})
	check(t, d, "not resolve yet")
	z.set(a1, a2, aaaa1)
	check(t, d, "", one, two, six)
	z.set(a1, aaaa1)
	check(t, d, "", one, two, six) // once may be chance
	check(t, d, "", one, two, six)
	z.set(a1, a2, aaaa1)
	check(t, d, "", one, two, six)
	z.set(a1, aaaa1)
	check(t, d, "", one, two, six)
	check(t, d, "", one, two, six)
	check(t, d, "", one, six)
}

func TestFailureIsNoAnswer(t *testing.T) {
	z := newZone(t)
	d := z.source(DNSConfig{})
	z.set(a1, aaaa1)
	check(t, d, "", one, six)
	for range 10 {
		z.fail(dns.TypeAAAA, dns.RcodeServerFailure) // half of it
		check(t, d, "SERVFAIL", one, six)
	}
	z.set(a1, a2)
	check(t, d, "SERVFAIL", one, two, six)
	z.fail(dns.TypeA, dns.RcodeServerFailure)
	for range 10 {
		check(t, d, "SERVFAIL")
	}
	z.mend()
	z.set(a1, a2, aaaa1)
	check(t, d, "", one, two, six)
	z.fail(dns.TypeA, dns.RcodeRefused)
	z.fail(dns.TypeAAAA, dns.RcodeRefused)
	check(t, d, "fails")
}

func TestNameThatIsGone(t *testing.T) {
	z := newZone(t)
	d := z.source(DNSConfig{Confirm: 3})
	z.set(a1, a2)
	check(t, d, "", one, two)
	z.set()
	check(t, d, "any more", one, two)
	check(t, d, "any more", one, two)
	check(t, d, "any more") // a Pool judges that
	z.set(a1)
	check(t, d, "", one)
}

func TestServerThatIsSilent(t *testing.T) {
	z := newZone(t)
	d := z.source(DNSConfig{})
	z.set(a1)
	check(t, d, "", one)
	z.mu.Lock()
	z.silent = true
	z.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if x := d.look(ctx); x.Err == nil || !strings.Contains(x.Err.Error(), "in time") || x.Partial {
		t.Errorf("%+v", x)
	}
}

func TestLongAnswerComesOverTCP(t *testing.T) {
	z := newZone(t)
	z.set(a1, a2)
	z.small = true
	check(t, z.source(DNSConfig{}), "", one, two)
	if z.tcp == 0 {
		t.Error("not asked over TCP")
	}
}

func TestServiceRecords(t *testing.T) {
	z := newZone(t)
	d := z.source(DNSConfig{SRV: true, Scheme: "https"})
	check(t, d, "not resolve yet")
	z.set(
		"vllm.test. 1 IN SRV 10 50 8001 VLLM-0.pods.test.",
		"vllm.test. 1 IN SRV 10 50 8002 vllm-1.pods.test.",
		"vllm.test. 1 IN SRV 20 50 8000 spare.pods.test.",
	)
	check(t, d, "", "https://vllm-0.pods.test:8001", "https://vllm-1.pods.test:8002")
	z.set("vllm.test. 1 IN SRV 20 50 8000 spare.pods.test.")
	for range 2 {
		check(t, d, "", "https://spare.pods.test:8000", "https://vllm-0.pods.test:8001", "https://vllm-1.pods.test:8002")
	}
	check(t, d, "", "https://spare.pods.test:8000")
	z.set("vllm.test. 1 IN SRV 0 0 0 .")
	check(t, d, "any more", "https://spare.pods.test:8000")
	z.fail(dns.TypeSRV, dns.RcodeServerFailure)
	check(t, d, "SERVFAIL")
}
