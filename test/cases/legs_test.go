package cases

import (
	"encoding/json"
	"fmt"
	"io"
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

// long is a prompt that is worth a hop: thousands of tokens that no test shares.
func long(seed string) string {
	var b strings.Builder
	for i := range 600 {
		fmt.Fprintf(&b, "%s says %d of %d. ", seed, i, (i*7919)%997)
	}
	return b.String()
}

// legChat is a chat with such a prompt and further fields.
func legChat(seed, fields string) string {
	return `{"model":"m",` + fields + `"messages":[{"role":"user","content":"` + long(seed) + `"}]}`
}

// legPool is a pool of these engines in two roles.
func legPool(kind string, prefill, decode []*engine) node.PoolConfig {
	p := pool(append(append([]*engine{}, prefill...), decode...)...)
	p.Engine = kind
	for i := range p.Replicas {
		if p.Replicas[i].Role = "prefill"; i >= len(prefill) {
			p.Replicas[i].Role = "decode"
		}
	}
	return p
}

// fields are the top-level fields of a body, as they stand there.
func fields(t *testing.T, body string) map[string]string {
	t.Helper()
	var raw map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &raw); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	out := map[string]string{}
	for k, v := range raw {
		out[k] = string(v)
	}
	return out
}

// sameBut checks that two bodies' fields are the same but for those given; an empty
// value is one that must not be there.
func sameBut(t *testing.T, what, got, sent string, but map[string]string) {
	t.Helper()
	have, want := fields(t, got), fields(t, sent)
	for _, name := range []string{"kv_transfer_params", "bootstrap_room", "rid", "max_tokens", "stream"} {
		if n := strings.Count(got, `"`+name+`":`); n > 1 {
			t.Errorf("%s: %s stands %d times in %.600s", what, name, n, got)
		}
	}
	for k, v := range but {
		if want[k] = v; v == "" {
			delete(want, k)
		}
	}
	for k, v := range want {
		if have[k] != v {
			t.Errorf("%s: %s is %.200q, want %.200q", what, k, have[k], v)
		}
		delete(have, k)
	}
	for k, v := range have {
		t.Errorf("%s: %s should not be there: %.200q", what, k, v)
	}
}

// header finds a header of a request in its bytes.
func (g *got) header(name string) string {
	for line := range strings.Lines(g.head) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.EqualFold(k, name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func (g *got) path() string { return strings.Fields(g.head)[1] }

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

// strictPrefill answers as a vLLM that prefills does, and refuses what that refuses.
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

// What the prefill leg is sent, and what the one that decodes.
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

// A prefill from which nothing comes costs the client nothing.
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

// A prefill replica that fails is replaced, within the tries of the pool; one that
// refuses connections as well. What the client wrote wrong is told by the replica that
// decodes, in its words.
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

// One that decodes and fails is replaced; the KV it may have taken is not promised to
// another one, and KV that it never heard of is.
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

// Where no other replica decodes, one that failed with what it was handed over gets the
// request without that: once.
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

// What is not worth a hop, or can't be split, is served by one replica.
func TestRequestsInOneLeg(t *testing.T) {
	t.Parallel()
	p1, d1 := newEngine(t, strictPrefill(filledKV)), newEngine(t, healthy)
	r := start(t, setup{}, legPool("vllm", []*engine{p1}, []*engine{d1}))[0]
	f := func(name, body, result string) {
		t.Helper()
		before := r.metric("hearsay_prefill_hops_total", `result="`+result+`"`)
		p1.forget()
		if a := r.chat(body); a.StatusCode != 200 {
			t.Errorf("%s: %d %q", name, a.StatusCode, a.body)
		}
		if n := len(p1.requests()); n != 0 {
			t.Errorf("%s: %d prefills", name, n)
		}
		if n := r.metric("hearsay_prefill_hops_total", `result="`+result+`"`) - before; n != 1 {
			t.Errorf("%s: %s went up by %v", name, result, n)
		}
	}
	f("short", ask, "short")
	f("two choices", legChat("n", `"n":2,`), "unfit")
	f("best of two", legChat("best", `"best_of":2,`), "unfit")
	f("the prompt's logprobs", legChat("scores", `"prompt_logprobs":1,`), "unfit")
	f("echo", legChat("echo", `"echo":true,`), "unfit")

	again := legChat("again", "")
	if a := r.chat(again); a.StatusCode != 200 || len(p1.requests()) != 1 {
		t.Fatalf("%d, %d prefills", a.StatusCode, len(p1.requests()))
	}
	f("a prompt that is there", again, "short")
	settled(t, []*router{r}, p1, d1)
}

// rooms are the meeting places that a body names.
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

// vanish ends the engine: nothing listens there any more.
func (e *engine) vanish() {
	_ = e.ln.Close()
	e.refuse()
}

// work are the requests to an engine but for those that abort others.
func (e *engine) work() (list []*got) {
	for _, g := range e.requests() {
		if g.path() != "/abort_request" {
			list = append(list, g)
		}
	}
	return list
}

// aborted are the names of requests that an engine was told to drop.
func (e *engine) aborted() (list []string) {
	for _, g := range e.requests() {
		if g.path() == "/abort_request" {
			list = append(list, g.body)
		}
	}
	return list
}

// sglang starts an engine that answers so, and takes aborts.
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

// Both legs of SGLang carry the same body and where they meet.
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

// silent takes a request and says nothing until the router closes.
func silent(g *got) bool { g.gone(); return false }

// One leg fails while the other waits for it.
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

// pairs lets engines wait for each other as SGLang's legs do: by their room.
type pairs struct {
	mu  sync.Mutex
	met map[string]chan struct{} // guarded by mu; closed when both legs are there
}

// join answers a request when its other leg has come, and waits for that in silence.
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

// legFails has one leg fail on the first try of a request. With a second pair it is
// answered there, or by what is left of the first and the second.
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

// The leg that did not fail may be the one of the next try.
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

// A client that leaves takes both legs with it, at every step.
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

// vLLM's legs follow each other: a client that leaves ends the one that runs, and the
// next one never begins.
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

// Heartbeats go out while the prompt is prefilled elsewhere, and what comes then is
// one answer.
func TestC10HeartbeatsDuringTwoLegs(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"vllm", "sglang"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			prefilled, decoded := make(chan bool), make(chan bool)
			waits := func(now chan bool, then func(*got) bool) func(*got) bool {
				return func(g *got) bool {
					select {
					case <-now:
					case <-time.After(patience):
					}
					return then(g)
				}
			}
			p1, d1 := newEngine(t, waits(prefilled, strictPrefill(filledKV))), newEngine(t, waits(decoded, healthy))
			if kind == "sglang" {
				p1.sglang, d1.sglang = true, true
				p1.serves(waits(prefilled, healthy))
			}
			pc := legPool(kind, []*engine{p1}, []*engine{d1})
			pc.Heartbeat = 100 * time.Millisecond
			r := start(t, setup{}, pc)[0]
			s := r.open(legChat("beats", `"stream":true,`))
			s.expect(": waiting\n\n: waiting\n\n") // during the prefill
			prefilled <- true
			s.expect(": waiting\n\n")
			s.expect(": waiting\n\n")
			decoded <- true
			a := s.rest()
			for strings.HasPrefix(a.body, ": waiting\n\n") {
				a.body = strings.TrimPrefix(a.body, ": waiting\n\n")
			}
			if a.err != nil || a.body != role+token("Hi")+finish+done {
				t.Errorf("%v %q", a.err, a.body)
			}
			if n := len(p1.requests()) + len(d1.requests()); n != 2 {
				t.Errorf("%d requests", n)
			}
			settled(t, []*router{r}, p1, d1)
		})
	}
}

// A pool needs both roles, and says which one is missing.
func TestPoolWithoutOneOfItsRoles(t *testing.T) {
	t.Parallel()
	p1, d1 := newEngine(t, strictPrefill(filledKV)), newEngine(t, healthy)
	r := start(t, setup{}, legPool("vllm", []*engine{p1}, []*engine{d1}))[0]
	ready := func() string {
		resp, err := r.http.Get("http://" + r.api + "/readyz?verbose")
		must(t, err)
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		must(t, err)
		return string(b)
	}
	until(t, "both are there", func() bool {
		s := ready()
		return strings.Contains(s, `"prefill":1,"decode":1`) && !strings.Contains(s, "missing")
	})
	r.drain(p1, "drain")
	until(t, "prefill is missing", func() bool { return strings.Contains(ready(), `"missing":"prefill"`) })
	if a := r.chat(legChat("alone", "")); a.body != good || len(p1.requests()) != 0 || strings.Contains(d1.requests()[0].body, "kv_transfer_params") {
		t.Errorf("without prefill: %d %q", a.StatusCode, a.body)
	}
	if !strings.Contains(r.get("/admin/v1/status"), "pool p lacks replicas that prefill") {
		t.Error("status does not say so")
	}
	r.drain(p1, "undrain")
	r.drain(d1, "drain")
	until(t, "decode is missing", func() bool { return strings.Contains(ready(), `"missing":"decode"`) })
	if a := r.chat(legChat("none", "")); a.StatusCode != 503 || !strings.Contains(a.body, "No decode replica") || a.Header.Get("Retry-After") == "" || len(p1.requests()) != 0 {
		t.Errorf("without decode: %d %q, %d prefills", a.StatusCode, a.body, len(p1.requests()))
	}
}

// drain has an operator drain an engine, or undrain it.
func (r *router) drain(e *engine, how string) {
	r.t.Helper()
	resp, err := r.http.Post("http://"+r.admin+"/admin/v1/replicas/"+strings.TrimPrefix(e.url, "http://")+"/"+how, "application/json", strings.NewReader("{}"))
	must(r.t, err)
	_ = resp.Body.Close()
	if resp.StatusCode != 200 && resp.StatusCode != 202 { // 202: not everywhere yet
		r.t.Fatalf("%s: %d", how, resp.StatusCode)
	}
}

// SGLang's engines that decode serve nothing that was not prefilled for them.
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

// A prefill replica that nobody reaches costs requests nothing once that is known:
// the other leg does it all.
func TestPrefillReplicaOutOfReach(t *testing.T) {
	t.Parallel()
	p1, d1 := newEngine(t, strictPrefill(filledKV)), newEngine(t, healthy)
	r := start(t, setup{}, legPool("vllm", []*engine{p1}, []*engine{d1}))[0]
	p1.vanish()
	n := 0
	until(t, "it is passed over", func() bool {
		n++
		if a := r.chat(legChat(fmt.Sprint("n", n), "")); a.body != good {
			t.Fatalf("%d %q", a.StatusCode, a.body)
		}
		return r.metric("hearsay_prefill_hops_total", `result="no_replica"`) > 0
	})
	settled(t, []*router{r}, p1, d1)
}

// Engines of different versions have no KV in common.
func TestLegsOfOneVersion(t *testing.T) {
	t.Parallel()
	p1, p2, d1 := newEngine(t, strictPrefill(filledKV)), newEngine(t, strictPrefill(filledKV)), newEngine(t, healthy)
	p1.version = "0.12.0"
	r := start(t, setup{}, legPool("auto", []*engine{p1, p2}, []*engine{d1}))[0]
	n := 0
	until(t, "it is known what they are", func() bool {
		n++
		r.chat(legChat(fmt.Sprint("first", n), ""))
		return len(p1.requests())+len(p2.requests()) > 0
	})
	p2.forget()
	for i := range 12 {
		if a := r.chat(legChat(fmt.Sprint("v", i), "")); a.body != good {
			t.Fatalf("%d %q", a.StatusCode, a.body)
		}
	}
	if a, b := len(p1.requests()), len(p2.requests()); a != 0 || b != 12 {
		t.Errorf("%d prefills by the other version, %d by the same", a, b)
	}
}

// Mooncake's legs name the hand-over; where the KV is, is asked for once.
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
