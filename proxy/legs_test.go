package proxy

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hearsay-llm/hearsay/state"
)

func TestWhereLegsMeet(t *testing.T) {
	f := func(url string, port int, wantHost string, wantPort int) {
		t.Helper()
		p := &state.ReplicaView{Replica: state.Replica{URL: url, BootstrapPort: port}}
		if host, n := bootstrapOf(p); host != wantHost || n != wantPort {
			t.Errorf("%s: %s %d", url, host, n)
		}
	}
	f("http://10.0.0.1:30000", 0, "10.0.0.1", 8998)
	f("https://p-0.prefill:443", 9001, "p-0.prefill", 9001)
	f("http://[fd00::1]:30000", 0, "[fd00::1]", 8998)

	names := map[string]bool{}
	for range 1000 {
		room, name := newRoom(), newName()
		if n, err := strconv.ParseInt(room, 10, 64); err != nil || n < 0 || names[room] || names[name] || len(name) != 40 {
			t.Fatalf("room %s, name %s", room, name)
		}
		names[room], names[name] = true, true
	}
}

func TestEngineOfABootstrapServer(t *testing.T) {
	f := func(doc, rank, want string) {
		t.Helper()
		if got := engineIn([]byte(doc), rank); got != want {
			t.Errorf("%s: %q", doc, got)
		}
	}
	f(`{"0":{"engine_id":"a","worker_addr":{"0":{"0":"tcp://h:1"}}},"1":{"engine_id":"b"}}`, "0", "a")
	f(`{"0":{"engine_id":"a"},"1":{"worker_addr":{},"engine_id":"\u0062"}}`, "1", "b")
	f(`{"0":{"engine_id":"a"}}`, "1", "")
	f(`{"0":{"engine_id":7}}`, "0", "")
	f(`{"0":"a"}`, "0", "")
	f(`{"0":{"engine_id":"a"}`, "0", "")
	f(`[]`, "0", "")
}

func FuzzEngineIn(f *testing.F) {
	f.Add([]byte(`{"0":{"engine_id":"a","worker_addr":{}}}`))
	f.Add([]byte(`{"0":{"engine_id":"\ud800"},"0":[]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if id := engineIn(doc, "0"); id != "" && !json.Valid(doc) {
			t.Errorf("%q in %q", id, doc)
		}
	})
}

// A prefill that takes its time to read the prompt gets all of it, though the answer has
// begun and others ask meanwhile: the buffer it is sent from is nobody else's.
func TestSlowPrefillReadsWhatTheClientSent(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		ln := w.listen("p1")
		prefilled := make(chan string, 1)
		begun, read := make(chan bool), make(chan bool)
		var side sync.WaitGroup
		side.Go(func() {
			c, err := ln.Accept()
			must(t, err)
			defer func() { _ = c.Close() }()
			br := bufio.NewReaderSize(c, 1<<10)
			req, err := http.ReadRequest(br)
			must(t, err)
			<-begun // what fits in between is on its way, the rest waits in the router
			body, _ := io.ReadAll(req.Body)
			prefilled <- string(body)
			_, _ = io.WriteString(c, jsonAnswer(200, `{"usage":{"prompt_tokens":1,"total_tokens":2,"completion_tokens":1}}`))
			_, _ = br.ReadByte()
		})
		g := newRig(t, w, handlers(func(e *engine, in *incoming) bool {
			if in.n > 1 || len(in.body) < 1<<20 {
				return in.write(jsonAnswer(200, `{"choices":[]}`)) == nil
			}
			_ = in.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("data: {\"choices\":[]}\n\n"))
			<-read
			return in.write(chunk("data: [DONE]\n\n")+"0\r\n\r\n") == nil
		}), func(cfg *Config, spec *poolSpec) { cfg.Core.Picker, spec.Engine = nil, state.EngineSGLang })
		decode := state.Replica{ID: "e1", URL: g.engines[0].url, Role: state.RoleDecode}
		g.store.SetReplicas(state.SourceStatic, "chat", []state.Replica{decode, {ID: "p1", URL: "http://p1:80", Role: state.RolePrefill}})

		body := `{"model":"llama","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("All of it. ", 120_000) + `"}]}`
		c := g.conn()
		br := bufio.NewReader(c)
		_, err := io.WriteString(c, post("/v1/chat/completions", body))
		must(t, err)
		resp, err := http.ReadResponse(br, nil)
		must(t, err)
		line, err := bufio.NewReader(resp.Body).ReadString('\n')
		if err != nil || line != "data: {\"choices\":[]}\n" {
			t.Fatalf("%q, %v", line, err)
		}
		synctest.Wait()
		close(begun)
		got := <-prefilled
		close(read)
		if _, rest, ok := strings.Cut(body, `"messages"`); !ok || !strings.Contains(got, rest[:len(rest)-1]) {
			t.Errorf("the prefill got other bytes than the client sent: %d, %.200q ... %.100q", len(got), got, got[max(0, len(got)-100):])
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		g.stop()
		_ = ln.Close()
		side.Wait()
	})
}
