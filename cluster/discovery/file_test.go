package discovery_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/discovery"
	"github.com/hearsay-llm/hearsay/state"
)

func TestParseFile(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		list, err := discovery.ParseFile([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			return
		}
		var have []string
		for _, x := range list {
			have = append(have, x.URL)
		}
		if strings.Join(have, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %q", text, have)
		}
	}
	f("[]")
	f("replicas: []")
	f(`{"replicas": []}`)
	f("- http://a:1\n- {url: http://b:1}", "http://a:1", "http://b:1")
	f("# comment\nreplicas:\n  - url: http://a:1\n", "http://a:1")
	f(`["http://a:1", {"url": "http://b:1"}]`, "http://a:1", "http://b:1")
	f("{\n\t\"replicas\": [\n\t\t{\"url\": \"http://a:1\", \"role\": \"decode\"}]}", "http://a:1")
	f(`[{url: "http://a:1"}]`, "http://a:1")
	f("\ufeff- http://a:1\r\n- http://b:1\r\n", "http://a:1", "http://b:1") // as editors on Windows write it
	f("\ufeff[\"http://a:1\"]", "http://a:1")

	list, err := discovery.ParseFile([]byte("- {url: http://a:1, role: prefill, bootstrap_port: 9, dp_ranks: 2, id: x, name: n, drain: true}"))
	want := discovery.Found{ID: "x", Name: "n", URL: "http://a:1", Role: state.RolePrefill, BootstrapPort: 9, Ranks: 2, Leaving: "its file says drain"}
	if err != nil || len(list) != 1 || list[0] != want {
		t.Errorf("%+v, %v", list, err)
	}

	for _, bad := range []string{
		"", " \n", "# nothing", "null", "~", "x", "1", "{}", "[", "- url: http://a:1\n- ur", "- url: http://a:1\n  rol", `[{"url": "http://a:1"}`, `{"replicas": [`,
		"- {url: http://a:1, weight: 3}", `[{"url": "http://a:1", "weight": 3}]`, "replicas: []\nother: 1", `{"replicas": [], "other": 1}`,
		"- {role: both}", "- {url: http://a:1, role: x}", "- {url: http://a:1, bootstrap_port: 9}", "- {url: http://a:1, role: prefill, bootstrap_port: 70000}",
		"- {url: http://a:1, id: a/b}", "- {url: http://a:1, dp_ranks: 2000}", "- {url: http://a:1, dp_ranks: -1}", "- http://a:1/v1", "- http://u:p@a:1", "- [http://a:1]", "- null", "- http://a:1\n---\n- http://b:1", "replicas: {a: b}", "- 17", "[null]", "[17]",
		"a: &a [*a]", "- &a [*a]",
	} {
		if list, err := discovery.ParseFile([]byte(bad)); err == nil {
			t.Errorf("%q is taken: %+v", bad, list)
		}
	}
}

// Who wrote the file is told the line, the key and what to write, not what a library says.
func TestFaultsOfFilesAreSaid(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		_, err := discovery.ParseFile([]byte(text))
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v, want %q", text, err, w)
			}
		}
		for _, inner := range []string{"unmarshal", "EOF", "json:", "yaml:", "Go ", "cannot", "!!"} {
			if err != nil && strings.Contains(err.Error(), inner) {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
	f("", "it is empty", "write []")
	f("# none", "it is empty", "write []")
	f("- http://a:1\n- {url: [x]}", "line 2: url", "write a text such as")
	f("- url: http://a:1\n  dp_ranks: many", "line 2: dp_ranks", "write a whole number")
	f("- url: http://a:1\n  drain: maybe", "line 2: drain", "write true or false")
	f("- url: http://a:1\n  wheight: 1", "line 2: \"wheight\" is no key", "use url, role")
	f("- url: http://a:1\n  url: http://a:2", "line 2: url is given twice")
	f("- http://a:1\n-\n", "line 2: an entry is neither")
	f("- http://a:1\n- http://a:1/v1", "line 2, replica 2: ")
	f("\n[\n\t{\"url\": \"http://a:1\"},\n\t{\"url\": 7}]", "line 4: url", "write a text")
	f("[{\"url\": \"http://a:1\",\n\"dp_ranks\": 1.5}]", "line 2: dp_ranks", "write a whole number")
	f("[{\"url\": \"http://a:1\",\n\"x\": 1}]", "line 2: \"x\" is no key")
	f("[\n17]", "line 2: an entry is neither")
	f("{\"replicas\": [\n\"http://a\"", "neither YAML nor JSON, or not whole")
	f("{\"replicas\": 1}", "write a list")
}

func FuzzParseFile(f *testing.F) {
	for _, s := range []string{"- http://a:1", `[{"url": "http://a:1"}]`, "replicas:\n- {url: http://a:1, role: prefill, drain: true}", "&a [*a]", "{\"replicas\":null}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := discovery.ParseFile(b)
		if err != nil {
			return
		}
		for _, x := range list {
			if _, err := state.NormalURL(x.URL); err != nil {
				t.Errorf("%+v: %v", x, err)
			}
		}
	})
}

// watched is a file that is read, and the hosts that it was found to list, or why not.
type watched struct {
	t    *testing.T
	path string

	mu   sync.Mutex
	have string // guarded by mu
}

func (w *watched) found(x discovery.Snapshot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.have = ""
	for _, r := range x.Replicas {
		w.have += r.URL[7:8]
	}
	if x.Err != nil {
		w.have = x.Err.Error()
	}
}

func (w *watched) now() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.have
}

func (w *watched) write(text string) {
	w.t.Helper()
	if err := os.WriteFile(w.path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// want compares after d.
func (w *watched) want(d time.Duration, text string) {
	w.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if have := w.now(); !strings.Contains(have, text) || text == "" && have != "" {
		w.t.Errorf("have %q, want %q", have, text)
	}
}

func watching(t *testing.T, f func(t *testing.T, w *watched)) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{t: t, path: filepath.Join(t.TempDir(), "replicas.yaml"), have: "nothing"}
		w.write("[http://a:1]")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- discovery.NewFile(w.path).Run(ctx, w.found)
		}()
		w.want(0, "a") // at once at the start
		f(t, w)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

const looked = 1100 * time.Millisecond // two looks and a bit

func TestFileIsReadAgain(t *testing.T) {
	watching(t, func(t *testing.T, w *watched) {
		w.write("[http://a:1, http://b:1]")
		w.want(looked, "ab")
		w.write("[http://a:1, http://c:1]") // of the same length, at the same second
		w.want(looked, "ac")
		w.write("- url: http://a:1\n  ro")
		w.want(looked, "not a list")
		w.write("")
		w.want(looked, "it is empty")
		w.write("[http://d:1]")
		w.want(looked, "d")
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		w.want(looked, "no such file")
		w.write("[http://d:1]")
		w.want(looked, "d")
	})
}

// A file that is still written is not taken, even where its first half makes sense.
func TestFileThatIsStillWritten(t *testing.T) {
	watching(t, func(t *testing.T, w *watched) {
		text := "- http://a:1\n"
		for _, h := range []string{"b", "c", "d", "e"} {
			text += "- http://" + h + ":1\n"
			w.write(text)
			w.want(400*time.Millisecond, "a")
			if have := w.now(); have != "a" {
				t.Errorf("half a file is taken: %s", have)
			}
		}
		w.want(looked, "abcde")
	})
}

func TestFileIsReplaced(t *testing.T) {
	watching(t, func(t *testing.T, w *watched) {
		other := w.path + ".new"
		if err := os.WriteFile(other, []byte("[http://b:1]"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(other, w.path); err != nil {
			t.Fatal(err)
		}
		w.want(looked, "b")
	})
}

// Kubernetes mounts a ConfigMap as links: file -> ..data/file, ..data -> a directory
// that is replaced.
func TestConfigMapIsSwapped(t *testing.T) {
	watching(t, func(t *testing.T, w *watched) {
		dir := filepath.Dir(w.path)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		version := func(name, text string) {
			must(os.Mkdir(filepath.Join(dir, name), 0o700))
			must(os.WriteFile(filepath.Join(dir, name, "replicas.yaml"), []byte(text), 0o600))
			must(os.Symlink(name, filepath.Join(dir, "..tmp")))
			must(os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
		}
		version("..1", "[http://b:1]")
		must(os.Remove(w.path))
		must(os.Symlink("..data/replicas.yaml", w.path))
		w.want(looked, "b")
		version("..2", "[http://c:1]")
		must(os.RemoveAll(filepath.Join(dir, "..1")))
		w.want(looked, "c")
	})
}

// A device or a pipe is not opened: a pipe that nobody writes would hold the reader, and
// the router when it stops. A device stands for both here, since it can't hang a test.
func TestFileThatIsNone(t *testing.T) {
	watching(t, func(t *testing.T, w *watched) {
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(os.DevNull, w.path); err != nil {
			t.Fatal(err)
		}
		w.want(looked, "can't be read: it is a device, not a regular file")
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(w.path, 0o700); err != nil {
			t.Fatal(err)
		}
		w.want(looked, "can't be read: it is a directory, not a regular file")
	})
}

func TestFileTooLarge(t *testing.T) {
	watching(t, func(_ *testing.T, w *watched) {
		w.write("# " + strings.Repeat("x", 1<<20) + "\n[http://b:1]")
		w.want(looked, "larger")
	})
}
