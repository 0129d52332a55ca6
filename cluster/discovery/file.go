package discovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hearsay-llm/hearsay/state"
)

// fileEvery is the time between two looks at a file. A new content is taken when two
// looks have found it: one of them may be in the middle of a write.
const fileEvery = 500 * time.Millisecond

// maxFile bounds a file of replicas.
const maxFile = 1 << 20

// File is a list of replicas in a file, in YAML or JSON. It is read again and again
// rather than watched: that also notices what is replaced by a rename or behind a
// symbolic link, on any file system, and costs some microseconds.
type File struct {
	path string

	seen []byte // content of the last look; nil: there was none
	done []byte // content that last was what is
	last Snapshot
}

// NewFile makes a source of a file, which need not be there yet.
func NewFile(path string) *File { return &File{path: path} }

// Kind is KindFile.
func (f *File) Kind() string { return KindFile }

// Where is the file's path.
func (f *File) Where() string { return f.path }

// Doubtful is true: who writes the file may have lost its source.
func (f *File) Doubtful() bool { return true }

// Run reads the file until ctx ends.
func (f *File) Run(ctx context.Context, report func(Snapshot)) error {
	if x, ok := f.look(); ok {
		report(x)
	} else { // at the start there is nobody who might be writing
		x, _ = f.look()
		report(x)
	}
	t := time.NewTicker(fileEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if x, ok := f.look(); ok {
			report(x)
		}
	}
}

// look reads the file. It is not ok while the content is new.
func (f *File) look() (x Snapshot, ok bool) {
	b, err := readFile(f.path)
	if err != nil {
		f.seen, f.done = nil, nil
		return Snapshot{Err: err}, true
	}
	if f.done != nil && bytes.Equal(b, f.done) {
		f.seen = b
		return f.last, true
	}
	if f.seen == nil || !bytes.Equal(b, f.seen) {
		f.seen = b
		return Snapshot{}, false
	}
	list, err := ParseFile(b)
	f.done, f.last = b, Snapshot{Replicas: list, Err: err}
	return f.last, true
}

// readFile reads a file of bounded size; the result is not nil. Anything else that has
// the name is not opened: a pipe would keep the reader for as long as nobody writes.
func readFile(path string) ([]byte, error) {
	at, err := os.Stat(path)
	if err != nil {
		return nil, unread(err)
	}
	if !at.Mode().IsRegular() {
		return nil, errors.New("can't be read: it is no regular file")
	}
	r, err := os.Open(path)
	if err != nil {
		return nil, unread(err)
	}
	defer func() { _ = r.Close() }()
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	switch {
	case err != nil:
		return nil, unread(err)
	case len(b) > maxFile:
		return nil, fmt.Errorf("is larger than %d bytes", maxFile)
	}
	return append([]byte{}, b...), nil
}

// unread says why a file can't be read, without its path.
func unread(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return fmt.Errorf("can't be read: %w", err)
}

// fileEntry is one replica in a file: its URL alone, or keys.
type fileEntry struct {
	URL           string `yaml:"url" json:"url"`
	Role          string `yaml:"role" json:"role"`
	BootstrapPort int    `yaml:"bootstrap_port" json:"bootstrap_port"`
	DPRanks       int    `yaml:"dp_ranks" json:"dp_ranks"`
	ID            string `yaml:"id" json:"id"`
	Name          string `yaml:"name" json:"name"`
	Drain         bool   `yaml:"drain" json:"drain"`
}

// UnmarshalYAML reads an entry that is a text, or a mapping without unknown keys.
func (e *fileEntry) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		e.URL = n.Value
		return nil
	}
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if k := n.Content[i]; !strings.Contains(entryKeys, " "+k.Value+" ") {
				return fmt.Errorf("line %d: %q is no key of a replica:%s", k.Line, clip(k.Value), strings.TrimRight(entryKeys, " "))
			}
		}
	}
	type plain fileEntry
	return n.Decode((*plain)(e))
}

// UnmarshalJSON is UnmarshalYAML for JSON.
func (e *fileEntry) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &e.URL)
	}
	type plain fileEntry
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode((*plain)(e))
}

const entryKeys = " url role bootstrap_port dp_ranks id name drain "

// fileList is a file's content: a list, or one under the key replicas.
type fileList struct {
	Replicas *[]fileEntry `json:"replicas"`
}

// ParseFile reads a file of replicas: a list of them, or a mapping with the one key
// replicas that holds it. An empty file is an error, `[]` is not. One entry at fault
// is an error as a whole.
func ParseFile(b []byte) ([]Found, error) {
	text := bytes.TrimSpace(b)
	if len(text) == 0 {
		return nil, errors.New("is empty: write [] where there are no replicas")
	}
	list, err := parseList(text)
	if err != nil {
		return nil, fmt.Errorf("is not a list of replicas: %s", clip(strings.Join(strings.Fields(err.Error()), " ")))
	}
	found := make([]Found, 0, len(list))
	for i, e := range list {
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("replica %d: %w", i+1, err)
		}
		f := Found{ID: state.ReplicaID(e.ID), Name: clip(e.Name), URL: e.URL, Role: state.Role(e.Role), BootstrapPort: e.BootstrapPort, Ranks: e.DPRanks}
		if e.Drain {
			f.Leaving = "its file says drain"
		}
		found = append(found, f)
	}
	return found, nil
}

func parseList(text []byte) (list []fileEntry, err error) {
	var wrapped fileList
	if json.Valid(text) { // YAML has most of JSON, but no tabs
		if text[0] == '[' {
			return list, json.Unmarshal(text, &list)
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		err = d.Decode(&wrapped)
	} else {
		var doc, more yaml.Node
		d := yaml.NewDecoder(bytes.NewReader(text))
		if err := d.Decode(&doc); err != nil {
			return nil, err
		}
		if err := d.Decode(&more); !errors.Is(err, io.EOF) {
			return nil, errors.New("more than one document")
		}
		return parseYAML(&doc)
	}
	if err == nil && wrapped.Replicas == nil {
		err = errNoList
	}
	if err != nil {
		return nil, err
	}
	return *wrapped.Replicas, nil
}

// parseYAML finds the list in a document.
func parseYAML(doc *yaml.Node) (list []fileEntry, err error) {
	n := &yaml.Node{}
	if len(doc.Content) == 1 {
		n = doc.Content[0]
	}
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 && n.Content[0].Value == "replicas" {
		n = n.Content[1]
	}
	if n.Kind != yaml.SequenceNode {
		return nil, errNoList
	}
	if err = n.Decode(&list); err == nil && len(list) != len(n.Content) {
		err = errors.New("an entry is null")
	}
	return list, err
}

var errNoList = errors.New("write a list, or one under the only key replicas")

// maxRanks bounds the data-parallel ranks of a process.
const maxRanks = 1024

func (e *fileEntry) check() error {
	if _, err := state.NormalURL(e.URL); err != nil {
		return err
	}
	switch state.Role(e.Role) {
	case "", state.RoleBoth, state.RolePrefill, state.RoleDecode:
	default:
		return fmt.Errorf("role %q is none of both, prefill, decode", clip(e.Role))
	}
	switch {
	case e.BootstrapPort < 0 || e.BootstrapPort > 65535:
		return fmt.Errorf("bootstrap_port %d is not 1 to 65535", e.BootstrapPort)
	case e.BootstrapPort > 0 && e.Role != string(state.RolePrefill):
		return errors.New("bootstrap_port is for role prefill alone")
	case e.DPRanks < 0 || e.DPRanks > maxRanks:
		return fmt.Errorf("dp_ranks %d is not 1 to %d", e.DPRanks, maxRanks)
	case e.ID != "" && !id.MatchString(e.ID):
		return errors.New("an id is 1 to 128 letters, digits and ._:-")
	}
	return nil
}
