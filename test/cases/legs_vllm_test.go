package cases

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const (
	askedKV = `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`
	// Odd spacing, an escape, a number no float holds: it has to arrive as it is.
	filledKV = `{"do_remote_prefill": true, "do_remote_decode":false,"remote_engine_id":"e\u0031","remote_block_ids":[[1,2 ,3]],"remote_host":"10.0.0.1","remote_port":5600,"x":9223372036854775807}`
	// It tells no usage: tests would teach the router how fast they are.
	oneToken = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"H"},"finish_reason":"length"}],"kv_transfer_params":%s}`
	metered  = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"H"},"finish_reason":"length"}],` +
		`"usage":{"prompt_tokens":900,"total_tokens":901,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":320}},"kv_transfer_params":%s}`
	allCached = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":900,"total_tokens":903,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":899}}}`
)

func strictPrefill(kv string) func(*got) bool {
	return func(g *got) bool {
		f := map[string]json.RawMessage{}
		_ = json.Unmarshal([]byte(g.body), &f)
		bad := func(why string) bool {
			return g.write(reply(400, `{"error":{"message":"`+why+`","type":"BadRequestError","param":null,"code":400}}`))
		}
		switch {
		case f["min_tokens"] != nil:
			return bad("min_tokens must be less than or equal to max_tokens")
		case f["stream_options"] != nil && string(f["stream"]) != "true":
			return bad("Stream options can only be defined when `stream=True`.")
		case f["max_completion_tokens"] != nil && string(f["max_completion_tokens"]) != "1":
			return bad("max_completion_tokens")
		case string(f["max_tokens"]) != "1", string(f["stream"]) != "false":
			return bad("not a prefill")
		}
		return g.write(reply(200, fmt.Sprintf(oneToken, kv)))
	}
}

func TestC22WhatThePrefillLegIsSent(t *testing.T) {
	t.Parallel()
	p1, d1 := newEngine(t, strictPrefill(filledKV)), newEngine(t, healthy)
	r := start(t, setup{}, legPool("vllm", []*engine{p1}, []*engine{d1}))[0]
	n := 0
	f := func(name, extra string, prefill, decode map[string]string) {
		t.Helper()
		n++
		p1.forget()
		d1.forget()
		id := fmt.Sprint("client-", n)
		sent := legChat(name, extra)
		a := r.chat(sent, "X-Request-Id: "+id)
		if a.StatusCode != 200 || a.err != nil {
			t.Fatalf("%s: %d %v %s", name, a.StatusCode, a.err, a.body)
		}
		if strings.Contains(extra, `"stream":true`) && a.body != role+token("Hi")+finish+map[bool]string{true: usage}[strings.Contains(extra, `"include_usage":true`)]+done {
			t.Errorf("%s: the client got %q", name, a.body)
		}
		ps, ds := p1.requests(), d1.requests()
		if len(ps) != 1 || len(ds) != 1 {
			t.Fatalf("%s: %d prefills, %d decodes", name, len(ps), len(ds))
		}
		prefill["kv_transfer_params"], prefill["stream"], prefill["max_tokens"] = askedKV, "false", "1"
		decode["kv_transfer_params"] = filledKV
		sameBut(t, name+", prefill", ps[0].body, sent, prefill)
		sameBut(t, name+", decode", ds[0].body, sent, decode)
		for _, g := range []*got{ps[0], ds[0]} {
			if g.header("X-Request-Id") != id || g.path() != "/v1/chat/completions" {
				t.Errorf("%s: %s %q", name, g.path(), g.header("X-Request-Id"))
			}
		}
		if ps[0].at.After(ds[0].at) {
			t.Errorf("%s: decode was asked first", name)
		}
	}
	asked := map[string]string{"stream_options": `{"include_usage":true}`}
	f("all", `"stream":true,"stream_options":{"include_usage":true},"min_tokens":100,"max_completion_tokens":500,"n":1,"logprobs":true,"tools":[{"type":"function","function":{"name":"f"}}],`,
		map[string]string{"stream_options": "", "min_tokens": "", "max_completion_tokens": "1"}, map[string]string{})
	f("unasked usage", `"stream":true,`, map[string]string{}, asked)
	f("both limits", `"stream":true,"max_tokens":70,"max_completion_tokens":500,`, map[string]string{"max_completion_tokens": "1"}, asked)
	f("not streamed", `"max_tokens":70,"min_tokens":3,`, map[string]string{"min_tokens": ""}, map[string]string{})
	f("stream false", `"stream":false,`, map[string]string{}, map[string]string{})
	f("null limits", `"max_tokens":null,"max_completion_tokens":null,"stream":null,`, map[string]string{"max_completion_tokens": "1"}, map[string]string{})
	f("the client's own hand-over", `"kv_transfer_params":{"remote_host":"evil"},"stream":true,"kv_transfer_params":{"do_remote_prefill":true},"bootstrap_host":"evil",`,
		map[string]string{"bootstrap_host": ""}, map[string]string{"bootstrap_host": "", "stream_options": `{"include_usage":true}`})

	// The prompt is charged once: what was cached where it was prefilled.
	p1.becomes(says(reply(200, fmt.Sprintf(metered, filledKV))))
	d1.becomes(says(reply(200, allCached)))
	before := [3]float64{}
	tokens := func() (n [3]float64) {
		for i, l := range []string{"input", "cached", "output"} {
			n[i] = r.metric("hearsay_tokens_total", `type="`+l+`"`)
		}
		return n
	}
	before = tokens()
	if a := r.chat(legChat("charged", "")); a.body != allCached {
		t.Errorf("charged: %q", a.body)
	}
	if now := tokens(); now[0]-before[0] != 900 || now[1]-before[1] != 320 || now[2]-before[2] != 3 {
		t.Errorf("charged: input, cached, output went from %v to %v", before, now)
	}
	if k := r.metric("hearsay_prefill_hops_total", `result="handed_over"`); k != float64(n+1) {
		t.Errorf("%v hand-overs counted, want %d", k, n+1)
	}
	settled(t, []*router{r}, p1, d1)
}

func TestC22PrefillHandsNothingOver(t *testing.T) {
	t.Parallel()
	f := func(name string, answer func(*got) bool, result string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p1, d1 := newEngine(t, answer), newEngine(t, healthy)
			r := start(t, setup{}, legPool("vllm", []*engine{p1}, []*engine{d1}))[0]
			sent := legChat(name, `"stream":true,"kv_transfer_params":{"do_remote_prefill":true},`)
			a := r.chat(sent)
			if a.StatusCode != 200 || a.err != nil || a.body != role+token("Hi")+finish+done {
				t.Fatalf("%d %v %q", a.StatusCode, a.err, a.body)
			}
			ds := d1.requests()
			if len(ds) != 1 {
				t.Fatalf("%d decodes", len(ds))
			}
			sameBut(t, "decode", ds[0].body, sent, map[string]string{"kv_transfer_params": "", "stream_options": `{"include_usage":true}`})
			if n := r.metric("hearsay_prefill_hops_total", `result="`+result+`"`); n != 1 {
				t.Errorf("%s is %v", result, n)
			}
			settled(t, []*router{r}, p1, d1)
		})
	}
	closes := func(g *got) bool { return false }
	f("no parameters", says(reply(200, good)), "no_params")
	f("null", strictPrefill("null"), "no_params")
	f("a list", strictPrefill("[1]"), "no_params")
	f("not JSON", says(reply(200, `{"kv_transfer_params":{"a":1}`)), "failed")
	f("no object", says(reply(200, `[]`)), "failed")
	f("an error in a 200", says(reply(200, oops)), "failed")
	f("closed before the head", closes, "failed")
	f("reset", func(g *got) bool { g.reset(); return false }, "failed")
	f("cut in its body", func(g *got) bool { g.write(reply(200, fmt.Sprintf(oneToken, filledKV))[:300]); return false }, "failed")
	f("500", says(reply(500, oops)), "failed")
	f("503", says(reply(503, full)), "failed")
	f("400", says(reply(400, tooLong)), "failed")
	f("404 without a body", says("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), "failed")
}

func TestC22AnotherPrefillReplica(t *testing.T) {
	t.Parallel()
	p1, p2, d1 := newEngine(t, says(reply(500, oops))), newEngine(t, strictPrefill(filledKV)), newEngine(t, healthy)
	r := start(t, setup{}, legPool("vllm", []*engine{p1, p2}, []*engine{d1}))[0]
	tries := 0
	for i := range 20 {
		if a := r.chat(legChat(fmt.Sprint("p", i), "")); a.body != good {
			t.Fatalf("%d %q", a.StatusCode, a.body)
		}
		tries = len(p1.requests())
		if tries > 0 {
			break
		}
	}
	ds, ps := d1.requests(), p2.requests()
	if tries != 1 || len(ps) != len(ds) || fields(t, ds[len(ds)-1].body)["kv_transfer_params"] != filledKV {
		t.Errorf("%d at the broken one, %d at the good one, %d decodes", tries, len(ps), len(ds))
	}
	if n := r.metric("hearsay_prefill_hops_total", `result="failed"`); n != 1 {
		t.Errorf("%v failed", n)
	}
	p1.refuse()
	for i := range 10 {
		if a := r.chat(legChat(fmt.Sprint("refused", i), "")); a.body != good {
			t.Fatalf("%d %q", a.StatusCode, a.body)
		}
	}
	if ds := d1.requests(); fields(t, ds[len(ds)-1].body)["kv_transfer_params"] != filledKV {
		t.Errorf("no hand-over while one refuses connections")
	}
	d1.becomes(says(reply(400, tooLong)))
	if a := r.chat(legChat("mistake", "")); a.StatusCode != 400 || a.body != tooLong {
		t.Errorf("a mistake: %d %q", a.StatusCode, a.body)
	}
	settled(t, []*router{r}, p1, p2, d1)
}

func TestC22AnotherDecodeReplica(t *testing.T) {
	t.Parallel()
	p1, d1, d2 := newEngine(t, strictPrefill(filledKV)), newEngine(t, nil), newEngine(t, nil)
	r := start(t, setup{}, legPool("vllm", []*engine{p1}, []*engine{d1, d2}))[0]
	f := func(name string, fails func(*got) bool, prefills int) {
		t.Helper()
		var second atomic.Bool
		either := func(g *got) bool { // whichever is asked first fails
			if !second.Swap(true) {
				return fails(g)
			}
			return healthy(g)
		}
		for _, e := range []*engine{p1, d1, d2} {
			e.forget()
		}
		d1.becomes(either)
		d2.becomes(either)
		if a := r.chat(legChat(name, `"stream":true,`)); a.StatusCode != 200 || a.err != nil || a.body != role+token("Hi")+finish+done {
			t.Fatalf("%s: %d %q", name, a.StatusCode, a.body)
		}
		if n := len(p1.requests()); n != prefills {
			t.Errorf("%s: %d prefills, want %d", name, n, prefills)
		}
		if n := len(d1.requests()) + len(d2.requests()); n != 2 {
			t.Errorf("%s: %d decodes", name, n)
		}
		settled(t, []*router{r}, p1, d1, d2)
	}
	f("500", says(reply(500, oops)), 2)
	f("reset", func(g *got) bool { g.reset(); return false }, 2)
	f("an error event", streams(errorEvent("InternalServerError", 500), done), 2)
	f("busy", says(reply(503, full)), 2)

	p1.forget()
	d1.becomes(healthy)
	d2.becomes(healthy)
	for i := range 30 {
		d1.forget()
		d2.forget()
		if i == 0 {
			d1.vanish()
		}
		if a := r.chat(legChat(fmt.Sprint("refused", i), "")); a.body != good {
			t.Fatalf("%d %q", a.StatusCode, a.body)
		}
	}
	for _, g := range d2.requests() {
		if fields(t, g.body)["kv_transfer_params"] != filledKV {
			t.Errorf("no hand-over while one refuses connections")
		}
	}
	if n := len(p1.requests()); n != 30 {
		t.Errorf("%d prefills for 30 requests, of which some met a replica that refuses connections", n)
	}
	d2.vanish()
	until(t, "no decode replica", func() bool {
		a := r.chat(legChat("none", ""))
		return a.StatusCode == 503 && strings.Contains(a.body, "decode") || a.StatusCode == 503 && strings.Contains(a.body, "reached")
	})
	settled(t, []*router{r}, p1, d1, d2)
}

func TestC22DecodeFailsWithTheKV(t *testing.T) {
	t.Parallel()
	p1, d1 := newEngine(t, strictPrefill(filledKV)), newEngine(t, nil)
	broken := says(reply(500, oops))
	d1.becomes(func(g *got) bool {
		if strings.Contains(g.body, "kv_transfer_params") {
			return broken(g)
		}
		return healthy(g)
	})
	r := start(t, setup{}, legPool("vllm", []*engine{p1}, []*engine{d1}))[0]
	if a := r.chat(legChat("spoilt", `"stream":true,`)); a.StatusCode != 200 || a.err != nil || a.body != role+token("Hi")+finish+done {
		t.Errorf("%d %q", a.StatusCode, a.body)
	}
	if p, d := len(p1.requests()), len(d1.requests()); p != 1 || d != 2 {
		t.Errorf("%d prefills, %d decodes", p, d)
	}
	d1.forget()
	d1.becomes(broken)
	if a := r.chat(legChat("broken", "")); a.StatusCode != 500 || a.body != oops {
		t.Errorf("broken: %d %q", a.StatusCode, a.body)
	}
	if d := len(d1.requests()); d != 2 {
		t.Errorf("%d decodes by one that is broken", d)
	}
	settled(t, []*router{r}, p1, d1)
}

func TestC22ClientLeaves(t *testing.T) {
	t.Parallel()
	p1, d1 := newEngine(t, nil), newEngine(t, nil)
	pc := legPool("vllm", []*engine{p1}, []*engine{d1})
	pc.Breaker.Failures = 1
	routers := start(t, setup{routers: 2}, pc)
	r := routers[0]
	f := func(name string, prefill, decode func(*got) bool, at, other *engine, n int) {
		t.Helper()
		for _, field := range []string{"", `"stream":true,`} {
			p1.forget()
			d1.forget()
			p1.becomes(prefill)
			d1.becomes(decode)
			s := r.open(legChat(fmt.Sprint(name, len(field)), field))
			until(t, name+": asked", func() bool { return len(at.requests()) == 1 })
			for _, r := range routers { // both are taken, on every router
				until(t, name+": counted", func() bool { return r.inFlight(d1) == 1 })
			}
			_ = s.conn.Close()
			within(t, time.Second, name+": the engine sees the close", func() bool { return at.gones() == 1 })
			settled(t, routers, p1, d1)
			if len(other.requests()) != n || r.is(p1, "ejected") || r.is(d1, "ejected") {
				t.Errorf("%s: the other one got %d, want %d", name, len(other.requests()), n)
			}
		}
	}
	f("while the prompt is prefilled", silent, healthy, p1, d1, 0)
	f("within the prefill's answer", func(g *got) bool { g.write(reply(200, fmt.Sprintf(oneToken, filledKV))[:200]); return silent(g) }, healthy, p1, d1, 0)
	f("while decode waits", strictPrefill(filledKV), silent, d1, p1, 1)
	f("behind decode's head", strictPrefill(filledKV), func(g *got) bool { g.write(streamHead); return silent(g) }, d1, p1, 1)
}

func TestMooncakeLegs(t *testing.T) {
	t.Parallel()
	var queries atomic.Int32
	boot := newEngine(t, nil)
	boot.gets = func(path string) string {
		if path != "/query" {
			return ""
		}
		queries.Add(1)
		return `{"0": {"engine_id": "6b\u0066f", "worker_addr": {"0": {"0": "tcp://10.0.0.1:1"}}}}`
	}
	p1, d1 := newEngine(t, says(reply(200, fmt.Sprintf(oneToken, "null")))), newEngine(t, healthy)
	pc := legPool("vllm", []*engine{p1}, []*engine{d1})
	pc.KVConnector = "mooncake"
	_, port, _ := strings.Cut(strings.TrimPrefix(boot.url, "http://"), ":")
	pc.Replicas[0].BootstrapPort, _ = strconv.Atoi(port)
	r := start(t, setup{}, pc)[0]
	until(t, "it is known which process it is", func() bool { return p1.readings() > 5 })
	names := map[string]bool{}
	for i := range 3 {
		p1.forget()
		d1.forget()
		sent := legChat(fmt.Sprint("m", i), "")
		if a := r.chat(sent); a.body != good {
			t.Fatalf("%d %q", a.StatusCode, a.body)
		}
		kv := fields(t, fields(t, p1.requests()[0].body)["kv_transfer_params"])
		id := kv["transfer_id"]
		names[id] = true
		sameBut(t, "prefill", p1.requests()[0].body, sent, map[string]string{
			"stream": "false", "max_tokens": "1",
			"kv_transfer_params": `{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":` + id + `}`,
		})
		sameBut(t, "decode", d1.requests()[0].body, sent, map[string]string{
			"kv_transfer_params": `{"do_remote_decode":false,"do_remote_prefill":true,"remote_engine_id":"6bff","remote_bootstrap_addr":"` + boot.url + `","transfer_id":` + id + `}`,
		})
	}
	if len(names) != 3 || queries.Load() != 1 {
		t.Errorf("%d names, %d queries", len(names), queries.Load())
	}
}
