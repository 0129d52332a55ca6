package proxy

import (
	"encoding/json"
	"strconv"
	"testing"

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
