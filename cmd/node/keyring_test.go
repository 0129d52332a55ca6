package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

func TestChangedKeys(t *testing.T) {
	a, b, c := strings.Repeat("a", 16), strings.Repeat("b", 16), strings.Repeat("c", 16)
	print := func(s string) string { return fingerprints([][]byte{[]byte(s)})[0] }
	f := func(have string, call keyCall, want string) {
		t.Helper()
		var list [][]byte
		for _, s := range strings.Fields(have) {
			list = append(list, []byte(s))
		}
		next, err := changedKeys(list, &call)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			for _, s := range next {
				got += string(s) + " "
			}
		}
		if got = strings.TrimSpace(got); got != want {
			t.Errorf("%s %+v: %q, want %q", have, call, got, want)
		}
		for i, s := range strings.Fields(have) {
			if string(list[i]) != s {
				t.Errorf("%+v changed the list in use", call)
			}
		}
	}
	f(a, keyCall{Op: keyAdd, Secret: []byte(b)}, a+" "+b)
	f(a+" "+b, keyCall{Op: keyAdd, Secret: []byte(b)}, a+" "+b)
	f(a, keyCall{Op: keyAdd, Secret: []byte("short")}, "this is no secret")
	f(a, keyCall{Op: keyAdd, Secret: []byte(b + "\n" + c)}, "this is no secret")
	f(a+" "+b+" "+c, keyCall{Op: keyUse, Print: print(c)}, c+" "+a+" "+b)
	f(a+" "+b, keyCall{Op: keyUse, Print: print(a)}, a+" "+b)
	f(a, keyCall{Op: keyUse, Print: print(b)}, "it has no such secret")
	f(a+" "+b, keyCall{Op: keyRemove, Print: print(b)}, a)
	f(a+" "+b, keyCall{Op: keyRemove, Print: print(a)}, "it uses that secret")
	f(a, keyCall{Op: keyRemove, Print: print(c)}, a)
	f(a, keyCall{Op: "dance"}, `"dance" is not known here`)
}

func TestKeysAllowNoCut(t *testing.T) {
	f := func(op, print, want string, now ...console.Keys) {
		t.Helper()
		err := keysAllow(now, op, print, false)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s %s of %+v: %v, want %q", op, print, now, err, want)
		}
	}
	keys := func(name string, prints ...string) console.Keys { return console.Keys{Name: name, Keys: prints} }
	f(keyAdd, "", "", keys("r1", "a"), keys("r2", "a"))
	f(keyAdd, "b", "", keys("r1", "a", "b"), keys("r2", "a"))
	f(keyAdd, "z", "no router has a secret z", keys("r1", "a"))
	f(keyAdd, "", "8 secrets already", keys("r1", "a", "b", "c", "d", "e", "f", "g", "h"))
	f(keyUse, "b", "", keys("r1", "a", "b"), keys("r2", "b", "a"))
	f(keyUse, "b", "router r2 has no secret b", keys("r1", "a", "b"), keys("r2", "a"))
	f(keyUse, "b", "router r2 does not say", keys("r1", "a", "b"), console.Keys{Name: "r2", Error: "no answer"})
	away := func(name string) console.Keys { return console.Keys{Name: name, Error: "it is away", Away: true} }
	for op, print := range map[string]string{keyAdd: "", keyUse: "b", keyRemove: "b"} {
		f(op, print, "2 of 3 routers are away (r2, r3)", keys("r1", "a", "b"), away("r2"), away("r3"))
		if err := keysAllow([]console.Keys{keys("r1", "a", "b"), away("r2")}, op, print, true); err != nil {
			t.Errorf("%s by force: %v", op, err)
		}
	}
	f(keyUse, "z", "no router has a secret z", keys("r1", "a", "b"), away("r2"))
	f(keyUse, "", "without a fingerprint", keys("r1", "a"))
	f(keyRemove, "a", "router r1 uses secret a", keys("r1", "a", "b"), keys("r2", "b", "a"))
	f(keyRemove, "a", "", keys("r1", "b", "a"), keys("r2", "b"))
	f("dance", "a", "use add, use or remove", keys("r1", "b", "a"))
}

func TestSecretsAreReplacedWhereTheyAre(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "secret"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("0123456789abcdef\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := replaceSecrets(link, [][]byte{[]byte("fedcba9876543210"), []byte("0123456789abcdef")}); err != nil {
		t.Fatal(err)
	}
	list, err := readSecrets(file, 8)
	if err != nil || len(list) != 2 || string(list[0]) != "fedcba9876543210" {
		t.Errorf("%q, %v", list, err)
	}
	if info, err := os.Lstat(file); err != nil || info.Mode().Perm() != 0o640 || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link: %v, %v", info, err)
	}
}

func TestAddedSecretIsMarked(t *testing.T) {
	list := []console.Keys{{Name: "r1", Keys: []string{"a", "b"}}, {Name: "r2", Keys: []string{"a"}, Error: "its file is read-only"}, {Name: "r3", Away: true}}
	markAdded(list, "b")
	if list[0].Added != "b" || list[1].Added != "" || list[2].Added != "" {
		t.Errorf("%+v", list)
	}
}
