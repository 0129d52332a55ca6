package state_test

import (
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/state"
)

// Spellings of one address are one replica; a name is not the address it stands for.
func TestNormalURL(t *testing.T) {
	same := func(want string, spellings ...string) {
		t.Helper()
		for _, in := range spellings {
			if got, err := state.NormalURL(in); err != nil || got != want {
				t.Errorf("%q: %q, %v; want %q", in, got, err, want)
			}
		}
	}
	same("http://r1:80", "http://r1", "HTTP://R1", "http://r1/", "http://r1:80//", " http://r1. ", "http://r1:080")
	same("https://r1.example:443", "https://R1.Example", "https://r1.example.:443/")
	same("http://10.0.0.1:8000", "http://10.0.0.1:8000", "http://[::ffff:10.0.0.1]:8000")
	same("http://[::1]:8000", "http://[::1]:8000", "http://[0:0:0:0:0:0:0:1]:8000")
	same("http://localhost:8000", "http://LocalHost:8000")
	same("http://vllm_0.pods:8000", "http://vllm_0.pods:8000")

	for _, bad := range []string{
		"", "r1:8000", "ftp://r1", "http://", "http://u:p@r1", "http://u@r1", "http://r1/v1", "http://r1?x=1", "http://r1?", "http://r1#f",
		"http://r1:0", "http://r1:70000", "http://r1:x", "http://аpple.com", "http://xn--pple-43d.com", "http://e\u0301.com", "http://r1\u200b.com",
		"http://127.1", "http://0x7f.1", "http://2130706433", "http://0177.0.0.1", "http://10.0.0.256", "http://1.2.3.4.5", "http://0x7f000001",
		"http://a..b", "http://.a", "http://a b", "http://a%2eb@c", "http://a\\@b", "http://10.0.0.1:8000:9000", "file:///etc/passwd",
	} {
		if got, err := state.NormalURL(bad); err == nil {
			t.Errorf("%q is taken for %q", bad, got)
		}
	}
}

// What stands before an @ is told to nobody.
func TestNormalURLHidesSecrets(t *testing.T) {
	for _, s := range []string{"http://u:hush@r1", "http://hush@r1", "http://u:hu sh@r1", "x://hush@", "hush@r1:80"} {
		if _, err := state.NormalURL(s); err == nil || strings.Contains(err.Error(), "hu") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// A normal form is its own normal form.
func FuzzNormalURL(f *testing.F) {
	for _, s := range []string{"http://r1", "https://[::1]:1", "http://10.0.0.1:80/", "http://a_b.c:7"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		one, err := state.NormalURL(s)
		if err != nil {
			return
		}
		if two, err := state.NormalURL(one); err != nil || two != one {
			t.Errorf("%q: %q, then %q, %v", s, one, two, err)
		}
	})
}
