package proxy

import (
	"bufio"
	"io"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// spoiled fills what came back to a pool, so that whoever still reads it is found out.
func spoiled(b []byte) {
	for i := range b {
		b[i] = 0xDB
	}
}

// A buffer is at most a sixteenth larger than asked for, and nobody else has it.
func TestBuffersAreNobodyElses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &bodyPool{spoil: spoiled}
		type taken struct {
			b    []byte
			with byte
		}
		var out []taken
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch {
			case len(out) > 0 && rapid.Bool().Draw(t, "put"):
				at := rapid.IntRange(0, len(out)-1).Draw(t, "which")
				b := out[at].b
				for _, c := range b {
					if c != out[at].with {
						t.Fatalf("step %d: a buffer of %d was written by others", i, cap(b))
					}
				}
				p.put(b)
				out = append(out[:at], out[at+1:]...)
			case rapid.IntRange(0, 9).Draw(t, "age") == 0:
				p.age()
			default:
				n := rapid.OneOf(rapid.IntRange(0, 5000), rapid.IntRange(0, 300_000), rapid.SampledFrom([]int{bodyLeast - 1, bodyLeast, bodyLeast + 1, bodyMost, bodyMost + 1})).Draw(t, "size")
				b := p.get(n)
				if len(b) != 0 || cap(b) < n || cap(b) > n+n/16 {
					t.Fatalf("%d bytes in a buffer of %d with %d in it", n, cap(b), len(b))
				}
				b = b[:cap(b)]
				for k := range b {
					b[k] = byte(i)
				}
				out = append(out, taken{b, byte(i)})
			}
			kept := int64(0)
			for _, c := range p.free {
				for _, b := range c.bufs {
					kept += int64(cap(b))
				}
			}
			if kept != p.held || kept > bodySpare {
				t.Fatalf("%d bytes kept, %d said", kept, p.held)
			}
		}
	})
}

// A burst of long bodies leaves no more than bodySpare behind, and nothing after some
// seconds. What is used in every second stays.
func TestSpareBuffersGoAway(t *testing.T) {
	p := &bodyPool{}
	var all [][]byte
	for range 1000 {
		all = append(all, p.get(400_000))
	}
	for _, b := range all {
		p.put(b)
	}
	if p.held > bodySpare || p.held < bodySpare-1<<20 {
		t.Errorf("%d bytes are kept of a burst", p.held)
	}
	used := p.get(400_000)
	p.put(used)
	size := int64(cap(used))
	for range 12 {
		p.age()
		for range 3 { // one after the other
			p.put(p.get(400_000))
		}
	}
	if p.held != size {
		t.Errorf("%d bytes are kept where one buffer of %d is used", p.held, size)
	}
	p.age()
	if p.age(); p.held != 0 {
		t.Errorf("%d bytes are kept where none is used", p.held)
	}
}

// What the bodies of a burst took is free for the collector a while after it.
func TestABurstOfBodiesLeavesNoMemory(t *testing.T) {
	const clients, size = 200, 400_000
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	p := &bodyPool{}
	request := "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 400000\r\n\r\n" + strings.Repeat("a", size)
	before := heap()
	var all []*clientConn
	for range clients {
		c := sender(strings.NewReader(request), 1<<30)
		c.bodies = p
		if body, err := nextHeld(t, c); err != nil || len(body) != size {
			t.Fatalf("%d bytes, %v", len(body), err)
		}
		all = append(all, c)
	}
	if n := heap() - before; n < clients*size || n > clients*size*17/16+bodySpare+1<<20 {
		t.Errorf("%d bodies of %d bytes take %d", clients, size, n)
	}
	for _, c := range all {
		c.idle()
	}
	for range 12 {
		p.age()
	}
	if n := heap() - before; n > 2<<20 {
		t.Errorf("%d bytes are left of a burst", n)
	}
	runtime.KeepAlive(all)
}

func BenchmarkReadBody(b *testing.B) {
	for _, size := range []int{16_000, 256_000, 4_000_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			body := strings.Repeat("a", size)
			r := strings.NewReader(body)
			c := sender(r, 1<<30)
			c.bodies.spoil = nil
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				r.Reset(body)
				if got, err := c.readBody(int64(size)); err != nil || len(got) != size {
					b.Fatal(len(got), err)
				}
				c.freeBody()
			}
		})
	}
}

// A router keeps a body's memory for the next one, and gives it up when none comes.
func TestARouterKeepsSpareBuffersForSeconds(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		release := make(chan struct{})
		g := newRig(t, w, handlers(func(_ *engine, in *incoming) bool {
			<-release
			return in.write(jsonAnswer(200, good)) == nil
		}))
		held := func() int64 {
			g.srv.bodies.mu.Lock()
			defer g.srv.bodies.mu.Unlock()
			return g.srv.bodies.held
		}
		f := func(name, body string, fields ...string) {
			t.Helper()
			c := g.conn()
			_, err := io.WriteString(c, post("/v1/chat/completions", body, fields...))
			must(t, err)
			time.Sleep(30 * time.Second)
			if n := held(); n != 0 {
				t.Errorf("%s: %d bytes are kept while the only request waits", name, n)
			}
			release <- struct{}{}
			if r := readReply(t, bufio.NewReader(c)); r.StatusCode != 200 {
				t.Errorf("%s: %d %q", name, r.StatusCode, r.body)
			}
			if n := held(); n < int64(len(big)) {
				t.Errorf("%s: %d bytes are kept of a body of %d", name, n, len(big))
			}
			time.Sleep(30 * time.Second)
			if n := held(); n != 0 {
				t.Errorf("%s: %d bytes are kept with nothing to do", name, n)
			}
		}
		f("plain", big)
		f("gzip", pack(t, "gzip", big), "Content-Encoding: gzip")
		g.stop()
	})
}

var big = strings.Replace(ask, "Hello there", strings.Repeat("word ", 40<<10), 1)
