package cases

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
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

// strictPrefill answers as a vLLM that prefills does, and refuses what that refuses.

// What the prefill leg is sent, and what the one that decodes.

// A prefill from which nothing comes costs the client nothing.

// A prefill replica that fails is replaced, within the tries of the pool; one that

// refuses connections as well. What the client wrote wrong is told by the replica that

// decodes, in its words.

// One that decodes and fails is replaced; the KV it may have taken is not promised to

// another one, and KV that it never heard of is.

// Where no other replica decodes, one that failed with what it was handed over gets the

// request without that: once.

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

// vanish ends the engine: nothing listens there any more.
func (e *engine) vanish() {
	_ = e.ln.Close()
	e.refuse()
}

// work are the requests to an engine but for those that abort others.

// aborted are the names of requests that an engine was told to drop.

// sglang starts an engine that answers so, and takes aborts.

// Both legs of SGLang carry the same body and where they meet.

// silent takes a request and says nothing until the router closes.

// One leg fails while the other waits for it.

// pairs lets engines wait for each other as SGLang's legs do: by their room.

// join answers a request when its other leg has come, and waits for that in silence.

// legFails has one leg fail on the first try of a request. With a second pair it is

// answered there, or by what is left of the first and the second.

// The leg that did not fail may be the one of the next try.

// A client that leaves takes both legs with it, at every step.

// vLLM's legs follow each other: a client that leaves ends the one that runs, and the

// next one never begins.

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
