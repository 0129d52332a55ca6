package console

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// What waits for a pool, here and elsewhere, and what was refused are told with it.
func TestPoolsTellWhatWaits(t *testing.T) {
	f := newFake()
	f.queue = Queue{Here: map[string]int64{"high": 2}, WaitMS: 1500, Refused: map[string]int64{"queue_full": 3}}
	f.refused = map[string]int64{"body_budget": 4}
	f.store.Wait("chat", 2, 100)
	url := start(t, f, "")
	const told = `"waiting":2,"waiting_here":{"high":2},"expected_wait_ms":1500,"refused_last_minute":{"queue_full":3}`
	for path, want := range map[string]string{
		"pools": told, "status": told, "status?": `"refused_last_minute":{"body_budget":4}}`,
	} {
		_, body := do(t, "GET", url+"/admin/v1/"+path, "")
		var line bytes.Buffer
		if err := json.Compact(&line, []byte(body)); err != nil || !strings.Contains(line.String(), want) {
			t.Errorf("%s lacks %s, %v:\n%s", path, want, err, body)
		}
	}
}

// A recording is told of every request, and only to who asks for it by name.
func TestRequestsAreToldToWhoNamesThem(t *testing.T) {
	e := NewEvents()
	all, named := e.join(nil), e.join([]string{KindRequest})
	defer e.leave(all)
	for range 50 { // within a moment: picks would be sampled
		e.Request(func() Event { return Event{RequestID: "x", Record: &Record{}} })
	}
	if n := len(named.events); n != 50 {
		t.Errorf("%d of 50 told", n)
	}
	if n := len(all.events); n != 0 {
		t.Errorf("%d told to who did not ask", n)
	}
	e.leave(named)
	e.Request(func() Event { t.Error("made for nobody"); return Event{} })
}
