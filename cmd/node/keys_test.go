package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A secret that was appended to a last line without an end makes one with it.
func TestSecretsRunTogetherAreFound(t *testing.T) {
	a, b := strings.Repeat("a", minSecret), strings.Repeat("b", minSecret)
	f := func(text string, want bool, inUse ...string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := readSecrets(path, maxSecrets)
		if err != nil {
			t.Fatal(err)
		}
		var keys [][]byte
		for _, k := range inUse {
			keys = append(keys, []byte(k))
		}
		if err := runTogether(path, list, keys); (err != nil) != want || err != nil && strings.Contains(err.Error(), inUse[0]) {
			t.Errorf("%q, in use %q: %v", text, inUse, err)
		}
	}
	f(a+b+"\n", true, a)
	f(b+"\n"+a+b+"\n", true, b, a)
	f(a+"\n"+b+"\n", false, a)
	f(b+a+"\n", true, a)
	f(b+"\n", false, a)
}

func TestSecretsOfAFile(t *testing.T) {
	long := strings.Repeat("s", minSecret)
	f := func(text string, most, want int, fault string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := readSecrets(path, most)
		if len(list) != want || (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("%q: %d secrets, %v", text, len(list), err)
		}
		if err != nil && strings.Contains(err.Error(), "sss") {
			t.Errorf("the secret is in the error: %v", err)
		}
	}
	f(long, 8, 1, "")
	f(long+"\n", 8, 1, "")
	f("  "+long+"\r\n\n"+long+"2\n", 8, 2, "")
	f("", 8, 0, "is empty")
	f("sss", 8, 0, "line 1")
	f(long+"\nsss\n", 8, 0, "line 2")
	f(long+"\n"+long+"\n", 8, 0, "repeats")
	f(long+"\n"+long+"2\n", 1, 0, "2 secrets, one a line: want 1 at most")
	if list, err := readSecrets("", 8); list != nil || err != nil {
		t.Errorf("no file: %v %v", list, err)
	}
	if _, err := readSecrets(filepath.Join(t.TempDir(), "absent"), 8); err == nil {
		t.Error("an absent file was read")
	}
}
