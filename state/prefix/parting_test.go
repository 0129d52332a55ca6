package prefix

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// quoted is a chat with a system prompt and a question.
func quoted(system, user string) Input {
	b, _ := json.Marshal([]map[string]string{{"role": "system", "content": system}, {"role": "user", "content": user}})
	return chat(string(b))
}

// prose is text of about n bytes, other text for each name.
func prose(name string, n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%s says %d and then %d. ", name, i*7919%1000, i*104729%977)
	}
	return b.String()
}

func TestPartingNamesTheValue(t *testing.T) {
	f := func(name, a, b, value string, at int) {
		t.Helper()
		long := prose("manual", 4000)
		p, ok := Part(Seed{}, quoted(a+long, "Hello"), Seed{}, quoted(b+long, "Goodbye"))
		if !ok || p.Path != "messages[0].content" || p.Value != value || p.Byte != at {
			t.Errorf("%s: %+v, %v, want a %s at byte %d", name, p, ok, value, at)
		}
		if share := float64(p.Again) / float64(p.Prompt-p.Shared); share < 0.9 {
			t.Errorf("%s: %.2f of the rest is found again", name, share)
		}
	}
	f("an instant", "It is 2026-11-30T13:18:40Z. ", "It is 2026-11-30T13:18:41Z. ", ValueTimestamp, 6)
	f("an instant with an offset", "It is 2026-11-30T13:18:40.123+01:00. ", "It is 2026-11-30T13:19:40.001+01:00. ", ValueTimestamp, 6)
	f("Unix seconds", "now: 1796052000\n", "now: 1796052007\n", ValueTimestamp, 5)
	f("a date", "Today is 2026-11-30. ", "Today is 2026-12-01. ", ValueDate, 9)
	f("behind an escape", "Today:\n2026-11-30 ", "Today:\n2026-11-29 ", ValueDate, 7)
	f("behind a name", "date:2026-11-30 ", "date:2026-11-29 ", ValueDate, 5)
	f("a weekday", "Today is Monday. ", "Today is Sunday. ", ValueDate, 9)
	f("a time", "It is 13:18:40 now. ", "It is 13:20:10 now. ", ValueTime, 6)
	f("a UUID", "id 6ba7b810-9dad-11d1-80b4-00c04fd430c8 ", "id 6ba7b810-9dad-11d1-80b4-00c04fd430c9 ", ValueUUID, 3)
	f("a counter", "Request 1041. ", "Request 1042. ", ValueNumber, 8)
	f("an address", "from 10.0.0.17 ", "from 10.0.0.18 ", ValueAddress, 5)
	f("an id", "session sess_8f3a21bc ", "session sess_8f3a99bc ", ValueID, 8)
	f("words", "Dear Anna, ", "Dear Otto, ", ValueText, 5)
}

func TestPartingsThatAreNone(t *testing.T) {
	long := prose("manual", 4000)
	f := func(name string, a, b Input, sa, sb Seed) {
		t.Helper()
		if p, ok := Part(sa, a, sb, b); ok {
			t.Errorf("%s: %+v", name, p)
		}
	}
	one := quoted(long, "Hello")
	f("the same", one, quoted(long, "Hello"), Seed{}, Seed{})
	f("another model", one, quoted(long+"x", "Hello"), Seed{Model: "a"}, Seed{Model: "b"})
	f("not JSON", one, chat(`[{"role":`), Seed{}, Seed{})
	more := strings.TrimSuffix(string(one.Messages), "]") + `,{"role":"assistant","content":"Hi"},{"role":"user","content":"Go on"}]`
	f("the next turn", one, chat(more), Seed{}, Seed{})
}

func TestHowMuchIsFoundAgain(t *testing.T) {
	long := prose("manual", 8000)
	f := func(name string, a, b Input, least, most float64) {
		t.Helper()
		p, ok := Part(Seed{}, a, Seed{}, b)
		share := float64(p.Again) / float64(max(1, p.Prompt-p.Shared))
		if !ok || share < least || share > most {
			t.Errorf("%s: %+v: %.2f of the rest, want %.2f to %.2f", name, p, share, least, most)
		}
	}
	f("all but the first word", quoted("A1 "+long, "x"), quoted("B2 "+long, "x"), 0.95, 1)
	f("another order", quoted("A "+prose("one", 4000)+long, "x"), quoted("B "+long+prose("one", 4000), "x"), 0.95, 1)
	f("half of it", quoted("A "+long+prose("left", 8000), "x"), quoted("B "+long+prose("right", 8000), "x"), 0.4, 0.6)
	f("nothing", quoted("A "+prose("left", 8000), "x"), quoted("B "+prose("right", 8000), "x"), 0, 0.05)
	a, b := quoted("A "+long, "x"), quoted("B "+long, "x")
	a.Tools, b.Tools = []byte(`[{"name":"f","description":"v1"}]`), []byte(`[{"name":"f","description":"v2"}]`)
	f("in a field behind", a, b, 0.9, 1)

	p, ok := Part(Seed{CacheSalt: "1"}, quoted(long, "x"), Seed{CacheSalt: "2"}, quoted(long, "x"))
	if !ok || p.Path != "cache_salt" || p.Value != ValueSalt || p.Shared != 0 || p.Again < 8000 || p.Again != p.Prompt {
		t.Errorf("two salts: %+v, %v", p, ok)
	}
}

// Part takes any two documents without a word.
func FuzzPart(f *testing.F) {
	f.Add(`[{"role":"user","content":"It is 13:18:40 now"}]`, `[{"role":"user","content":"It is 13:18:41 now"}]`)
	f.Add(`[{"role":"user","content":"\u00e9\n2026-11-30"}]`, `[{"role":"user","content":"é\n2026-11-29"}]`)
	f.Add(`[1,2,3]`, `[1,2`)
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, kind := range []Kind{Chat, Completion} {
			x, y := Input{Kind: kind, Messages: []byte(a), Prompt: []byte(a)}, Input{Kind: kind, Messages: []byte(b), Prompt: []byte(b)}
			p, _ := Part(Seed{}, x, Seed{}, y)
			if p.Again < 0 || p.Again > p.Prompt || p.Byte < 0 || p.Shared < 0 {
				t.Fatalf("%+v of %q and %q", p, a, b)
			}
		}
	})
}
