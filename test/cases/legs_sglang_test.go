package cases

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

var rooms = regexp.MustCompile(`"bootstrap_room":(\[[0-9,]*\]|[0-9]+)`)

func room(t *testing.T, g *got) string {
	t.Helper()
	m := rooms.FindStringSubmatch(g.body)
	if m == nil {
		t.Fatalf("no room as an integer in %.300s", g.body)
	}
	for s := range strings.SplitSeq(strings.Trim(m[1], "[]"), ",") {
		if n, err := strconv.ParseUint(s, 10, 64); err != nil || n > math.MaxInt64 {
			t.Errorf("room %s: %v", s, err)
		}
	}
	return m[1]
}

func (e *engine) work() (list []*got) {
	for _, g := range e.requests() {
		if g.path() != "/abort_request" {
			list = append(list, g)
		}
	}
	return list
}

func (e *engine) aborted() (list []string) {
	for _, g := range e.requests() {
		if g.path() == "/abort_request" {
			list = append(list, g.body)
		}
	}
	return list
}

func sglang(t *testing.T, answer func(*got) bool) *engine {
	e := newEngine(t, nil)
	e.sglang = true
	e.serves(answer)
	return e
}

func (e *engine) serves(answer func(*got) bool) {
	e.becomes(func(g *got) bool {
		if g.path() == "/abort_request" {
			return g.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
		return answer(g)
	})
}

func TestC21WhatBothLegsAreSent(t *testing.T) {
	t.Parallel()
	p1, d1 := sglang(t, nil), sglang(t, nil)
	meet := make(chan bool)
	p1.serves(func(g *got) bool { // prefill blocks until decode connects
		select {
		case <-meet:
		case <-time.After(patience):
			t.Error("decode was not asked while prefill waits")
		}
		return healthy(g)
	})
	d1.serves(func(g *got) bool { meet <- true; return healthy(g) })
	pc := legPool("sglang", []*engine{p1}, []*engine{d1})
	pc.Replicas[0].BootstrapPort = 9001
	r := start(t, setup{}, pc)[0]
	seen := map[string]bool{}
	f := func(name, body, path string, prompts int) {
		t.Helper()
		p1.forget()
		d1.forget()
		s := r.send(strings.Replace(post(body), "/v1/chat/completions", path, 1))
		if a := s.rest(); a.StatusCode != 200 || a.err != nil {
			t.Fatalf("%s: %d %q", name, a.StatusCode, a.body)
		}
		ps, ds := p1.work(), d1.work()
		if len(ps) != 1 || len(ds) != 1 {
			t.Fatalf("%s: %d prefills, %d decodes", name, len(ps), len(ds))
		}
		if ps[0].body != ds[0].body {
			t.Errorf("%s: bodies differ: %.300s and %.300s", name, ps[0].body, ds[0].body)
		}
		each := func(v string) string {
			if prompts == 0 {
				return v
			}
			return "[" + strings.Join(strings.Split(strings.Repeat(v+" ", prompts), " ")[:prompts], ",") + "]"
		}
		at, rid := room(t, ps[0]), fields(t, ps[0].body)["rid"]
		if seen[at] || seen[rid] || len(rid) != len(`"hearsay-00112233445566778899aabbccddeeff"`) || prompts > 0 && strings.Count(at, ",") != prompts-1 {
			t.Errorf("%s: room %s, rid %s", name, at, rid)
		}
		seen[at], seen[rid] = true, true
		but := map[string]string{
			"bootstrap_host": each(`"127.0.0.1"`), "bootstrap_port": each("9001"), "bootstrap_room": at, "rid": rid,
		}
		if strings.Contains(body, `"stream":true`) {
			but["stream_options"] = `{"include_usage":true}`
		}
		sameBut(t, name, ps[0].body, body, but)
	}
	const chat, text = "/v1/chat/completions", "/v1/completions"
	f("not streamed", legChat("a", ""), chat, 0)
	f("short, for there is no other way", ask, chat, 0)
	f("streamed", legChat("b", `"stream":true,`), chat, 0)
	f("the client's own", legChat("c", `"rid":"1","bootstrap_room":7,"bootstrap_host":"evil","bootstrap_port":1,`), chat, 0)
	f("several choices", legChat("d", `"n":3,`), chat, 0)
	f("a batch", `{"model":"m","prompt":["`+long("e")+`","`+long("f")+`","g"]}`, text, 3)
	f("a batch of one", `{"prompt":["x"],"model":"m"}`, text, 1)
	f("token ids", `{"prompt":[1,2,3],"model":"m"}`, text, 0)
	f("lists of token ids", `{"prompt":[[1,2,3],[4]],"model":"m"}`, text, 2)
	settled(t, []*router{r}, p1, d1)
	if n := len(p1.aborted()) + len(d1.aborted()); n != 0 {
		t.Errorf("%d aborts of requests that went well", n)
	}
}

func silent(g *got) bool { g.gone(); return false }

// What a prefill says of the client's mistake is told, and blames nobody.
func TestC21PrefillRefuses(t *testing.T) {
	t.Parallel()
	p1, d1 := sglang(t, says(reply(400, tooLong))), sglang(t, silent)
	r := start(t, setup{}, legPool("sglang", []*engine{p1}, []*engine{d1}))[0]
	for _, fields := range []string{"", `"stream":true,`} {
		if a := r.chat(legChat("a", fields)); a.StatusCode != 400 || a.body != tooLong {
			t.Errorf("%d %s", a.StatusCode, a.body)
		}
	}
	if n := r.metric("hearsay_panics_total"); n != 0 {
		t.Errorf("%v panics", n)
	}
	settled(t, []*router{r}, p1, d1)
}

func TestC21OneLegFails(t *testing.T) {
	t.Parallel()
	cut := func(s string) func(*got) bool { return func(g *got) bool { g.write(s); g.reset(); return false } }
	failures := map[string]func(*got) bool{
		"500":                      says(reply(500, oops)),
		"408":                      says(reply(408, `{"error":{"message":"KVTransferError","code":408}}`)),
		"closed before the head":   func(*got) bool { return false },
		"reset before the head":    func(g *got) bool { g.reset(); return false },
		"within the head":          cut("HTTP/1.1 200 OK\r\ncontent-"),
		"behind the head":          cut(streamHead),
		"an error event":           streams(errorEvent("InternalServerError", 500), done),
		"within the first event":   cut(streamHead + chunks("data: {\"id\"")),
		"a body cut short":         cut(reply(200, good)[:250]),
		"no status":                cut("nonsense\r\n\r\n"),
		"refused":                  nil,
		"503 without a time limit": says(reply(503, full)),
	}
	for _, body := range []string{`"stream":true,`, ""} {
		for name, fail := range failures {
			if (name == "an error event" || name == "within the first event") && body == "" {
				continue
			}
			for _, side := range []string{"prefill", "decode"} {
				for _, n := range []int{1, 2} {
					t.Run(fmt.Sprintf("%s/%s/%d pairs/stream %v", side, name, n, body != ""), func(t *testing.T) {
						t.Parallel()
						legFails(t, side, fail, n, body)
					})
				}
			}
		}
	}
}

type pairs struct {
	mu  sync.Mutex
	met map[string]chan struct{} // guarded by mu; closed when both legs are there
}

func (p *pairs) join(g *got) bool {
	at := rooms.FindString(g.body)
	p.mu.Lock()
	if p.met == nil {
		p.met = map[string]chan struct{}{}
	}
	met := p.met[at]
	if met == nil {
		met = make(chan struct{})
		p.met[at] = met
	} else {
		close(met)
	}
	p.mu.Unlock()
	gone := make(chan struct{})
	go func() { defer close(gone); _, _ = g.br.ReadByte() }()
	select {
	case <-met:
		_ = g.conn.SetReadDeadline(time.Now())
		<-gone
		healthy(g)
	case <-gone:
	}
	return false
}

func legFails(t *testing.T, side string, fail func(*got) bool, n int, field string) {
	var ps, ds []*engine
	met := &pairs{}
	for range n {
		ps, ds = append(ps, sglang(t, met.join)), append(ds, sglang(t, met.join))
	}
	bad, other := ps, ds
	if side == "decode" {
		bad, other = ds, ps
	}
	if fail == nil {
		bad[0].refuse()
	}
	var failed atomic.Bool
	for _, e := range bad {
		e.serves(func(g *got) bool {
			if fail != nil && failed.CompareAndSwap(false, true) {
				return fail(g)
			}
			return met.join(g)
		})
	}
	pc := legPool("sglang", ps, ds)
	pc.Retry.Attempts = n
	routers := start(t, setup{routers: 2}, pc)
	all := append(append([]*engine{}, ps...), ds...)
	began := time.Now()
	a := routers[0].chat(legChat("fails", field))
	if d := time.Since(began); d > 2*time.Second+slack {
		t.Errorf("the client waited %v", d)
	}
	switch {
	case n == 2 && (a.StatusCode != 200 || a.err != nil):
		t.Errorf("with a second pair: %d %v %q", a.StatusCode, a.err, a.body)
	case n == 1 && a.StatusCode != 502 && a.StatusCode != 503 && !(side == "decode" && a.StatusCode == 500):
		t.Errorf("alone: %d %q", a.StatusCode, a.body)
	}
	for _, e := range all {
		within(t, 2*time.Second, "no engine is left with a request", func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.running == 0
		})
	}
	settled(t, routers, all...)
	if n == 1 {
		within(t, 2*time.Second, "the other leg is told", func() bool { return len(other[0].aborted()) == 1 })
	}
	used, names := map[string]int{}, map[string]bool{}
	for _, e := range all {
		for _, g := range e.work() {
			used[room(t, g)]++
			names[`{"rid":`+fields(t, g.body)["rid"]+`}`] = true
		}
	}
	for at, n := range used {
		if n > 2 {
			t.Errorf("room %s was used by %d requests", at, n)
		}
	}
	for _, e := range all {
		for _, rid := range e.aborted() {
			if !names[rid] && fail != nil {
				t.Errorf("an abort of %s, which is no request", rid)
			}
		}
	}
}

func TestC21OnlyTheLegThatFailedIsLeftOut(t *testing.T) {
	t.Parallel()
	met := &pairs{}
	f := func(ps, ds, failing []*engine) {
		t.Helper()
		var failed atomic.Bool
		for _, e := range failing {
			e.serves(func(g *got) bool {
				if failed.CompareAndSwap(false, true) {
					return g.write(reply(500, oops))
				}
				return met.join(g)
			})
		}
		r := start(t, setup{}, legPool("sglang", ps, ds))[0]
		if a := r.chat(legChat("again", "")); a.body != good {
			t.Errorf("%d prefill, %d decode: %d %q", len(ps), len(ds), a.StatusCode, a.body)
		}
		all := append(append([]*engine{}, ps...), ds...)
		n, used := 0, map[string]bool{}
		for _, e := range all {
			for _, g := range e.work() {
				n++
				used[room(t, g)] = true
			}
		}
		if len(used) != 2 || n < 3 || n > 4 { // the leg beside the one that failed may not have come
			t.Errorf("%d legs in %d rooms, want two tries", n, len(used))
		}
		settled(t, []*router{r}, all...)
	}
	three := func() []*engine { return []*engine{sglang(t, met.join), sglang(t, met.join), sglang(t, met.join)} }
	a, b := three(), three()
	f(a[:2], a[2:], a[:2])
	f(b[:1], b[1:], b[1:])
}

func TestC21ClientLeaves(t *testing.T) {
	t.Parallel()
	p1, d1 := sglang(t, nil), sglang(t, nil)
	routers := start(t, setup{routers: 2}, legPool("sglang", []*engine{p1}, []*engine{d1}))
	r := routers[0]
	f := func(name, field string, prefill, decode func(*got) bool) {
		t.Helper()
		for _, e := range []*engine{p1, d1} {
			e.forget()
		}
		p1.serves(prefill)
		d1.serves(decode)
		s := r.open(legChat(name, field))
		until(t, name+": both legs", func() bool { return len(p1.work()) == 1 && len(d1.work()) == 1 })
		rid := `{"rid":` + fields(t, d1.work()[0].body)["rid"] + `}`
		if strings.Contains(name, "streaming") {
			s.expect(role)
		}
		_ = s.conn.Close()
		within(t, time.Second, name+": decode sees the close", func() bool { return d1.gones() == 1 })
		within(t, time.Second, name+": decode is told", func() bool { return slices.Contains(d1.aborted(), rid) })
		if !strings.Contains(name, "prefilled") {
			within(t, time.Second, name+": prefill sees the close", func() bool { return p1.gones() == 1 })
			within(t, time.Second, name+": prefill is told", func() bool { return slices.Contains(p1.aborted(), rid) })
		}
		settled(t, routers, p1, d1)
		if len(p1.work()) != 1 || len(d1.work()) != 1 || r.is(p1, "ejected") || r.is(d1, "ejected") {
			t.Errorf("%s: %d prefills, %d decodes", name, len(p1.work()), len(d1.work()))
		}
	}
	headAnd := func(s string) func(*got) bool { return func(g *got) bool { g.write(s); return silent(g) } }
	for _, field := range []string{"", `"stream":true,`} {
		f("both wait", field, silent, silent)
		f("prefilled", field, healthy, silent)
		f("behind decode's head", field, silent, headAnd(streamHead))
	}
	f("streaming, prefilled", `"stream":true,`, healthy, headAnd(streamHead+chunks(role)))
	if n := r.metric("hearsay_requests_total", `code="499"`); n != 7 {
		t.Errorf("%v clients left", n)
	}
}

func TestSGLangWithoutPrefill(t *testing.T) {
	t.Parallel()
	p1, d1, b1 := sglang(t, silent), sglang(t, silent), sglang(t, healthy)
	alone := legPool("sglang", []*engine{p1}, []*engine{d1})
	r := start(t, setup{}, alone)[0]
	r.drain(p1, "drain")
	if a := r.chat(ask); a.StatusCode != 503 || !strings.Contains(a.body, "No prefill replica") || a.Header.Get("Retry-After") == "" {
		t.Errorf("drained: %d %q", a.StatusCode, a.body)
	}
	if a := r.chat(strings.Replace(ask, "{", `{"prompt_logprobs":1,`, 1)); a.StatusCode != 503 || !strings.Contains(a.body, "both") {
		t.Errorf("what can't be split: %d %q", a.StatusCode, a.body)
	}
	r.drain(p1, "undrain")
	p1.vanish()
	for range 3 {
		if a := r.chat(ask); a.StatusCode != 503 && a.StatusCode != 502 {
			t.Errorf("away: %d %q", a.StatusCode, a.body)
		}
	}
	settled(t, []*router{r}, p1, d1)

	p2, d2 := sglang(t, silent), sglang(t, silent)
	mixed := legPool("sglang", []*engine{p2}, []*engine{d2})
	mixed.Replicas = append(mixed.Replicas, node.ReplicaConfig{URL: b1.url})
	r = start(t, setup{}, mixed)[0]
	r.drain(p2, "drain")
	sent := strings.Replace(ask, "{", `{"prompt_logprobs":1,"rid":"mine","bootstrap_room":1,`, 1)
	if a := r.chat(sent); a.body != good {
		t.Errorf("one that does both: %d %q", a.StatusCode, a.body)
	}
	sameBut(t, "whole", b1.work()[0].body, sent, map[string]string{"bootstrap_room": ""})
	if len(d2.work()) != 0 {
		t.Error("a request without a prefill went to one that decodes")
	}
}
