package netns

import (
	"bytes"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// inbox keeps the packets that a host got, and when.
type inbox struct {
	mu   sync.Mutex
	got  [][]byte
	when []time.Time
}

func (b *inbox) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got, b.when = append(b.got, bytes.Clone(p)), append(b.when, time.Now())
	return len(p), nil
}

func (b *inbox) take() int {
	got, _ := b.takeAll()
	return len(got)
}

func (b *inbox) takeAll() (got [][]byte, when []time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	got, when = b.got, b.when
	b.got, b.when = nil, nil
	return got, when
}

func ip(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, last}) }

// packet is an IPv4 header and one byte of payload.
func packet(proto, from, to, payload byte) []byte {
	b := make([]byte, 21)
	b[0], b[9], b[20] = 0x45, proto, payload
	copy(b[12:], []byte{10, 77, 0, from})
	copy(b[16:], []byte{10, 77, 0, to})
	return b
}

func TestWhatPasses(t *testing.T) {
	s := NewSwitch(1)
	var one, two inbox
	a, b := s.attach("a", ip(1), &one), s.attach("b", ip(2), &two)
	f := func(name string, l Link, tcp, udp, back int) {
		t.Helper()
		s.Heal()
		s.Set("a", "b", l)
		s.pass(a, packet(protoTCP, 1, 2, 0))
		if n := two.take(); n != tcp {
			t.Errorf("%s: %d segments came", name, n)
		}
		s.pass(a, packet(protoUDP, 1, 2, 0))
		if n := two.take(); n != udp {
			t.Errorf("%s: %d datagrams came", name, n)
		}
		s.pass(b, packet(protoTCP, 2, 1, 0))
		if n := one.take(); n != back {
			t.Errorf("%s: %d segments came back", name, n)
		}
	}
	f("nothing is wrong", Link{}, 1, 1, 1)
	f("cut", Link{Cut: true}, 0, 0, 1)
	f("no datagrams", Link{NoUDP: true}, 1, 0, 1)
	f("no streams", Link{NoTCP: true}, 0, 1, 1)
	f("all are lost", Link{Loss: 1}, 0, 0, 1)

	s.Heal()
	s.SetBoth("a", "b", Link{Loss: 0.2})
	for range 10_000 {
		s.pass(a, packet(protoUDP, 1, 2, 0))
	}
	if n := two.take(); n < 7_700 || n > 8_300 {
		t.Errorf("a fifth lost: %d of 10,000 came", n)
	}
	passed, lost := s.Counts("a", "b")
	if lost < 1_700 || passed+lost != 10_010 {
		t.Errorf("%d passed and %d lost are counted", passed, lost)
	}
	s.pass(a, packet(protoTCP, 1, 99, 0)) // nobody
	s.pass(a, []byte{0x60, 0, 0})         // no IPv4
}

func TestDelayKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSwitch(1)
		var in inbox
		a := s.attach("a", ip(1), &inbox{})
		s.attach("b", ip(2), &in)
		s.Set("a", "b", Link{Delay: 200 * time.Millisecond, Jitter: 100 * time.Millisecond})
		began := time.Now()
		for i := range byte(50) {
			s.pass(a, packet(protoUDP, 1, 2, i))
			if i == 40 {
				s.Heal() // the rest stays behind what is under way
			}
		}
		time.Sleep(time.Second)
		got, when := in.takeAll()
		if len(got) != 50 {
			t.Fatalf("%d of 50 came", len(got))
		}
		for i, b := range got {
			if b[20] != byte(i) {
				t.Fatalf("packet %d came as number %d", b[20], i)
			}
		}
		if d := when[0].Sub(began); d < 200*time.Millisecond || d >= 300*time.Millisecond {
			t.Errorf("the first one took %v", d)
		}
		s.pass(a, packet(protoUDP, 1, 2, 99))
		if synctest.Wait(); in.take() != 1 {
			t.Error("a healed way holds packets back")
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add(packet(protoTCP, 1, 2, 3))
	f.Add([]byte{0x45})
	f.Fuzz(func(t *testing.T, b []byte) {
		to, _, ok := header(b)
		if ok != (len(b) >= 20 && b[0]>>4 == 4) || ok && !to.Is4() {
			t.Errorf("% x: %v, %v", b, to, ok)
		}
	})
}
